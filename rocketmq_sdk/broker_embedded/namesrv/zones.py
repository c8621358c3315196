"""Routes cut down to one zone, for clients that ask for it (`ZoneRouteRPCHook`)."""

from __future__ import annotations

import attrs

from rocketmq_sdk.model.route import MASTER_ID, TopicRoute


def route_of_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """The route without the brokers of other zones; brokers without a master stay."""
    kept = tuple(
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    )
    names = {broker.broker_name for broker in kept}
    addresses = {address for broker in kept for address in broker.broker_addrs.values()}
    return attrs.evolve(
        route,
        broker_datas=kept,
        queue_datas=tuple(data for data in route.queue_datas if data.broker_name in names),
        filter_server_table={
            address: servers
            for address, servers in route.filter_server_table.items()
            if address in addresses
        },
    )
