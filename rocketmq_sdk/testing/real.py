"""A real cluster in the place of a test broker: the same waits, by requests.

What only a test broker can do, such as faults, raises `NeedsTestBrokerError`; the
pytest plugin skips such a test.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.client.api.connections import consumer_connections
from rocketmq_sdk.client.api.offsets import update_consumer_offset
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.consumer.lite_pull.pull_consumer import PullConsumer
from rocketmq_sdk.errors import GroupNotFoundError, NotFoundError, RocketMQError, RouteError
from rocketmq_sdk.names import dead_letter_topic
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.testing.failures import ExpectationError, WaitTimeoutError
from rocketmq_sdk.testing.seeds import Seed, offsets_by_queue, plant_messages
from rocketmq_sdk.testing.threads import (
    Cancellable,
    WaitsInAsyncio,
    WaitsInThreads,
    WaitsOfThread,
    blocking,
    in_asyncio,
)
from rocketmq_sdk.testing.waits import LONGEST_STEP, WITHIN, checked_within, holds

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler

T = TypeVar("T")
READER: Final = "test_kit_reader"
_AT_ONCE: Final = 32
_NOT_YET: Final = (RouteError, NotFoundError, GroupNotFoundError)
"""A topic, a message or a group that is not there yet."""


class NeedsTestBrokerError(ExpectationError):
    """Only a test broker can do this, and a real cluster is there instead."""


def needed(name: str) -> NoReturn:
    """Say that a test broker is needed."""
    raise NeedsTestBrokerError(f"a real cluster has no {name!r}; this test needs a test broker")


class InThread:
    """Runs functions that need trio in a thread, where the caller's does not run it."""

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in a thread, and wait for what it returns.

        Ctrl-C, while it waits, ends the function.
        """
        work = Cancellable(function)
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(trio.run, work)
            try:
                return running.result()
            finally:
                work.cancel()

    def look(self, function: Callable[[], T]) -> T:
        """Call a plain function, which needs nothing."""
        return function()


class RealBroker:
    """A real cluster, as a test sees a `TestBroker`; pass it as `namesrv=`."""

    running = True

    def __init__(self, namesrv_address: str) -> None:
        self.namesrv_address = namesrv_address
        """`host:port` of its name server, or several separated by `;`."""
        self.wait = RealWaits(self)
        """Waiting for what the code under test does."""

    def __getattr__(self, name: str) -> Any:
        needed(name)

    def __repr__(self) -> str:
        return f"<RealBroker {self.namesrv_address}>"

    def knows(self, address: str) -> bool:
        """Whether an address belongs to it: it is asked over TCP like any other."""
        del address
        return False

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> Channel:
        """A channel to one of its addresses, None for a name server."""
        where = self.namesrv_address.split(";")[0] if address is None else address
        return await TcpChannelSource().open_channel(where, handler, nursery)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        """An open admin client."""
        async with Admin(namesrv=self.namesrv_address) as admin:
            yield admin

    def sent(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic; the caller's loop stands still meanwhile."""
        return InThread().run(partial(self.sent_now, topic))

    def report(self) -> str:
        """Of a real cluster nothing is recorded."""
        return f"it is a real cluster: {self.namesrv_address}"

    async def sent_now(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic, in the order in which they were stored."""
        found: list[ReceivedMessage] = []
        try:
            async with PullConsumer(READER, namesrv=self.namesrv_address) as consumer:
                for queue in await consumer.message_queues(topic):
                    offset = await consumer.begin_offset(queue)
                    end = await consumer.end_offset(queue)
                    while offset < end:
                        result = await consumer.pull(queue, offset, max_messages=_AT_ONCE)
                        found += result.messages
                        offset = result.next_begin_offset
        except _NOT_YET:
            return []
        return sorted(found, key=lambda message: (message.store_timestamp, message.offset))

    async def seed(
        self,
        seed: Seed | str | os.PathLike[str] | None = None,
        *,
        topics: Mapping[str, int] | Sequence[str] = (),
        groups: Sequence[str] = (),
        messages: Mapping[str, Sequence[Any]] | None = None,
        offsets: Mapping[str, Mapping[str, int | Sequence[int]]] | None = None,
    ) -> None:
        """Make topics, groups, messages and offsets, as `TestBroker.seed` does.

        What is there already stays, as do settings of its topics and groups. Offsets
        are for the queues of each master.
        """
        wanted = Seed.of(seed).with_more(topics, groups, messages or {}, offsets or {})
        await plant_messages(self.namesrv_address, wanted, change=False)
        async with Client(self.namesrv_address) as client, Admin(client=client) as admin:
            for group, by_topic in wanted.offsets.items():
                for topic, given in by_topic.items():
                    client.routes.use(topic)
                    await client.routes.fetch(topic)
                    there = await admin.topics.offsets(topic)
                    count = 1 + max((queue.queue_id for queue in there), default=-1)
                    numbers = offsets_by_queue(topic, count, given)
                    for queue in there:
                        number = queue.queue_id
                        await update_consumer_offset(
                            client, queue.broker_name, group, topic, number, numbers[number]
                        )


async def _subscribed(admin: Admin, group: str) -> set[str] | None:
    """The topics that the members of a group subscribe to; None without members."""
    found: set[str] | None = None
    for broker in await admin.cluster.masters():
        try:
            told = await consumer_connections(admin.client, broker.address, group)
        except GroupNotFoundError:
            continue
        found = (found or set()) | told.subscription_table.keys()
    return found


class RealWaits:
    """The waits of `Waits` that a cluster answers by requests."""

    def __init__(self, broker: RealBroker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        raise NeedsTestBrokerError(f"a real cluster cannot be waited for by {name!r}")

    async def _until(
        self,
        look: Callable[[Admin], Awaitable[tuple[bool, str]]],
        what: str,
        within: float,
    ) -> None:
        checked_within(within)
        found = "nothing was answered"
        with trio.move_on_after(within):
            async with self._broker.admin() as admin:
                while True:
                    try:
                        holds, found = await look(admin)
                    except RocketMQError as error:
                        if not (error.retryable or isinstance(error, _NOT_YET)):
                            raise
                        holds, found = False, str(error)
                    if holds:
                        return
                    await trio.sleep(LONGEST_STEP)
        raise WaitTimeoutError(f"waited {within:g} s for {what}, but {found}")

    async def until(
        self, condition: Callable[[], object], what: str, *, within: float = WITHIN
    ) -> None:
        """Until a function of the test's own gives something true."""

        async def look(_admin: Admin) -> tuple[bool, str]:
            return holds(condition), "it did not hold"

        await self._until(look, what, within)

    @staticmethod
    async def _count(admin: Admin, topic: str) -> int:
        try:
            offsets = await admin.topics.offsets(topic)
        except _NOT_YET:
            return 0
        return sum(offset.max_offset - offset.min_offset for offset in offsets.values())

    async def stored(
        self, topic: str, count: int = 1, *, within: float = WITHIN
    ) -> list[ReceivedMessage]:
        """Until a topic holds at least so many messages; returns all that it holds."""

        async def look(admin: Admin) -> tuple[bool, str]:
            now = await self._count(admin, topic)
            return now >= count, f"{topic!r} holds {now}"

        await self._until(look, f"{count} messages in {topic!r}", within)
        return await self._broker.sent_now(topic)

    async def dead_letter(
        self, group: str, count: int = 1, *, within: float = WITHIN
    ) -> list[ReceivedMessage]:
        """Until a group has given up at least so many messages; returns them."""
        return await self.stored(dead_letter_topic(group), count, within=within)

    async def lag(
        self, group: str, topic: str | None = None, *, most: int = 0, within: float = WITHIN
    ) -> None:
        """Until a group is at most so many messages behind, in a topic or in all.

        All are the topics that it subscribes to or has offsets in. A group that nobody
        has joined yet is waited for, and so is a topic.
        """

        async def look(admin: Admin) -> tuple[bool, str]:
            progress = await admin.groups.progress(group, topic)
            subscribed = await _subscribed(admin, group)
            if subscribed is None and not (await admin.groups.progress(group)).queues:
                return False, "it has no members and no offsets"
            topics = {queue.topic for queue in progress.queues} | (subscribed or set())
            wanted = topics if topic is None else {topic}
            lag = sum([await self._behind(admin, group, one) for one in wanted])
            return lag <= most, f"it is {lag} behind"

        await self._until(look, f"group {group!r} to be at most {most} behind", within)

    async def _behind(self, admin: Admin, group: str, topic: str) -> int:
        """How much a group is behind in a topic, at all masters."""
        try:
            progress = await admin.groups.progress(group, topic)
        except _NOT_YET:  # such as its retries
            return 0
        # Before its first commit in a topic a group may have no progress there at all.
        return progress.lag if progress.queues else await self._count(admin, topic)

    async def committed(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int] | None = None,
        *,
        within: float = WITHIN,
    ) -> None:
        """Until a group has committed these offsets by queue, None for all ends.

        With several masters, in the queues of that number of all of them.
        """

        async def look(admin: Admin) -> tuple[bool, str]:
            queues = (await admin.groups.progress(group, topic)).queues
            now = {
                (queue.broker_name, queue.queue_id): progress.consumer_offset
                for queue, progress in queues.items()
            }
            if offsets is None:
                holds = all(one.consumer_offset >= one.broker_offset for one in queues.values())
            else:
                holds = offsets.keys() <= {queue for _, queue in now} and all(
                    at >= offsets.get(queue, -1) for (_, queue), at in now.items()
                )
            told = ", ".join(f"{name}/{queue}: {at}" for (name, queue), at in sorted(now.items()))
            return bool(queues) and holds, f"the offsets are {told or 'not there'}"

        wanted = "all" if offsets is None else dict(offsets)
        await self._until(look, f"group {group!r} to commit {wanted} in {topic!r}", within)

    async def group(
        self, group: str, members: int = 1, *, quiet: float = 1.0, within: float = WITHIN
    ) -> list[str]:
        """Until a group has so many members for `quiet` seconds; their ids."""
        here: list[str] = []
        since = math.inf

        async def look(admin: Admin) -> tuple[bool, str]:
            nonlocal here, since
            now = [connection.client_id or "" for connection in await admin.groups.members(group)]
            if now != here:
                since = math.inf
            here = now
            if len(here) == members:
                since = min(since, trio.current_time())
            return trio.current_time() - since >= quiet, f"there are {here}"

        await self._until(look, f"{members} members in group {group!r}", within)
        return here


