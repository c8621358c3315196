"""The process queue against a model that keeps all messages in a plain set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketmq_sdk.consumer.config import FlowLimits
from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
from rocketmq_sdk.model.queue import MessageQueue
from support.consuming import received

if TYPE_CHECKING:
    from rocketmq_sdk.model.received import ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


class ProcessQueueModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.process_queue = ProcessQueue(QUEUE, 7, FlowLimits(10, 200, 30))
        self.waiting: list[ReceivedMessage] = []
        self.running: list[ReceivedMessage] = []
        self.deferred: list[ReceivedMessage] = []
        self.again: list[ReceivedMessage] = []
        self.next_offset = 7

    @rule(
        gaps=st.lists(st.integers(0, 4), max_size=5),
        behind=st.integers(0, 3),
        size=st.integers(0, 30),
    )
    def pull(self, gaps: list[int], behind: int, size: int) -> None:
        offset = self.next_offset
        messages = []
        for gap in gaps:
            messages.append(received(offset + gap, b"x" * size))
            offset += gap + 1
        assert self.process_queue.put(messages, offset + behind) == len(messages)
        self.waiting += messages
        self.next_offset = offset + behind

    @rule(overlap=st.integers(1, 3))
    def pull_into_a_stored_batch(self, overlap: int) -> None:
        batch = [received(self.next_offset - overlap + index) for index in range(overlap + 1)]
        assert self.process_queue.put(batch, self.next_offset + 1) == 1
        self.waiting.append(batch[-1])
        self.next_offset += 1

    @precondition(lambda self: self.waiting or self.again)
    @rule()
    def take(self) -> None:
        expected = self.again.pop(0) if self.again else self.waiting.pop(0)
        assert self.process_queue.take() is expected
        self.running.append(expected)

    @precondition(lambda self: self.waiting or self.again)
    @rule(most=st.integers(1, 5))
    def take_batch(self, most: int) -> None:
        batch = self.process_queue.take_batch(most)
        expected = (self.again + self.waiting)[:most]
        assert batch == expected
        self.running += batch
        self.again = [message for message in self.again if message not in batch]
        self.waiting = [message for message in self.waiting if message not in batch]

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.process_queue.finish(
            self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        )

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish_batch(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.running)))
        self.process_queue.finish_batch([self.running.pop() for _ in range(count)])

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def defer(self, data: st.DataObject) -> None:
        self.deferred.append(self.running.pop(data.draw(st.integers(0, len(self.running) - 1))))
        self.process_queue.defer()

    @precondition(lambda self: self.deferred)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        message = self.deferred.pop(data.draw(st.integers(0, len(self.deferred) - 1)))
        self.process_queue.resume(message)
        self.again.append(message)

    @invariant()
    def agrees(self) -> None:
        queue, cached = (
            self.process_queue,
            [*self.waiting, *self.running, *self.deferred, *self.again],
        )
        offsets = [message.offset for message in cached]
        assert queue.commit_offset == (min(offsets) if offsets else self.next_offset)
        assert queue.next_offset == self.next_offset
        assert queue.message_count == len(cached)
        assert queue.byte_count == sum(len(message.body) for message in cached)
        assert queue.in_flight == len(self.running)
        assert queue.has_work == bool(self.waiting or self.again)
        blocked = len(cached) > 10 or queue.byte_count > 200 or queue.span > 30
        assert queue.is_blocked == blocked

    def teardown(self) -> None:
        queue = self.process_queue
        kept = [message.offset for message in [*self.running, *self.deferred, *self.again]]
        expected = queue.commit_offset
        queue.withdraw()
        assert not queue.has_work
        assert queue.in_flight == len(self.running)
        assert queue.commit_offset == expected
        assert queue.message_count == len(kept)


ProcessQueueModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestProcessQueue = ProcessQueueModel.TestCase


def test_the_span_is_measured_from_the_oldest_message_that_is_not_done() -> None:
    queue = ProcessQueue(QUEUE, 0, FlowLimits(1000, 1 << 30, 100))
    queue.put([received(offset) for offset in range(0, 202, 2)], 202)
    assert queue.span == 200
    assert queue.is_blocked
    for _ in range(51):
        queue.finish(queue.take())
    assert queue.span == 98
    assert not queue.is_blocked
    stuck = queue.take()
    while queue.has_work:
        queue.finish(queue.take())
    assert queue.commit_offset == stuck.offset
    assert queue.span == 98
    queue.finish(stuck)
    assert queue.span == 0
    assert queue.commit_offset == 202
