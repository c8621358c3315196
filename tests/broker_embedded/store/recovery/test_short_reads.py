"""A read that gives fewer bytes than the file has does not say that the log ends there:
the start refuses by name, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from trio.testing import MockClock

CONFIG = small_config(max_hash_slot_num=10, max_index_num=40)
COUNT = 60


async def filled(*, killed: bool) -> FaultyFileSystem:
    files = FaultyFileSystem(1)
    async with open_store(files, CONFIG) as store:
        for number in range(COUNT):
            store.put(message(body=b"%d" % number, properties={"KEYS": f"k{number}"}))
        await store.flush()
        if killed:
            files.halt()
    return files.kill()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("at", [0, 4, 1000, 4090])
async def test_log_files(killed: bool, at: int, autojump_clock: MockClock) -> None:
    files = await filled(killed=killed)
    for path in [path for path in files.names if path.startswith("commitlog/")]:
        before = files.read(path)
        fault = files.faults.shorten(path, at=range(at, 4096))
        refusal = path
        try:
            async with open_store(files, CONFIG) as store:
                assert store.max_offset("TopicA", 0) == COUNT
        except StoreError as error:
            refusal = str(error)
            files.kill()
        assert path in refusal
        fault.lift()
        assert files.read(path) == before
        async with open_store(files, CONFIG) as store:
            assert bodies(store) == [b"%d" % number for number in range(COUNT)]
            if killed:
                files.halt()
        files.kill()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("times", [1, None])
async def test_index_files_are_built_again(
    killed: bool, times: int | None, autojump_clock: MockClock
) -> None:
    files = await filled(killed=killed)
    fault = files.faults.shorten("index/*", times=times)
    async with open_store(files, CONFIG) as store:
        fault.lift()
        await store.wait_indexed()
        for number in range(COUNT):
            assert len((await store.query("TopicA", f"k{number}", 9)).records) == 1
