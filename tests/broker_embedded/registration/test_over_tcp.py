"""A broker that registers at the name server of another process's broker, here another
broker in this one, over TCP.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

pytestmark = pytest.mark.real_time


def brokers_of(broker: Any, topic: str) -> set[str]:
    route = broker.namesrv.table.route(topic)
    return (
        set()
        if route is None
        else {data.broker_name for data in route.broker_datas if 0 in data.broker_addrs}
    )


async def test_two_brokers_at_one_name_server() -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker(namesrv_listen="127.0.0.1:0") as first:
            settings = {"broker_name": "second", "namesrv_addr": first.namesrv_address}
            async with EmbeddedBroker(listen="127.0.0.1:0", **settings) as second:
                while brokers_of(first, "BenchmarkTest") != {"broker-a", "second"}:
                    await trio.sleep(0.02)
                addresses = (
                    first.namesrv.table.brokers.cluster_info()
                    .broker_addr_table["second"]
                    .broker_addrs
                )
                assert addresses == {0: second.address}
                second.core.topics.create_on_send("New", "TBW102", 4)
                wait = second.parts.registration.service.waiting()
                assert wait is not None
                await wait()
                assert brokers_of(first, "New") == {"second"}
            while "second" in brokers_of(first, "BenchmarkTest"):
                await trio.sleep(0.02)
