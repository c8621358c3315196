"""Clients that break the protocol or the manners: each is answered or cut off, and a
well-behaved one beside it does not notice.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from struct import pack
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.channel import ChannelLimits
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.transport.tcp import open_tcp_listeners
from support.broker import pull_request, send_request
from support.hostile import (
    RawClient,
    assert_quiet,
    assert_sensible,
    good_client,
    raw_client,
    resident_bytes,
)
from support.processes import BrokerProcess, broker_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.real_time

MEBIBYTE = 1024 * 1024
SERVERS = ("address", "namesrv")
GOOD = encode_frame(send_request("Hostile", b"body"))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with broker_process(messageDelayLevel="1s 2s") as process:
        yield process
        assert process.process is not None
        assert process.process.poll() is None
        assert_quiet(process.log)


# Bytes that are no frames

BROKEN_FRAMES = {
    "length 0": pack(">I", 0) + b"\0" * 8,
    "length 1": pack(">I", 1) + b"\0" * 8,
    "length 3": pack(">I", 3) + b"\0" * 8,
    "length 2^31-1": pack(">I", 0x7FFFFFFF) + b"\0" * 8,
    "length -1": pack(">I", 0xFFFFFFFF) + b"\0" * 8,
    "length 2^31": pack(">I", 0x80000000),
    "length 17 MiB": pack(">I", 17 * MEBIBYTE),
    "header longer than frame": pack(">II", 20, 17) + b"\0" * 16,
    "header of 16 MiB": pack(">II", 20, 0xFFFFFF) + b"\0" * 16,
    "unknown header encoding 2": pack(">II", 4 + 8, 0x02000008) + b"\0" * 8,
    "unknown header encoding 255": pack(">II", 4 + 8, 0xFF000008) + b"\0" * 8,
    "empty JSON header": pack(">II", 4, 0),
    "empty binary header": pack(">II", 4, 0x01000000),
    "JSON header that is no JSON": pack(">II", 4 + 5, 5) + b"hello",
    "JSON header that is an array": pack(">II", 4 + 2, 2) + b"[]",
    "JSON header of brackets": pack(">II", 4 + 100_000, 100_000) + b"[" * 100_000,
    "JSON header of braces": pack(">II", 4 + 500_000, 500_000) + b'{"a":' * 100_000,
    "JSON header with a long number": pack(">II", 4 + 10_009, 10_009)
    + b'{"code":'
    + b"9" * 10_000
    + b"}",
    "JSON header with an array as fields": pack(">II", 4 + 25, 25) + b'{"code":1,"extFields":[]}',
    "JSON header not UTF-8": pack(">II", 4 + 12, 12) + b'{"remark":"\xff"}'[:12],
    "binary remark of -1": pack(">IIhBhiii", 4 + 21, 0x01000015, 310, 0, 0, 1, 0, -1) + b"\0" * 4,
    "binary remark of 2^31-1": pack(">IIhBhiii", 4 + 21, 0x01000015, 310, 0, 0, 1, 0, 0x7FFFFFFF)
    + b"\0" * 4,
    "binary fields of 2^31-1": pack(
        ">IIhBhiiii", 4 + 21, 0x01000015, 310, 0, 0, 1, 0, 0, 0x7FFFFFFF
    ),
    "binary field without a name": pack(
        ">IIhBhiiiihi", 4 + 27, 0x0100001B, 310, 0, 0, 1, 0, 0, 6, 0, 0
    ),
    "binary field of -1": pack(
        ">IIhBhiiiihci", 4 + 28, 0x0100001C, 310, 0, 0, 1, 0, 0, 7, 1, b"a", -1
    ),
    "binary field torn": pack(">IIhBhiiiih", 4 + 23, 0x01000017, 310, 0, 0, 1, 0, 0, 2, 500),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("broken", BROKEN_FRAMES)
async def test_a_broken_frame_cuts_its_connection_only(
    broker: BrokerProcess, broken: str, server: str
) -> None:
    async with good_client(broker.address), raw_client(getattr(broker, server)) as client:
        await client.send(BROKEN_FRAMES[broken])
        assert await client.closed_by_server()


async def test_what_stands_before_the_garbage_is_answered(broker: BrokerProcess) -> None:
    async with good_client(broker.address), raw_client(broker.address) as client:
        await client.send(GOOD + GOOD + BROKEN_FRAMES["length -1"])
        for _ in range(2):
            assert (
                assert_sensible(await client.answer(), "frame before garbage").code
                == ResponseCode.SUCCESS
            )
        assert await client.answer() is None


@pytest.mark.parametrize("server", SERVERS)
async def test_random_garbage(broker: BrokerProcess, server: str) -> None:
    assert broker.process is not None
    before = resident_bytes(broker.process.pid)
    async with good_client(broker.address) as good:
        for seed in range(150):
            chance = random.Random(seed)
            data = chance.randbytes(chance.randrange(1, 5000))
            if seed % 3 == 1:  # a plausible length
                data = pack(">I", len(data)) + data
            elif seed % 3 == 2:  # and a plausible header word
                data = (
                    pack(">II", len(data) + 4, (seed % 2) << 24 | chance.randrange(len(data) + 1))
                    + data
                )
            async with raw_client(getattr(broker, server)) as client:
                await client.send(data)
                await client.end()
                assert await client.closed_by_server()
        assert good.sent > 0
    assert resident_bytes(broker.process.pid) - before < 50 * MEBIBYTE


async def test_frames_with_flipped_bytes(broker: BrokerProcess) -> None:
    async with good_client(broker.address):
        for seed in range(200):
            chance = random.Random(seed)
            frame = bytearray(GOOD)
            for _ in range(chance.randrange(1, 6)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            async with raw_client(broker.address) as client:
                await client.send(bytes(frame))
                await client.end()
                while (answer := await client.answer()) is not None:
                    assert_sensible(answer, bytes(frame))


async def test_connections_opened_and_dropped(broker: BrokerProcess) -> None:
    async with good_client(broker.address) as good:
        for _ in range(40):
            async with trio.open_nursery() as nursery:

                async def drop() -> None:
                    async with raw_client(broker.address) as client:
                        await client.send(GOOD[: random.randrange(len(GOOD))])

                for _ in range(50):
                    nursery.start_soon(drop)
    assert good.sent


async def test_a_frame_byte_by_byte_is_served(broker: BrokerProcess) -> None:
    async with good_client(broker.address), raw_client(broker.address) as client:
        for byte in GOOD:
            await client.send(bytes((byte,)))
        assert assert_sensible(await client.answer(), "byte by byte").code == ResponseCode.SUCCESS


# Codes that nobody knows


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("encoding", list(HeaderEncoding))
async def test_unknown_codes(broker: BrokerProcess, server: str, encoding: HeaderEncoding) -> None:
    async with good_client(broker.address), raw_client(getattr(broker, server)) as client:
        for code in (-1, -32768, 1, 9999, 32767, 70000, 2**31 - 1):
            if encoding is HeaderEncoding.ROCKETMQ and code > 32767:
                continue
            answer = assert_sensible(
                await client.ask(Command(code, opaque=77, encoding=encoding)), code
            )
            assert (answer.code, answer.opaque, answer.encoding) == (
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                77,
                encoding,
            )


async def test_a_oneway_unknown_code_is_not_answered(broker: BrokerProcess) -> None:
    async with good_client(broker.address), raw_client(broker.address) as client:
        await client.send(encode_frame(Command.request(9999, oneway=True)))
        answer = assert_sensible(await client.ask(Command(9998, opaque=5)), "the next one")
        assert answer.opaque == 5


async def test_answers_that_nobody_asked_for(broker: BrokerProcess) -> None:
    async with good_client(broker.address), raw_client(broker.address) as client:
        for opaque in range(2000):
            response = Command.response(0, body=b"?")
            response.opaque = opaque
            await client.send(encode_frame(response))
        assert (
            assert_sensible(await client.ask(send_request("Hostile", b"body")), "send").code
            == ResponseCode.SUCCESS
        )


# Silence and answers that are not read: small limits, in this process


@asynccontextmanager
async def limited_server(
    limits: ChannelLimits,
) -> AsyncIterator[tuple[EmbeddedBroker, RemotingServer, str]]:
    """A broker, and its handlers behind a port with other limits."""
    async with EmbeddedBroker(listen=0) as broker, trio.open_nursery() as nursery:
        server = RemotingServer(broker.handler, limits=limits, on_close=broker._channel_closed)
        listeners, port = await open_tcp_listeners("127.0.0.1", 0)
        await nursery.start(server.serve, listeners)
        yield broker, server, f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def test_half_a_frame_and_silence_is_cut_off() -> None:
    limits = ChannelLimits(idle_timeout=1)

    async def silent(length: int) -> None:
        async with raw_client(address) as client:
            await client.send(GOOD[:length])
            assert await client.closed_by_server()

    async with limited_server(limits) as (_broker, server, address), good_client(address):
        async with trio.open_nursery() as nursery:
            for length in (0, 1, 4, 7, 30):
                nursery.start_soon(silent, length)
        with trio.fail_after(60):
            while len(server.channels) > 1:
                await trio.sleep(0.01)


async def flood(client: RawClient, frames: bytes, times: int) -> None:
    for _ in range(times):
        if not await client.send(frames):
            return


@pytest.mark.parametrize("kind", ["send", "pull", "unknown"])
async def test_answers_that_are_never_read(kind: str) -> None:
    limits = ChannelLimits(stall_timeout=1.0, high_water=MEBIBYTE, low_water=MEBIBYTE // 4)
    async with (
        limited_server(limits) as (_broker, server, address),
        good_client(address),
        raw_client(address) as client,
    ):
        assert (
            assert_sensible(await client.ask(send_request("Unread", b"x" * 10_000)), "first").code
            == 0
        )
        command = {
            "send": send_request("Unread", b"x"),
            "pull": pull_request("Unread", 0),
            "unknown": Command(9999),
        }[kind]
        frames = encode_frame(command) * 100
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood, client, frames, 1000)
            most = 0
            with trio.fail_after(60):
                while len(server.channels) > 1:
                    most = max(
                        most, *(channel.unsent_bytes() for channel in server.channels.values())
                    )
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert most < 4 * MEBIBYTE


async def test_held_pulls_whose_answers_are_never_read() -> None:
    """One message wakes thousands of pulls; what waits to be written for a peer that
    reads nothing stays bounded.
    """
    limits = ChannelLimits(stall_timeout=1.0, high_water=MEBIBYTE, low_water=MEBIBYTE // 4)
    async with (
        limited_server(limits) as (_broker, server, address),
        good_client(address),
        raw_client(address) as client,
    ):
        assert assert_sensible(await client.ask(send_request("Held", b"x")), "first").code == 0
        frame = encode_frame(pull_request("Held", 1, hold=60.0))
        for _ in range(50):
            await client.send(frame * 10)
        with trio.fail_after(60):
            while (
                max(channel.statistics().requests_in_flight for channel in server.channels.values())
                < 500
            ):
                await trio.sleep(0.01)
        async with raw_client(address) as other:
            assert (
                assert_sensible(
                    await other.ask(send_request("Held", b"x" * 200_000)), "message"
                ).code
                == 0
            )
        most = 0
        with trio.fail_after(60):
            while len(server.channels) > 2:
                most = max(most, *(channel.unsent_bytes() for channel in server.channels.values()))
                await trio.sleep(0.001)
        assert most < 12 * MEBIBYTE
