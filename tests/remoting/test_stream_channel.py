"""Channels over streams: broken input, slow peers, silence, order, and bytes in pieces
of any size.
"""

from __future__ import annotations

import logging
import random

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import (
    ConnectError,
    LocalProtocolError,
    RequestTimeoutError,
    RocketMQError,
    StoreFullError,
    TooManyRequestsError,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.channel import ChannelLimits
from rocketmq_sdk.remoting.stream import StreamChannel
from rocketmq_sdk.transport.memory import MemoryNetwork, MemoryStream
from support.stream_channels import open_stream_channel


def echo(_channel, command: Command) -> Command:
    return Command.response(0, body=command.body)


async def stream_pair(capacity: int = 256 * 1024) -> tuple[MemoryStream, MemoryStream]:
    network = MemoryNetwork(capacity=capacity)
    listener = network.listen("server:1")
    return await network.connect("server:1"), await listener.accept()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "announces"),
        (b"\x7f\xff\xff\xff\0\0\0\0", "announces"),
        (b"\0\0\0\3abc", "announces"),
        (b"\0\0\0\x08\0\0\0\x04nope", "JSON"),
        (b"\0\0\0\x08\x07\0\0\x04nope", "encoding 7"),
        (encode_frame(Command(10))[:-3], "into a frame"),
    ],
    ids=["http", "too long", "too short", "no json", "unknown encoding", "end inside a frame"],
)
async def test_broken_input_closes_only_that_connection(autojump_clock, caplog, data, reason):
    bad, bad_far = await stream_pair()
    good, good_far = await stream_pair()
    async with (
        open_stream_channel(bad_far, echo, remote_address="bad-peer:7") as broken,
        open_stream_channel(good_far, echo),
        open_stream_channel(good, echo) as near,
    ):
        with trio.fail_after(30):
            call = broken.submit(Command(10), 20)
            await bad.send_all(data)
            if reason == "into a frame":
                await bad.send_eof()
            with pytest.raises(ConnectError) as caught:
                await call.wait()
            assert caught.value.outcome_unknown
            await broken.wait_closed()
            assert reason in broken.close_reason
            assert (await near.call(Command(10), 3)).code == 0
    warnings = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert len(warnings) == 1
    assert "bad-peer:7" in warnings[0]


async def test_commands_in_front_of_garbage_are_answered(autojump_clock):
    one, two = await stream_pair()
    async with open_stream_channel(two, echo) as far:
        with trio.fail_after(30):
            await one.send_all(encode_frame(Command(10, opaque=5)) + b"\xff" * 8)
            assert len(await one.receive_some(1000)) > 8
            await far.wait_closed()


async def test_half_a_frame_and_silence(autojump_clock):
    one, two = await stream_pair()
    async with open_stream_channel(two, echo) as far:
        with trio.fail_after(300):
            begin = trio.current_time()
            await one.send_all(encode_frame(Command(10))[:20])
            await far.wait_closed()
            assert trio.current_time() - begin == pytest.approx(120, abs=1)


async def test_traffic_in_either_direction_keeps_it_open(autojump_clock):
    one, two = await stream_pair()
    async with open_stream_channel(two, echo) as far, open_stream_channel(one, echo) as near:
        with trio.fail_after(3000):
            for _ in range(10):
                await trio.sleep(100)
                near.send_oneway(Command(10))
            assert not far.closed
            begin = trio.current_time()
            await near.wait_closed()
            assert trio.current_time() - begin == pytest.approx(120, abs=1)


