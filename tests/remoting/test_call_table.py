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
from rocketmq_sdk.remoting.channel import PendingCall, Sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from trio.testing import MockClock

FORM = FrameTemplate(Command(310, ext_fields={"a": "%s %d", "b": "", "c": ""}), ("b", "c")).form


def table(limit: int = 100, first: int = 0) -> CallTable:
    calls = CallTable(limit, "peer:1", 1, lambda _number, _moment: None)
    calls._opaque = first
    return calls


def test_opaques_are_free_distinct_and_within_the_limit(autojump_clock: MockClock) -> None:
    async def main() -> None:
        calls = table(limit=8)
        assert list(calls.opaques(3)) == [0, 1, 2]
        for taken in (4, 6):
            calls.add(taken, math.inf, None)
        assert list(calls.opaques(100)) == [3, 5, 7, 8, 9, 10]
        calls = table(first=OPAQUE_MAX - 1)
        assert list(calls.opaques(4)) == [OPAQUE_MAX - 1, OPAQUE_MAX, OPAQUE_MIN, OPAQUE_MIN + 1]
        calls = table(limit=1)
        calls.add(0, math.inf, None)
        assert list(calls.opaques(2)) == []

    trio.run(main, clock=autojump_clock)


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
        found = calls.add_run(calls.opaques(len(requests)), requests, sweep)
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
