"""A process without descriptors for files: what could not begin has not failed."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files import descriptors, os_files
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFile, OsFileSystem
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import StoreError
from support.broker import open_broker, send_request
from support.store import bodies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.broker import Peer

pytestmark = pytest.mark.real_time


class Shortage:
    """While it is on, nothing can be opened."""

    def __init__(self) -> None:
        self.on = False
        self.refused = 0

    def check(self) -> None:
        if self.on:
            self.refused += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shortage]:
    found = Shortage()
    open_descriptor, open_any = OsFile.open_descriptor, os.open

    def of_file(self: OsFile, create: bool) -> int:
        found.check()
        return open_descriptor(self, create)

    def of_directory(path: str, flags: int, *arguments: int) -> int:
        found.check()
        return open_any(path, flags, *arguments)

    class Os:
        """`os`, but for one call."""

        def __getattr__(self, name: str) -> object:
            return of_directory if name == "open" else getattr(os, name)

    monkeypatch.setattr(OsFile, "open_descriptor", of_file)
    monkeypatch.setattr(os_files, "os", Os())
    monkeypatch.setattr(descriptors, "PAUSE", 0.001)
    yield found
    found.on = False


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_broker_goes_on_after_a_shortage_of_descriptors(
    tmp_path: Path, shortage: Shortage, flush: str
) -> None:
    sent: list[bytes] = []

    async def send(peer: Peer) -> None:
        body = b"%d " % len(sent) + bytes(3000)
        if (await peer.ask(send_request("T", body))).code == 0:
            sent.append(body)

    settings = {"flush_disk_type": flush, "mapped_file_size_commit_log": 65536}
    async with open_broker(tmp_path, sync_flush_timeout=300, **settings) as (broker, peer):
        for _ in range(5):
            await send(peer)
        shortage.on = True
        broker.store.files._make_room()
        with trio.move_on_after(1.5):
            for _ in range(60):
                await send(peer)
                await trio.sleep(0.01)
        assert shortage.refused > 0
        shortage.on = False
        with trio.fail_after(60):
            while not broker.health() or (await peer.ask(send_request("U", b"x"))).code:
                await trio.sleep(0.02)
        for _ in range(60):
            await send(peer)
        assert broker.health()
        answer = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="U")
        assert answer.code == 0
    async with open_broker(tmp_path, **settings) as (broker, _):
        found = bodies(broker.store, "T")
        assert set(sent) <= set(found)
        assert len(found) == len(set(found))


def test_a_thread_waits_for_descriptors_and_not_for_ever(
    tmp_path: Path, shortage: Shortage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "TRIES", 20)
    files = OsFileSystem(tmp_path)
    file = files.open("a")
    file.pwrite(b"x", 0)
    shortage.on = True
    file.sync()  # it has a descriptor
    files._make_room()
    with pytest.raises(StoreError, match="Too many open files"):
        file.sync()
    assert shortage.refused > 20
    shortage.on = False
    file.sync()
    file.close()
