"""The example of the documentation, and what the file system promises."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem, PowerCutError
from support.store import STORE_HOST, message, small_config

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize("cut", [20, 60, 150])
@pytest.mark.parametrize("seed", range(4))
async def test_what_was_acknowledged_survives_the_cut(
    seed: int, cut: int, autojump_clock: MockClock
) -> None:
    config = small_config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    files = FaultyFileSystem(seed)
    files.cut_at = cut
    kept = []
    with trio.fail_after(60), contextlib.suppress(StoreError):
        async with MessageStore(config, files, TrioClock(), STORE_HOST) as store:
            while True:
                result = store.put(message("orders", body=b"%d" % len(kept)))
                if await store.wait_durable(result) is not PutStatus.PUT_OK:
                    break
                kept.append(result)
    assert files.dead
    found = files.power_cut(seed)
    with trio.fail_after(60):
        async with MessageStore(config, found, TrioClock(), STORE_HOST) as store:
            assert store.max_offset("orders", 0) >= len(kept)


def test_synced_bytes_survive_and_others_depend_on_the_seed() -> None:
    files = FaultyFileSystem(1)
    file = files.open("notes/first")
    file.pwrite(b"kept", 0)
    file.sync()
    files.sync_directory("notes")
    files.sync_directory(".")
    file.pwrite(b"more", 4096)
    left = {files.power_cut(seed).read("notes/first") for seed in range(50)}
    assert left == {
        b"kept",
        b"kept" + bytes(4092) + b"more",
        b"kept" + bytes(4096),
    }


def test_after_the_cut_nothing_works_until_somebody_starts_again() -> None:
    files = FaultyFileSystem()
    files.write("note", b"x")
    files.halt()
    with pytest.raises(PowerCutError):
        files.write("note", b"y")
    assert files.kill().read("note") == b"x"
    files.write("note", b"y")
