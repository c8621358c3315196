"""What bare Python can do: the ceilings that the SDK is compared with."""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
import zlib
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from benchmarks.pace import moments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

RECORD = struct.Struct(">iiiiiqqiqQqQiqi")
BODY = b"x" * 100
FRAME_BYTES = 420
"""A send request with a JSON header and a 100-byte body is about this long."""


def bare_append(count: int) -> float:
    """Messages per second of a loop that packs, sums and copies bytes of records."""
    buffer = bytearray(64 * 1024 * 1024)
    pack, crc32 = RECORD.pack, zlib.crc32
    topic, properties = b"\x09benchmark", b"\x00\x40" + b"p" * 64
    position = 0
    begin = time.perf_counter()
    for number in range(count):
        record = b"".join(
            (
                pack(
                    271,
                    -626843481,
                    crc32(BODY),
                    0,
                    0,
                    number,
                    position,
                    0,
                    1,
                    2,
                    3,
                    4,
                    0,
                    0,
                    len(BODY),
                ),
                BODY,
                topic,
                properties,
            )
        )
        end = position + len(record)
        if end > len(buffer):
            position, end = 0, len(record)
        buffer[position:end] = record
        position = end
    return count / (time.perf_counter() - begin)


def _complete_frames(buffer: bytearray) -> list[bytes]:
    """Take every complete length-prefixed frame out of a buffer."""
    frames: list[bytes] = []
    position, available = 0, len(buffer)
    while available - position >= 4:
        end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
        if end > available:
            break
        frames.append(bytes(buffer[position:end]))
        position = end
    del buffer[:position]
    return frames


async def _serve_echo(pipe: Connection) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    pipe.send(listeners[0].socket.getsockname()[1])

    async def handle(stream: trio.SocketStream) -> None:
        buffer = bytearray()
        while data := await stream.receive_some(65536):
            buffer += data
            if frames := _complete_frames(buffer):
                await stream.send_all(b"".join(frames))

    await trio.serve_listeners(handle, listeners)


def _echo_server(pipe: Connection) -> None:
    trio.run(_serve_echo, pipe)


@contextmanager
def _echo_process(serve: Callable[[Connection], None]) -> Iterator[int]:
    """A process that sends back what it gets; gives its port."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def bare_echo(count: int, in_flight: int) -> tuple[float, float]:
    """Frames per second and median microseconds of a trio echo between two processes.

    The median is of one at a time.
    """
    with _echo_process(_echo_server) as port:
        return trio.run(_echo_client, port, count, in_flight)


def paced_echo(count: int, rate: float) -> list[float]:
    """Seconds from there and back of each frame of a trio echo at so many a second."""
    with _echo_process(_echo_server) as port:
        return trio.run(_paced_client, port, count, rate)


def blocking_echo(count: int) -> list[float]:
    """Seconds of each frame of an echo by blocking sockets, one at a time."""
    with _echo_process(_blocking_server) as port:
        frame, times = _frame(), list[float]()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(count):
                begin = time.perf_counter()
                sock.sendall(frame)
                left = FRAME_BYTES
                while left:
                    left -= len(sock.recv(left))
                times.append(time.perf_counter() - begin)
        return times


def _blocking_server(pipe: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        sock, _address = listener.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := sock.recv(65536):
                sock.sendall(data)


def _frame() -> bytes:
    return (FRAME_BYTES - 4).to_bytes(4, "big") + b"f" * (FRAME_BYTES - 4)


async def _paced_client(port: int, count: int, rate: float) -> list[float]:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    frame, buffer, sent, times = _frame(), bytearray(), deque[float](), list[float]()

    async def receive() -> None:
        while len(times) < count:
            buffer.extend(await stream.receive_some(65536))
            times.extend(time.perf_counter() - sent.popleft() for _ in _complete_frames(buffer))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        async with moments(count, rate) as due:
            async for _ in due:
                sent.append(time.perf_counter())
                await stream.send_all(frame)
    return times


async def _echo_client(port: int, count: int, in_flight: int) -> tuple[float, float]:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    frame = _frame()
    buffer = bytearray()
    sent = received = 0
    times: list[float] = []
    begin = time.perf_counter()
    while received < count:
        start = time.perf_counter()
        allowed = min(count - sent, in_flight - (sent - received))
        if allowed > 0:
            await stream.send_all(b"".join([frame] * allowed))
            sent += allowed
        buffer += await stream.receive_some(65536)
        received += len(_complete_frames(buffer))
        times.append(time.perf_counter() - start)
    seconds = time.perf_counter() - begin
    times.sort()
    return count / seconds, times[len(times) // 2] * 1e6