class _RealFace:
    """What the faces of a real cluster share."""

    running = True

    def __init__(self, broker: RealBroker) -> None:
        self._thread = InThread()
        self._target = broker
        self.namesrv_address = broker.namesrv_address
        """`host:port` of its name server, or several separated by `;`."""
        self.sent = broker.sent
        self.report = broker.report

    def __getattr__(self, name: str) -> Any:
        needed(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namesrv_address}>"


class _RealWaitsFace(WaitsOfThread):
    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)  # which says what is missing


class _BlockingWaits(_RealWaitsFace, WaitsInThreads):
    """`RealWaits` for plain code."""

    stored = blocking(RealWaits.stored)
    group = blocking(RealWaits.group)
    lag = blocking(RealWaits.lag)
    committed = blocking(RealWaits.committed)
    dead_letter = blocking(RealWaits.dead_letter)


class _AsyncioWaits(WaitsInAsyncio, _RealWaitsFace):
    """`RealWaits` for asyncio."""

    stored = in_asyncio(RealWaits.stored)
    group = in_asyncio(RealWaits.group)
    lag = in_asyncio(RealWaits.lag)
    committed = in_asyncio(RealWaits.committed)
    dead_letter = in_asyncio(RealWaits.dead_letter)


class BlockingRealBroker(_RealFace):
    """A `RealBroker` for plain code: its methods wait."""

    seed = blocking(RealBroker.seed)

    def __init__(self, broker: RealBroker) -> None:
        super().__init__(broker)
        self.wait = _BlockingWaits(self._thread, broker)
        """Waiting for what the code under test does."""


class AsyncioRealBroker(_RealFace):
    """A `RealBroker` for asyncio: the same methods are async."""

    seed = in_asyncio(RealBroker.seed)

    def __init__(self, broker: RealBroker) -> None:
        super().__init__(broker)
        self.wait = _AsyncioWaits(self._thread, broker)
        """Waiting for what the code under test does."""
