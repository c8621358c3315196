"""Numbers of requests that leave together, and the ends of their calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.frame_template import FrameTemplate, header_of
from rocketmq_sdk.protocol.header_json import decode_json_header
from rocketmq_sdk.remoting.call_table import OPAQUE_MAX, OPAQUE_MIN, CallTable
from rocketmq_sdk.remoting.channel import ChannelLimits, PendingCall, Sweep
from rocketmq_sdk.remoting.form_requests import begin_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from trio.testing import MockClock

FORM = FrameTemplate(Command(310, ext_fields={"a": "%s %d", "b": "", "c": ""}), ("b", "c")).form


def table(limit: int = 100, first: int = 0) -> CallTable:
    calls = CallTable(limit, "peer:1", 1, lambda _number, _moment: None)
    calls._opaque, calls.due = first, math.inf
    return calls


async def test_calls_in_runs_are_overdue_each_at_its_time(autojump_clock: MockClock) -> None:
    calls, noted = table(first=OPAQUE_MAX - 5), Noted()
    now = trio.current_time()
    failed: list[object] = []
    calls.add(OPAQUE_MAX - 3, 2.5, lambda call: failed.append(call.opaque))
    for seconds in ([3.0, 1.0, math.inf, 4.0], [2.0, 5.0, 2.0], [math.inf]):
        requests = [(FORM, ("", ""), b"", now, timeout, timeout) for timeout in seconds]
        _frames, found, unsent = begin_requests(calls, iter(requests), noted, ChannelLimits(), 7)
        assert (len(found), unsent > 7) == (len(seconds), True)
    assert calls.due == now + 1.0
    assert sorted(calls.slots)[0] == OPAQUE_MIN
    assert not calls.is_overdue(now + 0.9)
    assert calls.is_overdue(now + 1.0)
    assert calls.fail_overdue(now + 1.0) == now + 2.0
    assert noted.ends == [[1.0]]
    assert calls.fail_overdue(now + 2.7) == now + 3.0
    assert (noted.ends[1:], failed) == ([[2.0], [2.0]], [OPAQUE_MAX - 3])
    [three] = [opaque for opaque, call in calls.slots.items() if call.tag == 3.0]
    calls.answer(answer(three))
    assert not calls.is_overdue(now + 3.5)
    assert calls.is_overdue(now + 4.0)
    assert calls.fail_overdue(now + 6.0) == math.inf
    assert noted.ends[3:] == [[3.0], [4.0], [5.0]]
    assert [call.tag for call in calls.slots.values()] == [math.inf, math.inf]


async def test_the_heap_stays_small_where_runs_are_answered_long_before_their_deadlines(
    autojump_clock: MockClock,
) -> None:
    calls, noted = table(first=OPAQUE_MAX - 1000), Noted()
    request = FORM, ("", ""), b"", trio.current_time(), 3600.0, None
    for _ in range(2000):
        _frames, found, _unsent = begin_requests(
            calls, iter([request, request]), noted, ChannelLimits(), 0
        )
        calls.answer_from([answer(call.opaque) for call in found[1:]], 0)
        calls.answer_from([answer(call.opaque) for call in found[:1]], 0)
        assert len(calls._heap) <= 70


async def test_limits_of_requests_that_leave_together(autojump_clock: MockClock) -> None:
    def begun(calls: CallTable, bodies: list[bytes], unsent: int = 0, **limits: int) -> int:
        requests = ((FORM, ("", ""), body, 0.0, 1.0, None) for body in bodies)
        found = begin_requests(calls, requests, Noted(), ChannelLimits(**limits), unsent)
        assert len(found[0]) == len(found[1])
        return len(found[1])

    calls = table(limit=4)
    calls.add(1, 1.0, None)
    assert begun(calls, [b""] * 5) == 3
    assert sorted(calls.slots) == [0, 1, 2, 3]
    assert begun(calls, [b""]) == 0
    assert begun(table(), [b"", b"", bytes(900), b""], max_frame=900) == 2
    assert begun(table(), [bytes(500)] * 5, max_unsent_bytes=1000) == 2
    assert begun(table(), [b""], unsent=1001, max_unsent_bytes=1000) == 0


class Noted(Sweep):
    """Notes how calls have ended; `fails` is raised then."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.ends: list[list[object]] = []
        self._fails = fails

    def __call__(self, call: PendingCall, /) -> None:
        self.together([call])

    def together(self, calls: Sequence[PendingCall], /) -> None:
        self.ends.append([call.tag for call in calls])
        if self._fails is not None:
            raise self._fails


def answer(opaque: int) -> Command:
    return Command(0, flag=FLAG_RESPONSE, opaque=opaque)


async def test_calls_of_a_sweep_end_once_and_together(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls, noted, failing = table(), Noted(), Noted(KeyError("sweep"))
    now = trio.current_time()
    alone = calls.add(99, 5.0, None)
    for sweep, tags in ((failing, "xy"), (noted, "abcdef")):
        requests = [(FORM, ("", ""), b"", now, 5.0 + ord(tag), tag) for tag in tags]
        _frames, found, _unsent = begin_requests(calls, requests, sweep, ChannelLimits(), 0)
        assert [call.tag for call in found] == list(tags)
    found[1].forget()  # b
    commands = [answer(opaque) for opaque in (3, 2, 99, 0, 3, 4, 1)]
    assert calls.answer_from([*commands, Command(40), answer(5)], 1) == len(commands)
    assert noted.ends == [["a", "c"]]
    assert calls.answer_from([answer(4), answer(5), answer(7)], 0) == 3
    assert (noted.ends, failing.ends) == ([["a", "c"], ["d", "f"]], [["x", "y"]])
    assert "callback of finished calls failed" in caplog.text
    assert alone.response == answer(99)
    assert calls.late_answers == 2
    calls.fail_all(lambda: ConnectError("gone", address="peer:1"))
    assert noted.ends[2:] == [["e"]]
    assert not calls.slots


def test_headers_from_pieces_and_from_the_form_are_the_same() -> None:
    for values in (("%s", "ö%d"), ("", '\\"')):
        header = header_of(FORM, values, -7)
        assert header == (FORM % (*values, -7)).encode()
        assert decode_json_header(header, b"").ext_fields["a"] == "%s %d"
