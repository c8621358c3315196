"""What all channels of a run share: one task writes, the other watches the time."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.errors import RequestTimeoutError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.channel import ChannelLimits
from rocketmq_sdk.remoting.housekeeper import Housekeeper, housekeeper
from rocketmq_sdk.remoting.stream import StreamChannel
from rocketmq_sdk.testing.simulation.seeded import JumpingClock
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.stream_channels import open_stream_channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.remoting.channel import Channel

SHARED = {"watch of all channels", "writer of all channels"}


def echo(_channel: object, command: Command) -> Command:
    return Command.response(0, body=command.body)


def silent(_channel: object, _command: Command) -> None:
    return None


def tasks() -> list[str]:
    """The names of all tasks of this run."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found, look = [], [root]
    while look:
        task = look.pop()
        found.append(task.name)
        look += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


@asynccontextmanager
async def tcp_pair(**far: object) -> AsyncIterator[tuple[StreamChannel, StreamChannel]]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()
    async with listener:
        one = await trio.open_tcp_stream(address[0], address[1])
        two = await listener.accept()
    limits = ChannelLimits(silence_timeout=math.inf)
    async with (
        open_stream_channel(two, far.get("handler", echo), pause_reading=True) as server,
        open_stream_channel(one, echo, limits=limits) as client,
    ):
        yield client, server


@pytest.mark.real_time
async def test_an_idle_connection_has_one_task_at_each_end():
    before = len(tasks())
    async with trio.open_nursery() as nursery:
        clients = []

        async def live(task_status: trio.TaskStatus[None]) -> None:
            async with tcp_pair() as (client, _server):
                clients.append(client)
                task_status.started()
                await trio.sleep_forever()

        for _ in range(10):
            await nursery.start(live)
        for client in clients:
            calls = [client.submit(Command(10, body=b"x"), 5) for _ in range(3)]
            for call in calls:
                await call.wait()
        assert set(tasks()) >= SHARED
        # each has its reader at both ends, and the task of this test that holds it
        assert len(tasks()) - before == 2 + 10 * 3
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        while SHARED & set(tasks()):
            await trio.sleep(0.01)
    async with tcp_pair() as (client, _server):  # and again
        assert (await client.call(Command(10), 5)).code == 0