async def test_a_peer_that_never_reads_is_cut(autojump_clock):
    one, two = await stream_pair(capacity=1000)
    limits = ChannelLimits(high_water=100_000, low_water=10_000, stall_timeout=20)
    served = 0

    def serve(channel, command):
        nonlocal served
        served += 1
        return Command.response(0, body=b"x" * 10_000)

    async with (
        open_stream_channel(two, serve, limits=limits, pause_reading=True) as far,
        trio.open_nursery() as nursery,
    ):

        async def ask_without_reading() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await one.send_all(encode_frame(Command(10)) * 10_000)

        nursery.start_soon(ask_without_reading)
        with trio.fail_after(100):
            begin = trio.current_time()
            await far.wait_closed()
            assert 20 <= trio.current_time() - begin < 45
    assert "took none" in far.close_reason
    assert served <= 12  # it stopped reading: high water is reached with 10 answers


async def test_a_slow_reader_is_waited_for(autojump_clock):
    one, two = await stream_pair(capacity=1000)
    limits = ChannelLimits(high_water=20_000, low_water=5_000, stall_timeout=30)
    async with open_stream_channel(
        two,
        lambda channel, command: Command.response(0, body=b"x" * 10_000),
        limits=limits,
        pause_reading=True,
    ) as far:
        with trio.fail_after(1000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.send_all, encode_frame(Command(10)) * 20)
                received = 0
                while received < 20 * 10_000:
                    await trio.sleep(0.5)
                    assert far.unsent_bytes() < 40_000
                    received += len(await one.receive_some(100_000))
        assert not far.closed


async def test_two_peers_that_both_send_much_never_wait_for_each_other(autojump_clock):
    one, two = await stream_pair(capacity=1000)
    limits = ChannelLimits(high_water=10_000, low_water=1000)
    async with (
        open_stream_channel(two, echo, limits=limits, pause_reading=True) as far,
        open_stream_channel(one, echo, limits=limits) as near,
    ):
        with trio.fail_after(100):
            calls = [
                channel.submit(Command(10, body=b"x" * 5000), 90)
                for _ in range(200)
                for channel in (near, far)
            ]
            for call in calls:
                assert len((await call.wait()).body) == 5000


async def test_limit_of_unsent_bytes(autojump_clock):
    one, _two = await stream_pair(capacity=10)
    async with open_stream_channel(
        one, echo, limits=ChannelLimits(max_unsent_bytes=10_000)
    ) as near:
        near.send_oneway(Command(10, body=b"x" * 20_000))
        with pytest.raises(TooManyRequestsError):
            near.send_oneway(Command(10))
        with pytest.raises(TooManyRequestsError):
            near.submit(Command(10), 3)
        near.abort("enough")


async def test_drained(autojump_clock):
    one, two = await stream_pair(capacity=1000)
    async with open_stream_channel(one, echo, limits=ChannelLimits(low_water=5000)) as near:
        with trio.fail_after(30):
            near.send_oneway(Command(10, body=b"x" * 400_000))
            with trio.move_on_after(5) as scope:
                await near.drained()
            assert scope.cancelled_caught
            async with trio.open_nursery() as nursery:
                nursery.start_soon(near.drained)
                while near.unsent_bytes() > 5000:
                    await two.receive_some(10_000)
        near.abort("enough")


async def test_closing_waits_for_the_peer_only_for_a_while(autojump_clock):
    one, _two = await stream_pair(capacity=10)
    async with open_stream_channel(one, echo) as near:
        near.send_oneway(Command(10, body=b"x" * 1000))
        begin = trio.current_time()
        with trio.fail_after(30):
            await near.aclose()
        assert trio.current_time() - begin == pytest.approx(1.0, abs=0.1)


async def test_a_cancelled_close_closes(autojump_clock):
    one, _two = await stream_pair(capacity=10)
    async with open_stream_channel(one, echo) as near:
        near.send_oneway(Command(10, body=b"x" * 1000))
        with trio.move_on_after(0.1):
            await near.aclose()
        with trio.fail_after(5):
            await near.wait_closed()


async def test_answers_leave_although_the_peer_ended_its_side(autojump_clock):
    one, two = await stream_pair()
    async with open_stream_channel(two, echo) as far:
        with trio.fail_after(30):
            await one.send_all(encode_frame(Command(10, opaque=3)))
            await one.send_eof()
            assert b'"opaque":3' in await one.receive_some(1000)
            await far.wait_closed()
            assert far.close_reason == "the peer closed it"


