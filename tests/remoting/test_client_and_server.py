"""Connections by address, and the server: reconnecting, shared tries, going away,
limits, stopping.
"""

from __future__ import annotations

import socket
import ssl

import pytest
import trio
import trio.testing
import trustme

from rocketmq_sdk.errors import (
    ClosedError,
    ConfigurationError,
    ConnectError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.channel import Channel, ChannelLimits
from rocketmq_sdk.remoting.client import RemotingClient
from rocketmq_sdk.remoting.places import Places
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.source import MemoryChannelSource, TcpChannelSource
from rocketmq_sdk.transport.memory import MemoryNetwork
from rocketmq_sdk.transport.tcp import open_tcp_listeners
from rocketmq_sdk.transport.tls import TlsMode


def echo(_channel, command: Command) -> Command:
    return Command.response(0, body=command.body)


class CountingSource(MemoryChannelSource):
    tries = 0

    async def open_channel(self, address, handler, nursery):
        self.tries += 1
        return await super().open_channel(address, handler, nursery)


async def test_a_long_poll_at_a_server_that_vanished_ends_when_another_request_finds_out(
    autojump_clock,
):
    network = MemoryNetwork()
    server = RemotingServer(lambda _channel, _command: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        with trio.fail_after(60):
            async with RemotingClient.open(MemoryChannelSource(network), echo) as client:
                poll = (await client.channel("server:1", 3)).submit(Command(11), 30)
                await trio.sleep(2)
                begin = trio.current_time()
                with pytest.raises(RequestTimeoutError):
                    await client.call("server:1", Command(34), 3)
                with pytest.raises(ConnectError, match="overdue"):
                    await poll.wait()
                assert trio.current_time() - begin == pytest.approx(6, abs=0.1)
                assert client.channel_nowait("server:1") is None
        nursery.cancel_scope.cancel()


async def test_one_channel_per_address_and_one_try_for_all(autojump_clock):
    network = MemoryNetwork()
    server = RemotingServer(echo)
    source = CountingSource(network, name_server="server:1")
    connected: list[str | None] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        network.delay("server:1", 0.5)
        with trio.fail_after(60):
            async with RemotingClient.open(source, echo) as client:
                client.on_connect.append(lambda address, channel: connected.append(address))
                assert client.channel_nowait("server:1") is None
                channels: list[Channel] = []

                async def get() -> None:
                    channels.append(await client.channel("server:1", 3))

                async with trio.open_nursery() as getting:
                    with trio.CancelScope() as first:
                        getting.start_soon(get)
                        await trio.sleep(0.1)
                    del first
                    for _ in range(10):
                        getting.start_soon(get)
                assert (len(channels), len(set(map(id, channels))), source.tries) == (11, 1, 1)
                assert client.channel_nowait("server:1") is channels[0]
                assert (await client.call(None, Command(10, body=b"x"), 3)).body == b"x"
                assert connected == ["server:1", None]
            assert channels[0].closed
        nursery.cancel_scope.cancel()


async def test_a_cancelled_caller_does_not_end_the_try(autojump_clock):
    network = MemoryNetwork()
    source = CountingSource(network)
    network.listen("server:1")
    network.delay("server:1", 1.0)
    async with RemotingClient.open(source, echo) as client:
        with trio.fail_after(60):
            with trio.move_on_after(0.5):
                await client.channel("server:1", 3)
            await client.channel("server:1", 3)
    assert source.tries == 1


async def test_reconnecting_after_a_cut(autojump_clock):
    network = MemoryNetwork()
    server = RemotingServer(echo)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        with trio.fail_after(60):
            async with RemotingClient.open(MemoryChannelSource(network), echo) as client:
                first = await client.channel("server:1", 3)
                network.cut("server:1")
                await first.wait_closed()
                assert client.channel_nowait("server:1") is None
                assert client.channels() == {}
                assert (await client.call("server:1", Command(10), 3)).code == 0
                assert client.channel_nowait("server:1") is not first
                await trio.sleep(1)
                assert len(server.channels) == 1
        nursery.cancel_scope.cancel()


async def test_failed_tries_back_off_and_success_forgets_them(autojump_clock):
    network = MemoryNetwork()
    source = CountingSource(network)
    network.listen("server:1")
    network.refuse("server:1")
    async with RemotingClient.open(source, echo) as client:
        with trio.fail_after(600):
            begin = trio.current_time()
            while trio.current_time() - begin < 60:
                with pytest.raises(ConnectError, match="refused") as caught:
                    await client.channel("server:1", 3)
                assert not caught.value.outcome_unknown
            assert 45 < source.tries < 110
            tries = source.tries
            with pytest.raises(ConnectError, match="not tried again"):
                await client.channel("server:1", 0.01)
            assert source.tries == tries
            network.refuse("server:1", False)
            await client.channel("server:1", 3)
            assert not client._failures


async def test_connecting_takes_time_from_the_call(autojump_clock):
    network = MemoryNetwork()
    network.listen("server:1")
    network.delay("server:1", 2.0)
    async with RemotingClient.open(MemoryChannelSource(network), echo) as client:
        with trio.fail_after(60):
            begin = trio.current_time()
            with pytest.raises(ConnectError, match="within 1 s"):
                await client.call("server:1", Command(10), 1)
            with pytest.raises(RequestTimeoutError) as caught:
                await client.call("server:1", Command(10), 4)
            assert caught.value.outcome_unknown
            assert trio.current_time() - begin == pytest.approx(5)


@pytest.mark.parametrize("always", [False, True])
async def test_going_away(autojump_clock, always):
    network = MemoryNetwork()
    asked: list[tuple[Channel, int]] = []

    def handler(channel: Channel, command: Command) -> Command:
        asked.append((channel, command.opaque))
        return Command.response(1500 if always or len(asked) == 1 else 0)

    server = RemotingServer(handler)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        with trio.fail_after(600):
            async with RemotingClient.open(MemoryChannelSource(network), echo) as client:
                first = await client.channel("server:1", 3)
                answer = await client.call("server:1", Command(10), 3)
                assert answer.code == (1500 if always else 0)
                assert len(asked) == 2
                assert asked[0][0] is not asked[1][0]
                assert client.channel_nowait("server:1") is not first
                await trio.sleep(40)
                assert first.closed
        nursery.cancel_scope.cancel()


async def test_interceptors_see_each_call_once(autojump_clock):
    network = MemoryNetwork()
    seen: list[tuple[str, str | None, int]] = []

    class Watch:
        def before(self, command, address):
            command.ext_fields["signed"] = "yes"
            seen.append(("before", address, command.code))

        def after(self, command, response, address):
            seen.append(("after", address, response.code))

    def handler(channel: Channel, command: Command) -> Command:
        return Command.response(5 if command.ext_fields["signed"] == "yes" else 1)

    async with trio.open_nursery() as nursery:
        await nursery.start(RemotingServer(handler).serve, [network.listen("server:1")])
        with trio.fail_after(60):
            async with RemotingClient.open(
                MemoryChannelSource(network), echo, interceptors=[Watch()]
            ) as client:
                assert (await client.call("server:1", Command(10), 3)).code == 5
        nursery.cancel_scope.cancel()
    assert seen == [("before", "server:1", 10), ("after", "server:1", 5)]


async def test_a_closed_client(autojump_clock):
    async with RemotingClient.open(MemoryChannelSource(MemoryNetwork()), echo) as client:
        pass
    with pytest.raises(ClosedError):
        await client.channel("server:1", 3)


async def test_what_is_no_address(autojump_clock):
    async with RemotingClient.open(None, echo) as client:
        with trio.fail_after(60):
            for address in (None, "nonsense"):
                with pytest.raises(ConfigurationError):
                    await client.channel(address, 3)


async def test_the_server_asks_the_client_too(autojump_clock):
    network = MemoryNetwork()
    opened: list[Channel] = []
    server = RemotingServer(echo, on_open=opened.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        with trio.fail_after(60):
            source = MemoryChannelSource(network, source="10.1.2.3:77")
            async with RemotingClient.open(
                source, lambda channel, command: Command.response(0, body=b"client")
            ) as client:
                await client.call("server:1", Command(10), 3)
                assert (await opened[0].call(Command(40), 3)).body == b"client"
                assert opened[0].remote_address == "10.1.2.3:77"
                assert opened[0].remote_host_packed == bytes([10, 1, 2, 3, 0, 0, 0, 77])
        nursery.cancel_scope.cancel()


async def test_limit_of_connections(autojump_clock):
    network = MemoryNetwork()
    server = RemotingServer(echo, places=Places(2))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        with trio.fail_after(60):
            async with trio.open_nursery() as clients:
                source = MemoryChannelSource(network)
                one, two = [await source.open_channel("server:1", echo, clients) for _ in range(2)]
                for heard in (one, two):
                    assert (await heard.call(Command(10), 3)).code == 0
                three = await source.open_channel("server:1", echo, clients)
                await three.wait_closed()
                assert (
                    (await one.call(Command(10), 3)).code
                    == (await two.call(Command(10), 3)).code
                    == 0
                )
                await one.aclose()
                await trio.sleep(1)
                four = await source.open_channel("server:1", echo, clients)
                assert (await four.call(Command(10), 3)).code == 0
                clients.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def test_failing_hooks_stop_neither_side(autojump_clock, caplog):
    network = MemoryNetwork()
    failing = True

    def fail(channel: Channel) -> None:
        if failing:
            raise ZeroDivisionError("in a hook")

    server = RemotingServer(echo, on_open=fail, on_close=fail)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        with trio.fail_after(60):
            async with RemotingClient.open(MemoryChannelSource(network), echo) as client:
                client.on_connect.append(lambda address, channel: 1 / 0)
                with pytest.raises((ConnectError, RequestTimeoutError)):
                    await client.call("server:1", Command(10), 3)
                failing = False
                assert (await client.call("server:1", Command(10), 3)).code == 0
                await trio.sleep(1)
                assert len(server.channels) == 1
        nursery.cancel_scope.cancel()


async def test_stopping_sends_what_is_queued_and_is_bounded(autojump_clock):
    network = MemoryNetwork(capacity=1000)
    server = RemotingServer(lambda channel, command: Command.response(0, body=b"x" * 50_000))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, [network.listen("server:1")])
            reads, stuck = await network.connect("server:1"), await network.connect("server:1")
            for stream in (reads, stuck):
                await stream.send_all(encode_frame(Command(10)))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            begin = trio.current_time()
            received = b""
            with trio.CancelScope(shield=True):
                while data := await reads.receive_some(1000):
                    received += data
        assert len(received) > 50_000
        assert trio.current_time() - begin < 5
        assert not server.channels
        with pytest.raises(ConnectError):
            await network.connect("server:1")


@pytest.mark.real_time
@pytest.mark.parametrize("encoding", list(HeaderEncoding))
async def test_over_tcp(encoding):
    with trio.fail_after(60):
        listeners, port = await open_tcp_listeners("127.0.0.1", 0)
        server = RemotingServer(echo)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            async with RemotingClient.open(None, echo) as client:
                address = f"127.0.0.1:{port}"
                channel = await client.channel(address, 3)
                calls = [
                    channel.submit(Command(10, body=b"%d" % number * 1000, encoding=encoding), 20)
                    for number in range(2000)
                ]
                assert [(await call.wait()).body for call in calls] == [
                    b"%d" % number * 1000 for number in range(2000)
                ]
                big = b"x" * 15_000_000
                assert (
                    await client.call(address, Command(10, body=big, encoding=encoding), 20)
                ).body == big
                peer = next(iter(server.channels.values()))
                assert peer.remote_address == channel.local_address
                assert peer.remote_host_packed[:4] == socket.inet_aton("127.0.0.1")
            nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_a_client_over_tcp_that_never_reads():
    with trio.fail_after(60):
        listeners, port = await open_tcp_listeners("127.0.0.1", 0)
        server = RemotingServer(
            lambda channel, command: Command.response(0, body=b"x" * 1_000_000),
            limits=ChannelLimits(stall_timeout=1, high_water=2_000_000),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(encode_frame(Command(10)) * 500)
            source = TcpChannelSource()
            while not server.channels:
                await trio.sleep(0.01)
            good = await source.open_channel(f"127.0.0.1:{port}", echo, nursery)
            assert (await good.call(Command(10), 30)).code == 0
            while len(server.channels) > 1:
                assert (
                    max(channel.unsent_bytes() for channel in server.channels.values()) < 5_000_000
                )
                await trio.sleep(0.05)
            assert (await good.call(Command(10), 30)).code == 0
            await stream.aclose()
            nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_tls_and_plain_on_one_port_over_tcp():
    authority = trustme.CA()
    server_context, client_context = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(server_context)
    authority.configure_trust(client_context)
    with trio.fail_after(60):
        for mode in TlsMode:
            listeners, port = await open_tcp_listeners("127.0.0.1", 0)
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    RemotingServer(echo, tls=server_context, tls_mode=mode).serve, listeners
                )
                for tls, welcome in (
                    (None, mode is not TlsMode.ENFORCING),
                    (client_context, mode is not TlsMode.DISABLED),
                ):
                    async with RemotingClient.open(None, echo, tls=tls) as client:
                        calls = client.call(
                            f"127.0.0.1:{port}", Command(10, body=b"x" * 300_000), 5
                        )
                        if welcome:
                            assert len((await calls).body) == 300_000
                        else:
                            with pytest.raises(ConnectError):
                                await calls
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("answered", [True, False])
async def test_a_retired_channel_takes_no_new_calls_and_closes_when_its_own_are_done(
    autojump_clock, answered
):
    network = MemoryNetwork()

    def serve(_channel, command: Command):
        async def late() -> Command:
            await trio.sleep(5 if answered else 1000)
            return Command.response(0, body=command.body)

        return late if command.body == b"slow" else Command.response(0, body=command.body)

    async with trio.open_nursery() as nursery:
        await nursery.start(RemotingServer(serve).serve, [network.listen("a:1")])
        async with RemotingClient.open(MemoryChannelSource(network), echo) as client:
            old = await client.channel("a:1", 1)
            call = old.submit(Command.request(1, body=b"slow"), 100)
            began = trio.current_time()
            client.retire("a:1")
            assert client.channel_nowait("a:1") is None
            new = await client.channel("a:1", 1)
            assert new is not old
            client.retire("a:1", old)  # it is not the one in use any more
            assert client.channel_nowait("a:1") is new
            with trio.fail_after(60):
                if answered:
                    assert (await call.wait()).body == b"slow"
                await old.wait_closed()
            assert trio.current_time() - began == pytest.approx(5 if answered else 30, abs=1.2)
            assert not new.closed
            client.retire("a:2")
        nursery.cancel_scope.cancel()


async def test_several_are_asked_at_the_same_time_and_errors_stand_for_answers(autojump_clock):
    network, seen = MemoryNetwork(), []

    class Looking:
        def before(self, command, address):
            seen.append((address, "before"))
            if command.code == 13:
                raise ValueError("not this one")

        def after(self, command, response, address):
            seen.append((address, "after"))

    def handle(_channel, command):
        if command.code == 12:  # it goes away once
            command.ext_fields and gone.append(command)
            return Command.response(0 if len(gone) > 1 else 1500, body=b"again")
        return None if command.code == 11 else Command.response(0, body=command.body)

    gone: list[Command] = []
    async with trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            await nursery.start(RemotingServer(handle).serve, [network.listen(f"server:{number}")])
        async with RemotingClient.open(
            MemoryChannelSource(network), echo, interceptors=[Looking()]
        ) as client:
            await client.call("server:1", Command(10), 3)  # connected before, as is the next
            await client.call("server:2", Command(10), 3)
            for connected in (False, True):  # server 3
                seen.clear()
                gone.clear()
                began = trio.current_time()
                found = await client.call_all(
                    [
                        ("server:1", Command(10, body=b"one")),
                        ("server:2", Command(11)),
                        ("server:3", Command(10, body=b"three")),
                        ("server:4", Command(10)),
                        ("server:1", Command(12, ext_fields={"a": "b"})),
                        ("server:1", Command(13)),
                    ],
                    3,
                )
                assert trio.current_time() - began == pytest.approx(3, abs=0.1), connected
                assert [getattr(each, "body", type(each)) for each in found] == [
                    b"one",
                    RequestTimeoutError,
                    b"three",
                    ConnectError,
                    b"again",
                    RocketMQError,
                ]
                assert seen.count(("server:1", "before")) == 3  # once for each request
                assert seen.count(("server:1", "after")) == 2
            assert await client.call_all([], 3) == []
            await client.call("server:2", Command(10), 3)
            channel = client.channel_nowait("server:2")
            with trio.move_on_after(1):
                await client.call_all([("server:2", Command(11)), ("server:2", Command(11))], 3)
            assert channel.statistics().in_flight == 0
        nursery.cancel_scope.cancel()
