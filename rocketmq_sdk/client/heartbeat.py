"""Heartbeats: brokers learn who is here, so that they can notify and ask the clients.

Follows `MQClientInstance.sendHeartbeatToAllBroker`.

Heartbeats go to every broker of the routes, slaves too when there is a consumer,
masters only else: every 30 s, at the start of a consumer, and to a broker whose
connection was just opened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.client.api.members import heartbeat_answer, heartbeat_command
from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.client.api.caller import AddressesCaller
    from rocketmq_sdk.client.brokers import BrokerAddresses
    from rocketmq_sdk.client.troubles import Troubles
    from rocketmq_sdk.protocol.bodies.members import HeartbeatData
    from rocketmq_sdk.protocol.command import Command

logger = logging.getLogger("rocketmq_sdk.client")
FIRST_AFTER: Final = 1.0
PATIENCE: Final = 1.0
"""Seconds that somebody waits for brokers to know what has changed."""


def _short(data: HeartbeatData, fingerprint: int) -> HeartbeatData:
    """A heartbeat without subscriptions, for a broker that knows their fingerprint.

    Follows `sendHeartbeatToBrokerV2`.
    """
    consumers = tuple(
        attrs.evolve(consumer, subscription_data_set=()) for consumer in data.consumer_data_set
    )
    return attrs.evolve(
        data, consumer_data_set=consumers, heartbeat_fingerprint=fingerprint, without_sub=True
    )


class Heartbeats:
    """Sends heartbeats; failures are logged, the next one tries again."""

    __slots__ = (
        "_beating",
        "_brokers",
        "_caller",
        "_data",
        "_interval",
        "_known",
        "_troubles",
        "_v2",
        "_wanted",
        "_written",
    )

    def __init__(
        self,
        caller: AddressesCaller,
        brokers: BrokerAddresses,
        data: Callable[[], HeartbeatData],
        interval: float,
        troubles: Troubles,
        *,
        v2: bool = False,
    ) -> None:
        self._caller = caller
        self._brokers = brokers
        self._data = data
        self._interval = interval
        self._troubles = troubles
        self._v2 = v2
        self._wanted: dict[str, trio.Event] = {}
        """The next full heartbeat to each broker, and who waits for it."""
        self._beating: set[str] = set()
        self._known: dict[str, int] = {}
        self._written: tuple[HeartbeatData, bytes] | None = None
        """The last heartbeat, and its bytes: they are the same for hours."""

    def forget(self, address: str) -> None:
        """A broker was connected anew: it may have forgotten what it knew."""
        self._known.pop(address, None)

    async def beat_all(self) -> None:
        """One heartbeat to every broker that should have one, side by side.

        Returns when each has answered or failed.
        """
        data = self._data()
        await self._beat_at(self._addresses(data), data)

    async def _beat_at(self, addresses: Sequence[str], data: HeartbeatData) -> None:
        """One heartbeat to each of some brokers; a full one follows where it has to."""
        fingerprint = data.fingerprint() if self._v2 else 0
        answers = await self._caller.call_addresses(
            [(address, self._command(address, data, fingerprint)) for address in addresses]
        )
        for address, answer in zip(addresses, answers, strict=True):
            if not self._takes(address, fingerprint, answer):
                # Another member has other subscriptions, or the broker has forgotten:
                # it must have all of it now.
                await self.beat(address)

    async def beat_all_now(self, nursery: trio.Nursery) -> None:
        """As `beat_all`, but waits for at most a second; late answers count too.

        No subscription is left out: something has changed that the fingerprint does not
        tell, as the version of a subscription, or a broker says that it does not know
        one. What takes longer goes on in `nursery`. Callers at the same time share a
        heartbeat that begins after they have called: many consumers that start on one
        client would otherwise each send what all have.
        """
        done = []
        for address in self._addresses(self._data()):
            event = self._wanted.get(address)
            if event is None:
                event = self._wanted[address] = trio.Event()
                if address not in self._beating:
                    self._beating.add(address)
                    nursery.start_soon(self._beat_as_wanted, address)
            done.append(event)
        with trio.move_on_after(PATIENCE):
            for event in done:
                await event.wait()

    async def _beat_as_wanted(self, address: str) -> None:
        """Send full heartbeats to a broker as long as somebody wants one."""
        try:
            while (event := self._wanted.pop(address, None)) is not None:
                self.forget(address)
                try:
                    await self.beat(address)
                finally:
                    event.set()
        finally:
            self._beating.discard(address)
            if (event := self._wanted.pop(address, None)) is not None:
                event.set()

    def _addresses(self, data: HeartbeatData) -> list[str]:
        """The brokers that should have a heartbeat."""
        if not data.producer_data_set and not data.consumer_data_set:
            return []
        return self._brokers.all(masters_only=not data.consumer_data_set)

    async def beat(self, address: str, data: HeartbeatData | None = None) -> None:
        """One heartbeat to one broker; keeps the version that it answers with."""
        data = data or self._data()
        if not data.producer_data_set and not data.consumer_data_set:
            return
        await self._beat_at([address], data)

    def _command(self, address: str, data: HeartbeatData, fingerprint: int) -> Command:
        if self._v2:
            data = (
                _short(data, fingerprint)
                if self._known.get(address) == fingerprint
                else attrs.evolve(data, heartbeat_fingerprint=fingerprint)
            )
        return heartbeat_command(self._encoded(data))

    def _takes(self, address: str, fingerprint: int, response: Command | RocketMQError) -> bool:
        """Note the answer of a broker; False when a full heartbeat has to follow."""
        try:
            if isinstance(response, RocketMQError):
                raise response
            answer = heartbeat_answer(response, address)
        except RocketMQError as error:
            self.forget(address)
            self._troubles.broker_failed(address, error)
            logger.warning("a heartbeat to %s failed: %s", address, error)
            return True
        self._troubles.broker_answered(address)
        self._brokers.remember_version(address, answer.version)
        if self._v2 and answer.knows_v2 and not answer.subscriptions_changed:
            self._known[address] = fingerprint
            return True
        return self._known.pop(address, None) is None

    def _encoded(self, data: HeartbeatData) -> bytes:
        written = self._written
        if written is None or written[0] != data:
            written = self._written = (data, data.encode())
        return written[1]

    async def beat_regularly(self) -> float:
        """A periodic job: one heartbeat to every broker that should have one."""
        await self.beat_all()
        return self._interval