async def test_a_dead_line_is_noticed_by_overdue_calls(autojump_clock):
    one, _two = await stream_pair()
    async with open_stream_channel(one, echo) as near:
        with trio.fail_after(300):
            begin = trio.current_time()
            while not near.closed:
                with pytest.raises((RequestTimeoutError, ConnectError)):
                    await near.call(Command(10), 3)
                await trio.sleep(1)
            assert trio.current_time() - begin == pytest.approx(30, abs=1)
    assert "overdue" in near.close_reason


async def test_one_overdue_call_ends_long_waits_on_a_dead_line(autojump_clock):
    one, _two = await stream_pair()
    async with open_stream_channel(one, echo, limits=ChannelLimits(silence_timeout=6)) as near:
        with trio.fail_after(300):
            poll = near.submit(Command(11), 30)
            await trio.sleep(10)
            begin = trio.current_time()
            with pytest.raises(RequestTimeoutError):
                await near.call(Command(34), 3)
            assert not near.closed
            with pytest.raises(ConnectError, match="overdue"):
                await poll.wait()
            assert trio.current_time() - begin == pytest.approx(6, abs=0.1)


@pytest.mark.parametrize("late", [3.5, 5.5])
async def test_a_peer_that_answers_late_is_not_taken_for_dead(autojump_clock, late):
    """The silence before the call does not count, and one byte after it is a sign of
    life, whatever it answers.
    """
    one, two = await stream_pair()

    def serve(_channel, command):
        async def answer():
            await trio.sleep(late if command.code == 34 else 25)
            return Command.response(0)

        return answer

    async with (
        open_stream_channel(two, serve),
        open_stream_channel(one, echo, limits=ChannelLimits(silence_timeout=6)) as near,
    ):
        with trio.fail_after(300):
            await trio.sleep(60)
            poll = near.submit(Command(11), 30)
            with pytest.raises(RequestTimeoutError):
                await near.call(Command(34), 3)
            assert (await poll.wait()).code == 0
            assert not near.closed


async def test_bytes_that_have_not_left_are_no_reason_to_expect_an_answer(autojump_clock):
    one, _two = await stream_pair(capacity=100)
    async with open_stream_channel(
        one, echo, limits=ChannelLimits(silence_timeout=6, stall_timeout=20)
    ) as near:
        with trio.fail_after(300):
            begin = trio.current_time()
            with pytest.raises(RequestTimeoutError):
                await near.call(Command(10, body=b"x" * 1000), 3)
            await near.wait_closed()
            assert trio.current_time() - begin == pytest.approx(20, abs=1)
    assert "took none" in near.close_reason


async def test_a_cut_line_fails_calls(autojump_clock):
    one, two = await stream_pair()
    async with (
        open_stream_channel(two, lambda channel, command: None),
        open_stream_channel(one, echo) as near,
    ):
        with trio.fail_after(30):
            call = near.submit(Command(10), 20)
            await trio.sleep(1)
            one.cut()
            with pytest.raises(ConnectError) as caught:
                await call.wait()
            assert caught.value.outcome_unknown


async def test_run_cancelled_before_its_first_step_closes(autojump_clock):
    one, two = await stream_pair()
    channel = StreamChannel(one, echo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.run)
        nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        await channel.wait_closed()
        assert await two.receive_some(10) == b""


async def test_answers_to_one_chunk_leave_together():
    one, two = await stream_pair()
    async with open_stream_channel(two, echo):
        with trio.fail_after(5):
            await one.send_all(
                b"".join(encode_frame(Command(10, opaque=number)) for number in range(50))
            )
            assert (await one.receive_some(1_000_000)).count(b'"opaque"') == 50


class Holds:
    """A server that takes requests together, and answers none of them yet."""

    def __call__(self, _channel, _command: Command) -> None:
        return None

    def together(self, _code: int):
        return lambda _channel, commands: [None] * len(commands)


