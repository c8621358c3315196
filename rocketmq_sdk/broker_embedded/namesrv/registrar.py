"""Registers brokers; removes them when their connection ends or they time out."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.namesrv.registration import NEVER_MS
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.clock import monotonic_ms
from rocketmq_sdk.names import ORDER_TOPIC_NAMESPACE
from rocketmq_sdk.sleeper import Sleeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.namesrv.config import LiveNamesrvConfig
    from rocketmq_sdk.broker_embedded.namesrv.kv import KeyValueTable
    from rocketmq_sdk.broker_embedded.namesrv.registration import (
        BrokerRegistration,
        RegistrationResult,
    )
    from rocketmq_sdk.broker_embedded.namesrv.route_table import RouteTable
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.channel import Channel

logger = logging.getLogger(__name__)

_REGISTERED: Final = "namesrv.registered"
"""The attribute of a channel through which brokers have registered."""


class Registrar:
    """Brings brokers into the route table and takes them out."""

    __slots__ = (
        "_channels",
        "_clock",
        "_config",
        "_due_ms",
        "_kv",
        "_sleeper",
        "_table",
        "on_call",
        "on_registration",
    )

    def __init__(
        self, clock: Clock, config: LiveNamesrvConfig, table: RouteTable, kv: KeyValueTable
    ) -> None:
        self._clock = clock
        self._config = config
        self._table = table
        self._kv = kv
        self.on_registration: list[Callable[[BrokerRegistration], None]] = []
        """Called with each registration that was taken in."""
        self._channels: dict[int, Channel] = {}
        self._sleeper = Sleeper()
        self.on_call = OnCall()
        """Called once a broker can be silent for too long: its own never is."""
        self._due_ms = -math.inf
        """When `run` looks again; it is awake before it has slept first."""

    def register(
        self, registration: BrokerRegistration, channel: Channel | None = None
    ) -> RegistrationResult | None:
        """Register a broker; None when it is refused.

        With a channel, the registration ends with the channel.
        """
        result = self._table.register(
            registration,
            monotonic_ms(self._clock),
            delete_topics=self._config.current.delete_topic_with_broker_registration,
        )
        if result is not None:
            if channel is not None:
                self._follow(channel)
            due = self._table.live.next_due_ms()
            if due is not None and due < NEVER_MS:
                self.on_call.call()
            if due is not None and due < self._due_ms:
                self._due_ms = due
                self._sleeper.wake_at(self._moment(due))
            for listener in self.on_registration:
                listener(registration)
        return result

    def order_configuration(self) -> dict[str, str] | None:
        """The order configuration of topics for registering brokers, or None."""
        if not self._config.current.return_order_topic_config_to_broker:
            return None
        return self._kv.namespace(ORDER_TOPIC_NAMESPACE)

    async def run(self) -> None:
        """Remove brokers as they time out, until cancelled.

        Sleeps until the next one is due.
        """
        while True:
            for key, channel_id in self._table.expire(monotonic_ms(self._clock)):
                logger.warning(
                    "the broker %s of %s was not heard of in time and is no longer in any route",
                    key.address,
                    key.cluster,
                )
                channel = self._channels.get(channel_id) if channel_id is not None else None
                if channel is not None:
                    channel.abort("the broker was not heard of in time")
            due = self._table.live.next_due_ms()
            self._due_ms = math.inf if due is None else due
            await self._sleeper.sleep_until(self._moment(self._due_ms))

    def _moment(self, due_ms: float) -> float:
        """When a broker that is due then is gone, in seconds of trio's clock."""
        return trio.current_time() + max(0, due_ms + 1 - monotonic_ms(self._clock)) / 1000

    def _follow(self, channel: Channel) -> None:
        if (
            channel.attributes.setdefault(_REGISTERED, self) is self
            and channel.channel_id not in self._channels
        ):
            self._channels[channel.channel_id] = channel
            channel.on_close.append(self._channel_closed)

    def _channel_closed(self, channel: Channel) -> None:
        self._channels.pop(channel.channel_id, None)
        for key in self._table.unregister_channel(channel.channel_id):
            logger.info(
                "the connection of the broker %s of %s has ended; it is no longer in any route",
                key.address,
                key.cluster,
            )
