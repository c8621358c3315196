"""What holds for every channel, over a stream and inside one process."""

from __future__ import annotations

import logging
import math

import pytest
import trio
import trio.testing

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import (
    BusyError,
    ClosedError,
    ConnectError,
    FieldError,
    LocalProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.remoting.channel import Channel, ChannelLimits, PendingCall
from rocketmq_sdk.remoting.dispatch import Dispatcher

ECHO, HOLD, FAIL, SLOW, UNKNOWN = 10, 11, 12, 13, 9999


class Serving:
    """A server whose held requests the test answers."""

    def __init__(self) -> None:
        self.held: list[tuple[Channel, Command]] = []
        self.seen: list[Command] = []
        self.dispatcher = Dispatcher(
            {ECHO: self.echo, HOLD: self.hold, FAIL: self.fail, SLOW: self.slow},
            {77: "not here, on purpose"},
        )

    def echo(self, channel: Channel, command: Command) -> Command:
        self.seen.append(command)
        return Command.response(0, body=command.body)

    def hold(self, channel: Channel, command: Command) -> None:
        self.held.append((channel, command))

    def fail(self, channel: Channel, command: Command) -> Command:
        if command.body == b"busy":
            raise BusyError(ResponseCode.SYSTEM_BUSY, "later")
        if command.body == b"field":
            raise FieldError("X.y is no number")
        raise KeyError("boom")

    def slow(self, channel: Channel, command: Command):
        async def work() -> Command | None:
            await trio.sleep(2)
            if command.body == b"fail":
                raise ValueError("late boom")
            if command.body == b"none":
                self.held.append((channel, command))
                return None
            return Command.response(0, body=b"slow")

        return work

    def answer_held(self) -> None:
        for channel, command in self.held:
            channel.respond(command, Command.response(0, body=b"late " + command.body))
        self.held.clear()


@pytest.mark.parametrize("encoding", list(HeaderEncoding))
async def test_call_and_answer_in_the_same_encoding(link, autojump_clock, encoding):
    serving = Serving()
    async with link(serving.dispatcher) as (near, _):
        with trio.fail_after(5):
            command = Command(ECHO, ext_fields={"a": "1"}, body=b"x", encoding=encoding)
            answer = await near.call(command, 3)
    assert (answer.code, answer.body, answer.opaque, answer.is_response) == (
        0,
        b"x",
        command.opaque,
        True,
    )
    assert answer.encoding is encoding is serving.seen[0].encoding
    assert serving.seen[0] is not command
    assert serving.seen[0].ext_fields is not command.ext_fields


async def test_a_call_is_a_checkpoint(link):
    async with link() as (near, _):
        with trio.fail_after(5), trio.testing.assert_checkpoints():
            await near.call(Command(ECHO), 3)


async def test_codes_nobody_serves(link, autojump_clock):
    async with link(Serving().dispatcher) as (near, _):
        with trio.fail_after(5):
            unknown = await near.call(Command(UNKNOWN), 3)
            refused = await near.call(Command(77), 3)
    assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
    assert (refused.code, refused.remark) == (3, "not here, on purpose")


async def test_what_a_handler_raises_is_answered(link, autojump_clock, caplog):
    async with link(Serving().dispatcher) as (near, _):
        with trio.fail_after(5):
            bug = await near.call(Command(FAIL), 3)
            busy = await near.call(Command(FAIL, body=b"busy"), 3)
            field = await near.call(Command(FAIL, body=b"field"), 3)
            assert (await near.call(Command(ECHO), 3)).code == 0
    assert (bug.code, bug.remark) == (1, "KeyError: 'boom'")
    assert (busy.code, busy.remark) == (2, "later")
    assert (field.code, field.remark) == (1, "X.y is no number")
    assert [
        record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR
    ] == [True]


async def test_a_handler_without_dispatcher_may_raise_too(link, autojump_clock):
    def bad(channel, command):
        raise KeyError("boom")

    async with link(bad, bad) as (near, far):
        with trio.fail_after(5):
            assert (await near.call(Command(ECHO), 3)).code == 1
            assert (await far.call(Command(ECHO), 3)).code == 1


async def test_continuations(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher) as (near, far):
        with trio.fail_after(60):
            begin = trio.current_time()
            good = near.submit(Command(SLOW), 10)
            bad = near.submit(Command(SLOW, body=b"fail"), 10)
            later = near.submit(Command(SLOW, body=b"none"), 10)
            assert (await near.call(Command(ECHO), 10)).code == 0
            assert trio.current_time() == begin
            assert far.statistics().requests_in_flight == 3
            assert (await good.wait()).body == b"slow"
            assert ((await bad.wait()).code, bad.response.remark) == (1, "ValueError: late boom")
            await trio.sleep(1)
            assert not later.done
            serving.answer_held()
            assert (await later.wait()).body == b"late none"
            assert far.statistics().requests_in_flight == 0


async def test_answer_later_once(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher) as (near, far):
        with trio.fail_after(60):
            call = near.submit(Command(HOLD, body=b"x"), 10)
            await trio.sleep(1)
            channel, request = serving.held[0]
            assert channel is far
            assert not call.done
            serving.answer_held()
            far.respond(request, Command.response(0, body=b"twice"))
            assert (await call.wait()).body == b"late x"
            await trio.sleep(1)
            assert near.statistics().late_answers == 0


async def test_answering_inside_the_handler(link, autojump_clock):
    def both(channel, command):
        channel.respond(command, Command.response(0, body=b"first"))
        channel.respond(command, Command.response(0, body=b"second"))
        return Command.response(0, body=b"third") if command.body else None

    async with link(both) as (near, far):
        with trio.fail_after(60):
            assert (await near.call(Command(ECHO), 3)).body == b"first"
            assert (await near.call(Command(ECHO, body=b"x"), 3)).body == b"first"
            await trio.sleep(1)
            assert near.statistics().late_answers == far.statistics().requests_in_flight == 0


async def test_oneway_is_never_answered(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher) as (near, far):
        with trio.fail_after(60):
            for code in (ECHO, FAIL, UNKNOWN, SLOW, HOLD):
                near.send_oneway(Command.request(code, oneway=True))
            await trio.sleep(5)
            serving.answer_held()
            await trio.sleep(1)
            assert near.statistics().late_answers == 0
            assert far.statistics().requests_in_flight == 0
            assert serving.seen[0].is_oneway


async def test_deadline_then_late_answer(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher) as (near, _):
        with trio.fail_after(60):
            begin = trio.current_time()
            long = near.submit(Command(HOLD, body=b"long"), 20)
            with pytest.raises(RequestTimeoutError, match="server:1") as caught:
                await near.call(Command(HOLD), 3)
            assert caught.value.outcome_unknown
            assert trio.current_time() - begin == pytest.approx(3)
            serving.answer_held()
            assert (await long.wait()).body == b"late long"
            await trio.sleep(0.1)
            assert near.statistics().late_answers == 1
            assert (await near.call(Command(ECHO), 3)).code == 0


async def test_deadlines_fire_in_their_order_and_forever_is_allowed(link, autojump_clock):
    serving = Serving()
    fired: list[tuple[object, float]] = []
    async with link(serving.dispatcher) as (near, _):
        with trio.fail_after(600):
            begin = trio.current_time()
            for timeout in (30, 5, 20, 1, math.inf):
                near.submit(
                    Command(HOLD),
                    timeout,
                    lambda call: fired.append((call.timeout, trio.current_time() - begin)),
                )
            await trio.sleep(25)
            assert fired == [(1, pytest.approx(1)), (5, pytest.approx(5)), (20, pytest.approx(20))]
            near.abort("enough")
            await near.wait_closed()
    assert {timeout for timeout, _ in fired[3:]} == {30, math.inf}


async def test_a_cancelled_caller_disturbs_nobody(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher) as (near, _):
        with trio.fail_after(60):
            other = near.submit(Command(HOLD, body=b"other"), 20)
            with trio.move_on_after(1) as scope:
                await near.call(Command(HOLD), 10)
            assert scope.cancelled_caught
            assert near.statistics().in_flight == 1
            serving.answer_held()
            assert (await other.wait()).body == b"late other"
            await trio.sleep(0.1)
            assert near.statistics().late_answers == 1
            assert not near.closed


async def test_forget(link, autojump_clock):
    serving = Serving()
    called: list[PendingCall] = []
    async with link(serving.dispatcher) as (near, _):
        with trio.fail_after(60):
            call = near.submit(Command(HOLD), 10, called.append)
            call.forget()
            with pytest.raises(ClosedError):
                await call.wait()
            serving.answer_held()
            await trio.sleep(20)
            assert (called, near.statistics().in_flight) == ([], 0)


async def test_callbacks_and_their_failures(link, autojump_clock, caplog):
    done: list[object] = []

    def fail(call: PendingCall) -> None:
        done.append(call.response)
        raise ZeroDivisionError("in a callback")

    async with link() as (near, _):
        with trio.fail_after(60):
            near.submit(Command(ECHO), 3, fail)
            assert (await near.call(Command(ECHO), 3)).code == 0
            await trio.sleep(1)
    assert len(done) == 1
    assert any(
        record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records
    )


async def test_a_chain_of_callbacks_does_not_grow_the_stack(link, autojump_clock):
    finished = trio.Event()
    number = 0

    async with link() as (near, _):

        def again(call: PendingCall) -> None:
            nonlocal number
            assert call.response is not None
            number += 1
            if number == 5000:
                finished.set()
            else:
                near.submit(Command(ECHO), 3, again)

        with trio.fail_after(60):
            near.submit(Command(ECHO), 3, again)
            await finished.wait()


async def test_no_callback_runs_inside_a_handler(link, autojump_clock):
    inside = False
    held: list[tuple[Channel, Command]] = []
    wrong: list[bool] = []

    def handler(channel: Channel, command: Command) -> Command | None:
        nonlocal inside
        if command.code == HOLD:
            held.append((channel, command))
            return None
        inside = True
        held[0][0].respond(held[0][1], Command.response(0))
        channel.submit(Command(40), 3)
        inside = False
        return Command.response(0)

    def client(channel: Channel, command: Command) -> Command:
        wrong.append(inside)
        return Command.response(0)

    async with link(handler, client) as (near, _):
        with trio.fail_after(60):
            near.submit(Command(HOLD), 3, lambda call: wrong.append(inside))
            await near.call(Command(ECHO), 3)
            await trio.sleep(1)
    assert wrong == [False, False]


async def test_both_directions_at_once(link, autojump_clock):
    answers: list[bytes] = []

    async def ask(channel: Channel, name: bytes) -> None:
        for number in range(100):
            answer = await channel.call(Command(ECHO, body=b"%s %d" % (name, number)), 5)
            answers.append(answer.body)

    async with link() as (near, far):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(ask, near, b"near")
                    nursery.start_soon(ask, far, b"far")
    assert len(answers) == 1000
    assert len(set(answers)) == 200


async def test_a_thousand_calls(link, autojump_clock):
    async with link() as (near, _):
        with trio.fail_after(60):
            calls = [near.submit(Command(ECHO, body=b"%d" % number), 5) for number in range(1000)]
            assert [(await call.wait()).body for call in calls] == [
                b"%d" % number for number in range(1000)
            ]


async def test_limit_of_own_calls(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher, limits=ChannelLimits(max_in_flight=3)) as (near, _):
        with trio.fail_after(60):
            calls = [near.submit(Command(HOLD), 10) for _ in range(3)]
            with pytest.raises(TooManyRequestsError):
                near.submit(Command(ECHO), 10)
            near.send_oneway(Command(ECHO))
            await trio.sleep(1)
            assert len(serving.seen) == 1
            serving.answer_held()
            for call in calls:
                await call.wait()
            assert (await near.call(Command(ECHO), 3)).code == 0


async def test_limit_of_open_requests(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher, server_limits=ChannelLimits(max_requests_in_flight=2)) as (
        near,
        _,
    ):
        with trio.fail_after(60):
            held = [near.submit(Command(HOLD), 10), near.submit(Command(SLOW), 10)]
            over = await near.call(Command(ECHO), 3)
            assert over.code == 2
            assert over.remark.startswith("[OVERLOAD]")
            assert serving.seen == []
            serving.answer_held()
            for call in held:
                assert (await call.wait()).code == 0
            assert (await near.call(Command(ECHO), 3)).code == 0


async def test_too_long_a_request_is_not_sent(link, autojump_clock):
    async with link(limits=ChannelLimits(max_frame=10_000)) as (near, _):
        with trio.fail_after(60):
            with pytest.raises(LocalProtocolError):
                near.submit(Command(ECHO, body=b"x" * 10_000), 3)
            with pytest.raises(LocalProtocolError):
                near.submit(Command(ECHO, ext_fields={"a": "x" * 10_000}), 3)
            assert near.statistics().in_flight == 0
            assert len((await near.call(Command(ECHO, body=b"x" * 9_000), 3)).body) == 9_000


async def test_too_long_an_answer_becomes_an_error(link, autojump_clock):
    def long(channel: Channel, command: Command) -> Command:
        return Command.response(0, body=b"x" * 20_000)

    async with link(long, limits=ChannelLimits(max_frame=10_000)) as (near, _):
        with trio.fail_after(60):
            answer = await near.call(Command(ECHO), 3)
    assert answer.code == 1
    assert "10000" in answer.remark


@pytest.mark.parametrize("who", ["near", "far"])
@pytest.mark.parametrize("how", ["aclose", "abort"])
async def test_closing_during_calls(link, autojump_clock, who, how):
    serving = Serving()
    told: list[str] = []
    async with link(serving.dispatcher, lambda channel, command: None) as (near, far):
        with trio.fail_after(60):
            near.on_close += [lambda channel: 1 / 0, lambda channel: told.append("near")]
            far.on_close.append(lambda channel: told.append("far"))
            calls = [near.submit(Command(HOLD), 30), far.submit(Command(HOLD), 30)]
            await trio.sleep(1)
            closing = near if who == "near" else far
            if how == "aclose":
                await closing.aclose()
            else:
                closing.abort("a test")
            for call in calls:
                with pytest.raises(ConnectError) as caught:
                    await call.wait()
                assert caught.value.outcome_unknown
            await near.wait_closed()
            await far.wait_closed()
            assert sorted(told) == ["far", "near"]
            for channel in (near, far):
                assert channel.closed
                with pytest.raises(ConnectError) as caught:
                    channel.submit(Command(ECHO), 3)
                assert not caught.value.outcome_unknown
                with pytest.raises(ConnectError):
                    channel.send_oneway(Command(ECHO))
            serving.answer_held()  # to a closed channel: nothing happens


async def test_what_is_queued_leaves_before_closing(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher) as (near, _):
        with trio.fail_after(60):
            for _ in range(10):
                near.send_oneway(Command(ECHO, body=b"x" * 100_000))
            await near.aclose()
            await trio.sleep(1)
    assert len(serving.seen) == 10


async def test_opaque_goes_round_and_skips_what_is_in_flight(link, autojump_clock):
    serving = Serving()
    async with link(serving.dispatcher) as (near, _):
        with trio.fail_after(60):
            near.calls._opaque = 0x7FFFFFFE
            first = [near.submit(Command(HOLD), 10) for _ in range(3)]
            near.calls._opaque = 0x7FFFFFFE
            commands = [Command(ECHO), Command(ECHO)]
            for command in commands:
                assert (await near.call(command, 3)).opaque == command.opaque
            assert [call.opaque for call in first] == [0x7FFFFFFE, 0x7FFFFFFF, -0x80000000]
            assert [command.opaque for command in commands] == [-0x7FFFFFFF, -0x7FFFFFFE]


async def test_the_heap_of_deadlines_stays_small(link, autojump_clock):
    async with link() as (near, _):
        with trio.fail_after(60):
            for _ in range(2000):
                await near.call(Command(ECHO), 30)
            assert len(near.calls._heap) <= 70


async def test_a_call_has_one_waiter(link, autojump_clock):
    async with link(Serving().dispatcher) as (near, _):
        with trio.fail_after(60):
            call = near.submit(Command(HOLD), 30)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call.wait)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(trio.BusyResourceError):
                    await call.wait()
                nursery.cancel_scope.cancel()