async def test_requests_that_are_served_together_keep_the_limit_of_open_ones():
    one, two = await stream_pair()
    limits = ChannelLimits(max_requests_in_flight=10)
    async with open_stream_channel(two, Holds(), limits=limits) as channel:
        with trio.fail_after(5):
            await one.send_all(
                b"".join(encode_frame(Command(10, opaque=number)) for number in range(50))
            )
            assert (await one.receive_some(1_000_000)).count(b"[OVERLOAD]10 ") == 40
            assert channel.statistics().requests_in_flight == 10


async def test_a_command_that_cannot_be_written_disturbs_nobody(autojump_clock):
    one, two = await stream_pair()
    async with open_stream_channel(two, echo), open_stream_channel(one, echo) as near:
        with trio.fail_after(30):
            with pytest.raises(LocalProtocolError):
                await near.call(
                    Command(10, ext_fields={"a" * 40_000: ""}, encoding=HeaderEncoding.ROCKETMQ), 3
                )
            assert (near.statistics().in_flight, (await near.call(Command(10), 3)).code) == (0, 0)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1 << 32),
    capacity=st.integers(1, 3000),
    encoding=st.sampled_from(list(HeaderEncoding)),
)
def test_everything_at_once_in_any_pieces(seed: int, capacity: int, encoding: HeaderEncoding):
    async def main() -> None:
        rand = random.Random(seed)
        one, two = await stream_pair(capacity)

        def serve(channel, command):
            kind = command.ext_fields["kind"]
            answer = Command.response(0, body=command.body)
            if kind == "now":
                return answer

            async def later() -> Command | None:
                await trio.sleep(rand.random() * 4)
                if kind == "respond":
                    channel.respond(command, answer)
                    return None
                return answer

            return later

        async def ask(channel, number: int) -> None:
            await trio.sleep(rand.random())
            body = b"%d " % number + b"x" * rand.randrange(min(40 * capacity, 2000))
            command = Command(
                10,
                ext_fields={"kind": rand.choice(["now", "later", "respond"])},
                body=body,
                encoding=encoding,
            )
            with trio.move_on_after(rand.choice([0.5, 100])):
                try:
                    answer = await channel.call(command, rand.choice([1, 90]))
                except RequestTimeoutError:
                    return
                assert answer.body == body
                assert answer.encoding is encoding
                answered.append(number)

        answered: list[int] = []
        async with (
            open_stream_channel(two, serve, pause_reading=True) as far,
            open_stream_channel(one, serve) as near,
        ):
            with trio.fail_after(1000):
                async with trio.open_nursery() as nursery:
                    for number in range(60):
                        nursery.start_soon(ask, rand.choice([near, far]), number)
                await trio.sleep(10)
            for channel in (near, far):
                numbers = channel.statistics()
                assert (numbers.in_flight, numbers.requests_in_flight, numbers.unsent_bytes) == (
                    0,
                    0,
                    0,
                )
                assert not channel.closed
        assert answered

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_late_answers_to_a_peer_that_does_not_read_end_the_connection(autojump_clock):
    requests = []

    def hold(channel, command):
        requests.append(command)

    near, far = trio.testing.memory_stream_pair()
    limits = ChannelLimits(max_unsent_bytes=100_000, stall_timeout=1e9)
    async with open_stream_channel(far, hold, limits=limits) as server:
        await near.send_all(encode_frame(Command(10)) * 50)
        with trio.fail_after(60):
            while len(requests) < 50:
                await trio.sleep(0.1)
        for request in requests:
            server.respond(request, Command.response(0, body=b"x" * 10_000))
        assert server.closed
        assert "late answers" in server.close_reason


class Frame:
    """A turn that notes what happens in it."""

    def __init__(self) -> None:
        self.events = []
        self.error = None

    def begin(self):
        self.events.append("begin")

    def end(self):
        self.events.append("end")
        if self.error is not None:
            raise self.error


