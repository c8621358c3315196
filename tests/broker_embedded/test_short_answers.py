"""Short answers follow what their requests wait for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.broker_embedded.short_answers import ShortAnswers
from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE
from rocketmq_sdk.protocol.frame import decode_frame

if TYPE_CHECKING:
    from collections.abc import Callable

DONE = PutResult(PutStatus.PUT_OK, 0, 100)
REQUESTS = [
    Command(37, opaque=1),
    Command(37, opaque=2, flag=FLAG_ONEWAY),
    Command(37, opaque=3),
]


class Situation:
    """A store that syncs when it is told to, and what a channel answers later."""

    def __init__(self, *, at_once: PutStatus | None = None, needs_wait: bool = True) -> None:
        self.at_once = at_once
        self.later: list[tuple[int, int]] = []
        self.tell: Callable[[PutStatus], None] = lambda _status: None
        store = SimpleNamespace(needs_wait=needs_wait, when_durable=self.when_durable)
        intake = SimpleNamespace(failure=lambda status: (ResponseCode.SYSTEM_ERROR, status.name))
        core: Any = SimpleNamespace(store=store)
        self.answers = ShortAnswers(core, intake)  # type: ignore[arg-type]

    def when_durable(self, _result: PutResult, tell: Callable[[PutStatus], None]) -> None:
        self.tell = tell
        if self.at_once is not None:
            tell(self.at_once)

    def respond(self, request: Command, answer: Command) -> None:
        self.later.append((request.opaque, answer.code))

    def given(self, *, frames: bool = False, **more: Any) -> list[Any]:
        channel: Any = self
        return list(self.answers.when_durable(channel, REQUESTS, DONE, frames=frames, **more))


def test_frames_say_success_to_all_but_one_way_requests() -> None:
    first, oneway, last = Situation(needs_wait=False).given(frames=True)
    assert oneway is None
    for frame, opaque in ((first, 1), (last, 3)):
        answer = decode_frame(memoryview(frame)[4:])
        assert (answer.code, answer.opaque, answer.flag & FLAG_RESPONSE) == (0, opaque, 1)


@pytest.mark.parametrize("frames", [True, False])
def test_a_sync_that_fails_at_once_is_told_at_once(frames: bool) -> None:
    for failure, remark in (
        (None, "UNKNOWN_ERROR"),
        (PutStatus.SERVICE_NOT_AVAILABLE, "SERVICE_NOT_AVAILABLE"),
    ):
        situation = Situation(at_once=PutStatus.UNKNOWN_ERROR)
        first, oneway, last = situation.given(frames=frames, failure=failure)
        assert (first.code, first.remark) == (last.code, last.remark) == (1, remark)
        assert oneway is None
        assert not situation.later


def test_what_is_stored_but_not_synced_in_time_is_a_success() -> None:
    first, _oneway, last = Situation(at_once=PutStatus.FLUSH_DISK_TIMEOUT).given()
    assert (first.code, last.code) == (0, 0)


def test_answers_follow_a_sync_that_lasts() -> None:
    for status, code in ((PutStatus.PUT_OK, 0), (PutStatus.UNKNOWN_ERROR, 1)):
        situation = Situation()
        assert situation.given(frames=True) == [None, None, None]
        situation.tell(status)
        assert situation.later == [(1, code), (2, code), (3, code)]