class Steps(trio.abc.Instrument):
    """The names of the tasks that had a turn."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.names.append(task.name)


@pytest.mark.real_time
async def test_what_follows_on_a_chunk_leaves_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """As the answer to a held pull does that a message of the chunk has woken."""
    held: list[tuple[Channel, Command]] = []
    seen: list[object] = []

    def fail() -> None:
        raise ValueError("as on purpose")

    def answer_held() -> None:
        seen.append(server.unsent_bytes())
        for channel, request in held:
            channel.respond(request, Command.response(0, body=b"late"))
        seen.append(housekeeper().after_chunk(answer_held))

    def serve(channel: Channel, command: Command) -> Command | None:
        if command.code == 1:
            held.append((channel, command))
            return None
        seen.append(
            housekeeper().behind_chunk(lambda: seen.append(("behind", server.unsent_bytes())))
        )
        seen.append(housekeeper().after_chunk(fail))
        seen.append(housekeeper().after_chunk(answer_held))
        return Command.response(0)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        peer = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        two = await listener.accept()
    async with peer, open_stream_channel(two, serve, pause_reading=True) as server:
        assert not housekeeper().after_chunk(fail)  # nothing is handled now
        await peer.send_all(encode_frame(Command(1, opaque=1)))
        with trio.fail_after(60):
            while not held:
                await trio.sleep(0.01)
        steps, answers, engine = Steps(), list[Command](), Connection()
        trio.lowlevel.add_instrument(steps)
        try:
            await peer.send_all(encode_frame(Command(2, opaque=2)))
            with trio.fail_after(60):
                while len(answers) < 2:
                    answers += engine.receive_commands(await peer.receive_some())
        finally:
            trio.lowlevel.remove_instrument(steps)
        assert [(answer.opaque, answer.body) for answer in answers] == [(2, b""), (1, b"late")]
        # the answer of the chunk had left by then, and no writer was waited for
        assert seen == [True, True, True, 0, False, ("behind", 0)]
        assert "writer of all channels" not in steps.names
    assert "as on purpose" in caplog.text


async def test_what_stops_the_program_after_a_chunk_leaves_channels_writing() -> None:
    flushed: list[str] = []

    class Queued:
        def flush_queued(self) -> None:
            flushed.append("flushed")

    def stop() -> None:
        keeper.flush_soon(Queued())  # type: ignore[arg-type]
        raise KeyboardInterrupt

    keeper = Housekeeper()  # of its own, so that no task writes for it
    keeper.begin_chunk()
    keeper.after_chunk(stop)
    with pytest.raises(KeyboardInterrupt):
        keeper.end_chunk()
    assert flushed == ["flushed"]
    keeper.flush_soon(Queued())  # type: ignore[arg-type]
    keeper.begin_chunk()
    keeper.after_chunk(lambda: None)
    keeper.end_chunk()
    assert flushed == ["flushed", "flushed"]


class NoTurn:
    """A turn in which nothing is joined."""

    def begin(self) -> None:
        """Requests are about to be served."""

    def end(self) -> None:
        """They are served."""


@pytest.mark.real_time
async def test_a_lone_request_has_the_rest_of_its_work_done_when_its_answer_has_left() -> None:
    """Before all that follows on the chunk, which that work may add to."""
    seen: list[object] = []

    def rest() -> None:
        seen.append(("rest", server.unsent_bytes(), housekeeper().after_answer(rest)))
        seen.append(housekeeper().after_chunk(lambda: seen.append("after, of the rest")))
        seen.append(housekeeper().behind_chunk(lambda: seen.append("behind")))

    def serve(channel: Channel, command: Command) -> Command | None:
        housekeeper().after_chunk(lambda: seen.append("after"))
        if not housekeeper().after_answer(rest):
            seen.append(command.opaque)
        return Command.response(0)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        peer = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        two = await listener.accept()
    served = open_stream_channel(two, serve, pause_reading=True, turn=NoTurn())
    async with peer, served as server:
        assert not housekeeper().after_answer(rest)  # nothing is served now
        for opaques in ((1,), (2, 3)):
            frames = [encode_frame(Command(7, opaque=opaque)) for opaque in opaques]
            answers, engine = list[Command](), Connection()
            await peer.send_all(b"".join(frames))
            with trio.fail_after(60):
                while len(answers) < len(opaques):
                    answers += engine.receive_commands(await peer.receive_some())
        assert not housekeeper().alone
    alone = [("rest", 0, False), True, True, "after", "after, of the rest", "behind"]
    assert seen == [*alone, 2, 3, "after", "after"]


class BrokenTurn(NoTurn):
    """A turn of which the end has a defect."""

    def end(self) -> None:
        raise ValueError("not foreseen")


@pytest.mark.real_time
async def test_the_rest_of_the_work_is_done_where_a_channel_breaks_in_its_chunk() -> None:
    done: list[str] = []

    def serve(_channel: Channel, _command: Command) -> Command | None:
        assert housekeeper().after_answer(lambda: done.append("at once"))
        assert housekeeper().after_chunk(lambda: done.append("after"))
        return Command.response(0)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        peer = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        own = await listener.accept()
    channel = StreamChannel(own, serve, turn=BrokenTurn())
    async with peer:
        await peer.send_all(encode_frame(Command(7, opaque=1)))
        with trio.fail_after(60), pytest.raises(ValueError, match="not foreseen"):
            await channel.run()
    assert done == ["at once", "after"]
    assert not housekeeper().alone
    assert not housekeeper().after_chunk(lambda: None)


@pytest.mark.real_time
async def test_what_a_client_serves_has_nothing_put_off() -> None:
    """It may call a broker in the same process, and look at what that has done."""
    put_off: list[bool] = []

    def serve(_channel: Channel, _command: Command) -> Command | None:
        put_off.append(housekeeper().after_answer(lambda: None))
        return Command.response(0)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        broker = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        own = await listener.accept()
    async with broker, open_stream_channel(own, serve):
        await broker.send_all(encode_frame(Command(7, opaque=1)))
        with trio.fail_after(60):
            await broker.receive_some()
    assert put_off == [False]


@pytest.mark.real_time
async def test_a_writer_lives_while_a_socket_takes_no_more():
    body = b"x" * 5_000_000
    async with tcp_pair() as (client, _server):
        before = len(tasks())
        calls = [client.submit(Command(10, body=body), 20) for _ in range(6)]
        assert len(tasks()) > before
        for call in calls:
            assert (await call.wait()).body == body
        assert client.unsent_bytes() == 0
        with trio.fail_after(60):
            while len(tasks()) > before:
                await trio.sleep(0.01)


async def test_what_is_due_at_one_channel_does_not_wait_for_another(autojump_clock):
    network = MemoryNetwork()
    listener = network.listen("server:1")
    begin = trio.current_time()
    async with trio.open_nursery() as nursery:
        done: list[tuple[float, float]] = []

        async def ask(timeout: float) -> None:
            one, two = await network.connect("server:1"), await listener.accept()
            async with open_stream_channel(two, silent), open_stream_channel(one, echo) as near:
                with pytest.raises(RequestTimeoutError):
                    await near.call(Command(10), timeout)
                done.append((timeout, round(trio.current_time() - begin, 3)))

        for timeout in (7.0, 1.0, 3.5, 1.0, 0.25):
            nursery.start_soon(ask, timeout)
    assert sorted(done) == [(0.25, 0.25), (1.0, 1.0), (1.0, 1.0), (3.5, 3.5), (7.0, 7.0)]


async def test_a_fault_at_one_channel_closes_that_one_only(autojump_clock, monkeypatch, caplog):
    network = MemoryNetwork()
    listener = network.listen("server:1")
    pairs = [(await network.connect("server:1"), await listener.accept()) for _ in range(2)]
    async with (
        open_stream_channel(pairs[0][1], silent),
        open_stream_channel(pairs[1][1], silent),
        open_stream_channel(pairs[0][0], echo) as faulty,
        open_stream_channel(pairs[1][0], echo) as sound,
    ):
        sweep = StreamChannel.sweep

        def broken(channel: StreamChannel, now: float) -> float:
            if channel is faulty:
                raise ZeroDivisionError
            return sweep(channel, now)

        monkeypatch.setattr(StreamChannel, "sweep", broken)
        call = faulty.submit(Command(10), 1)
        with pytest.raises(RequestTimeoutError):
            await sound.call(Command(10), 2)
        assert faulty.closed
        assert "unforeseen" in faulty.close_reason
        assert call.done
        assert not sound.closed
    assert "unforeseen" in caplog.text


async def test_moments_that_count_no_more_do_not_pile_up(autojump_clock):
    network = MemoryNetwork()
    listener = network.listen("server:1")
    one, two = await network.connect("server:1"), await listener.accept()
    async with open_stream_channel(two, echo), open_stream_channel(one, echo) as near:
        shared: Housekeeper = housekeeper()
        for _ in range(200):
            await near.call(Command(10), 0.5)
            await trio.sleep(0.6)
        assert len(shared._heap) < 80
    assert not shared._kept


def test_calls_that_have_their_answers_wake_nobody_in_virtual_time() -> None:
    """And one that has none ends in time, as does a connection that is idle."""
    steps: Counter[str] = Counter()

    class Count(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps[task.name] += 1

    def half(_channel: object, command: Command) -> Command | None:
        return None if command.body else Command.response(0)

    async def main() -> None:
        network = MemoryNetwork()
        network.latency = lambda _source, _target: 0.01
        limits = ChannelLimits(idle_timeout=60, silence_timeout=math.inf)
        listener = network.listen("server:1")
        one = await network.connect("server:1")
        async with (
            open_stream_channel(await listener.accept(), half) as server,
            open_stream_channel(one, echo, limits=limits) as client,
        ):
            for _ in range(100):
                call = client.submit(Command(10), 3)
                second = client.submit(Command(10), 3)  # leaves later
                await call.wait()
                await second.wait()
                await trio.sleep(7)
            assert steps["watch of all channels"] <= 2
            assert steps["writer of all channels"] == 0
            began = trio.current_time()
            with pytest.raises(RequestTimeoutError):
                await client.call(Command(10, body=b"silence"), 3)
            assert trio.current_time() - began == pytest.approx(3)
            await client.wait_closed()
            assert trio.current_time() - began == pytest.approx(60, abs=0.1)
            await server.wait_closed()

    trio.run(main, clock=JumpingClock(), instruments=[Count()])
