"""Telling brokers who is here, so that they tell consumers of changes and know whom to ask (`MQClientInstance.sendHeartbeatToAllBroker`).

Heartbeats go to every broker of the routes, slaves too when there is a consumer, masters only else: every 30 s, at the start of a consumer, and to a
broker whose connection was just opened.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.membership import send_heartbeat
from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.client.api.call import Caller
    from rocketmq_sdk.client.brokers import BrokerAddresses
    from rocketmq_sdk.protocol.bodies.heartbeat import HeartbeatData

logger = logging.getLogger("rocketmq_sdk.client")
FIRST_AFTER: Final = 1.0


class Heartbeats:
    """Sends heartbeats; failures are logged, the next one tries again."""

    __slots__ = ("_brokers", "_caller", "_data", "_interval")

    def __init__(self, caller: "Caller", brokers: "BrokerAddresses", data: "Callable[[], HeartbeatData]", interval: float) -> None:
        self._caller = caller
        self._brokers = brokers
        self._data = data
        self._interval = interval

    async def beat_all(self) -> None:
        """One heartbeat to every broker that should have one, side by side; returns when each has answered or failed."""
        data = self._data()
        if not data.producer_data_set and not data.consumer_data_set:
            return
        async with trio.open_nursery() as nursery:
            for address in self._brokers.all(masters_only=not data.consumer_data_set):
                nursery.start_soon(self.beat, address, data)

    async def beat(self, address: str, data: "HeartbeatData | None" = None) -> None:
        """One heartbeat to one broker; keeps the version that it answers with."""
        data = data or self._data()
        if not data.producer_data_set and not data.consumer_data_set:
            return
        try:
            version = await send_heartbeat(self._caller, address, data)
        except RocketMQError as error:
            logger.warning("a heartbeat to %s failed: %s", address, error)
        else:
            self._brokers.remember_version(address, version)

    async def run(self) -> None:
        """Beat until cancelled."""
        await trio.sleep(FIRST_AFTER)
        while True:
            await self.beat_all()
            await trio.sleep(self._interval)