async def test_a_turn_frames_the_requests_of_a_chunk(autojump_clock):
    turn = Frame()

    def serve(channel, command):
        turn.events.append(command.opaque)
        return Command.response(0)

    near, far = trio.testing.memory_stream_pair()
    channel = StreamChannel(far, serve, turn=turn)
    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        with trio.fail_after(60):
            await near.send_all(
                b"".join(encode_frame(Command(10, opaque=number)) for number in (1, 2, 3))
            )
            assert await near.receive_some()
        assert turn.events == ["begin", 1, 2, 3, "end"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("error", "code"), [(RocketMQError("broken"), 1), (StoreFullError("no space"), 14)]
)
@pytest.mark.parametrize("size", [4, 10_000])  # a large body is apart from its header
async def test_answers_of_a_turn_that_fails_become_errors(autojump_clock, error, code, size):
    """The connection stays, with what was queued before the turn."""
    turn = Frame()

    def serve(channel, command):
        if command.opaque == 1:
            channel.send_oneway(Command(40))
        return Command.response(0, body=bytes(size))

    near, far = trio.testing.memory_stream_pair()
    channel = StreamChannel(far, serve, turn=turn)
    client = Connection()
    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        turn.error = error
        got = []
        with trio.fail_after(60):
            await near.send_all(
                b"".join(encode_frame(Command(10, opaque=number)) for number in (1, 2))
            )
            while len(got) < 3:
                got += client.receive_commands(await near.receive_some())
        assert got[0].code == 40
        answers = [(answer.opaque, answer.code, answer.remark, answer.body) for answer in got[1:]]
        assert answers == [(1, code, str(error), b""), (2, code, str(error), b"")]
        assert channel.unsent_bytes() == 0
        turn.error = None
        with trio.fail_after(60):
            await near.send_all(encode_frame(Command(10, opaque=3)))
            assert client.receive_commands(await near.receive_some())[0].code == 0
        nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_large_bodies_through_a_socket_that_takes_a_part_at_a_time():
    """Header and body are pieces of their own: written together, cut anywhere."""
    ends = trio.socket.socketpair()
    for end in ends:
        end.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, 8192)
    near, far = (trio.SocketStream(end) for end in ends)
    sizes = [10, 5000, 4096, 4095, 70_000, 0, 20_000, 9000] * 6
    bodies = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with trio.fail_after(60):
        async with open_stream_channel(far, echo), open_stream_channel(near, echo) as client:
            calls = [client.submit(Command(10, body=body), 30) for body in bodies]
            assert [(await call.wait()).body for call in calls] == bodies
            assert client.unsent_bytes() == 0


@pytest.mark.parametrize(("crowd", "chunks"), [(1, 4), (1000, 10)])
async def test_a_chunk_of_dear_requests_gives_others_more_turns_beside_many_streams(
    crowd: int, chunks: int, autojump_clock: trio.testing.MockClock
) -> None:
    count, seen = 40, []
    turns = 0

    def handler(_channel: object, command: Command) -> Command:
        autojump_clock.jump(0.001)
        seen.append(turns)
        return Command.response(0, body=command.body)

    near, far = trio.testing.memory_stream_pair()
    served = StreamChannel(near, handler, crowd=lambda: crowd)
    async with trio.open_nursery() as nursery:
        await nursery.start(served.run)

        @nursery.start_soon
        async def others() -> None:
            nonlocal turns
            while len(seen) < count:
                turns += 1
                await trio.lowlevel.checkpoint()

        await far.send_all(b"".join(encode_frame(Command(7, opaque=n)) for n in range(count)))
        while len(seen) < count:
            await trio.lowlevel.checkpoint()
        # In each round of the loop, either may come first: one more or less.
        assert abs(seen[-1] - seen[0] - (chunks - 1)) <= 1
        nursery.cancel_scope.cancel()
