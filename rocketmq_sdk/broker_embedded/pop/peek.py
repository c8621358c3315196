"""PEEK_MESSAGE (200052): what a pop would find (`PeekMessageProcessor`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.pop.checks import checked_group, checked_topic, host_of, refusal
from rocketmq_sdk.broker_embedded.slices import SLICE
from rocketmq_sdk.broker_embedded.store.messages import GetStatus, QueueRead
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.bodies.pop_records import MAX_COUNT
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pop import (
    PeekMessageRequestHeader,
    PopMessageResponseHeader,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.broker_embedded.store.messages import GetResult
    from rocketmq_sdk.remoting.channel import Channel

    Answer = Command | Callable[[], Awaitable[Command]]
    Reading = Generator[QueueRead | None, GetResult | None, None]


class PeekProcessor:
    """Shows messages without lending them."""

    __slots__ = ("_core", "_state")

    def __init__(self, core: Core, state: PopState) -> None:
        self._core = core
        self._state = state

    def peek(self, channel: Channel, request: Command) -> Answer:
        """What a pop would get from the topic, without taking it."""
        header = PeekMessageRequestHeader.from_ext(request.ext_fields)
        core, group, store = self._core, header.consumer_group, self._core.store
        if header.max_msg_nums > MAX_COUNT:
            return refusal(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{host_of(self._core)}] peek message's num is greater than {MAX_COUNT}",
            )
        topic = checked_topic(core, channel, header.topic, header.queue_id)
        checked_group(core, group)
        seen = _Seen()
        reading = self._collect(header, topic.read_queue_nums, seen)
        try:
            wanted = next(reading)
        except StopIteration:
            return seen.answer()

        async def read_on() -> Command:
            """The same where queues have to be read from the disk."""
            following = wanted
            try:
                while True:
                    if following is None:
                        await trio.lowlevel.checkpoint()
                        following = next(reading)
                    else:
                        result = await store.read_cold(following)
                        following = reading.send(result)
            except StopIteration:
                return seen.answer()
            finally:
                reading.close()

        return read_on

    def _collect(self, header: PeekMessageRequestHeader, queues: int, seen: _Seen) -> Reading:
        """Look at one queue after the other.

        It asks for those that are cold, and for a turn of the others between slices.
        """
        core, state, store = self._core, self._state, self._core.store
        topic, group = header.topic, header.consumer_group
        for queue_id in range(queues) if header.queue_id < 0 else (header.queue_id,):
            if queue_id % SLICE == SLICE - 1 and header.queue_id < 0:
                yield None
            offset = max(
                core.offsets.query(group, topic, queue_id),
                state.buffer.position((topic, group, queue_id)),
                store.min_offset(topic, queue_id),
            )
            seen.rest += max(0, store.max_offset(topic, queue_id) - offset)
            missing = header.max_msg_nums - seen.count
            if missing <= 0:
                continue
            wanted = QueueRead(topic, queue_id, offset, missing)
            result = store.read_nowait(wanted)
            if result is None:
                result = yield wanted
                assert result is not None
            seen.bodies.append(result.body)
            seen.count += result.count
            if result.count:
                core.stats.got(topic, group, queue_id, result.count, result.size)
                if core.stats.figures is not None:
                    core.stats.figures.got(header.topic, group, result.count, result.size)


class _Seen:
    """What a peek has found so far."""

    __slots__ = ("bodies", "count", "rest")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.count = self.rest = 0

    def answer(self) -> Command:
        code = ResponseCode.SUCCESS if self.count else ResponseCode.PULL_NOT_FOUND
        status = GetStatus.FOUND if self.count else GetStatus.NO_MESSAGE_IN_QUEUE
        return Command.response(
            code,
            PopMessageResponseHeader(rest_num=self.rest),
            body=b"".join(self.bodies),
            remark=status.name,
        )
