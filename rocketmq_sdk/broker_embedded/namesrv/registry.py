"""What a name server knows: brokers, topics, key-value table and settings; and the task
that gives up brokers that fell silent.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
from rocketmq_sdk.broker_embedded.namesrv.kv import KeyValueTable
from rocketmq_sdk.broker_embedded.namesrv.registration import (
    OWN_BROKER,
    BrokerRegistration,
    RegistrationResult,
)
from rocketmq_sdk.broker_embedded.namesrv.table import AddressResolver, RouteTable, same_address
from rocketmq_sdk.names import ORDER_TOPIC_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.channel import Channel

logger = logging.getLogger(__name__)

_REGISTERED = "namesrv.registered"


class Registry:
    """The tables of a name server, and who registered over which channel."""

    def __init__(
        self,
        clock: Clock,
        *,
        config: NamesrvConfig | None = None,
        kv_file: TableFile | None = None,
        own_address: Callable[[Channel], str] | None = None,
    ) -> None:
        """`own_address` tells a channel's peer where the broker that registered as
        `OWN_BROKER` is.

        Raises `StoreCorruptError` when the key-value file cannot be read.
        """
        self.clock = clock
        self.config = config or NamesrvConfig()
        self.table = RouteTable()
        self.kv = KeyValueTable(kv_file)
        self.started_ms = clock.now_ms()
        self.on_registration: list[Callable[[BrokerRegistration], None]] = []
        """Called with each registration that was taken in."""
        self._own_address = own_address
        self._channels: dict[int, Channel] = {}
        self._woken = trio.Event()

    def resolver(self, channel: Channel) -> AddressResolver:
        """What the peer of a channel is told for a registered address."""
        own_address = self._own_address
        if own_address is None:
            return same_address

        def resolve(address: str) -> str:
            return own_address(channel) if address == OWN_BROKER else address

        return resolve

    def register(
        self, registration: BrokerRegistration, channel: Channel | None = None
    ) -> RegistrationResult | None:
        """Take in what a broker tells of itself, for as long as its channel is open
        where it has one; None when it is refused.
        """
        delete_topics = self.config.delete_topic_with_broker_registration
        result = self.table.register(registration, self.clock.now_ms(), delete_topics=delete_topics)
        if result is not None:
            if channel is not None:
                self._follow(channel)
            self._woken.set()
            for listener in self.on_registration:
                listener(registration)
        return result

    def unregister(self, cluster: str, address: str, broker_name: str, broker_id: int) -> None:
        """Forget an address of a broker."""
        self.table.unregister(cluster, address, broker_name, broker_id)

    def order_configuration(self) -> dict[str, str] | None:
        """The order configuration of topics that registering brokers are told, or
        None.
        """
        if not self.config.return_order_topic_config_to_broker:
            return None
        return self.kv.namespace(ORDER_TOPIC_NAMESPACE)

    def change_settings(self, texts: dict[str, str]) -> None:
        """Change settings under Apache's names, all or none; warnings go to the log.

        Raises `ConfigurationError` for a bad value.
        """
        self.config, warnings = self.config.with_settings(texts)
        for warning in warnings:
            logger.warning("%s", warning)

    async def run(self) -> None:
        """Give up brokers as their time is over, until cancelled; sleeps until the next
        one is due.
        """
        while True:
            self._woken = trio.Event()
            for key, channel_id in self.table.expire(self.clock.now_ms()):
                logger.warning(
                    "the broker %s of %s was not heard of in time and is no longer in any route",
                    key.address,
                    key.cluster,
                )
                channel = self._channels.get(channel_id) if channel_id is not None else None
                if channel is not None:
                    channel.abort("the broker was not heard of in time")
            due = self.table.next_due_ms()
            with trio.move_on_after(
                math.inf if due is None else max(0, due + 1 - self.clock.now_ms()) / 1000
            ):
                await self._woken.wait()

    def _follow(self, channel: Channel) -> None:
        if (
            channel.attributes.setdefault(_REGISTERED, self) is self
            and channel.channel_id not in self._channels
        ):
            self._channels[channel.channel_id] = channel
            channel.on_close.append(self._channel_closed)

    def _channel_closed(self, channel: Channel) -> None:
        self._channels.pop(channel.channel_id, None)
        for key in self.table.unregister_channel(channel.channel_id):
            logger.info(
                "the connection of the broker %s of %s has ended; it is no longer in any route",
                key.address,
                key.cluster,
            )
