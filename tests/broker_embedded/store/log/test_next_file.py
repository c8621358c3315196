"""The next log file is there before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFile, OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.errors import StoreFullError
from support.store import bodies, message, open_store, small_config
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

pytestmark = pytest.mark.real_time


class Counting(OsFileSystem):
    """Counts what is made in the log's directory by an append, and refuses to make
    files ahead on demand.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.made_by_appends = 0
        self.refuse = False

    def create(self, path: str, size: int):  # type: ignore[no-untyped-def]
        if path.startswith("commitlog/"):
            self.made_by_appends += 1
        elif self.refuse and path == "commitlog.next":
            raise StoreFullError("no space, says the test")
        return super().create(path, size)


def ready(store: MessageStore) -> bool:
    return store._log.chain.next_file is not None


async def roll(store: MessageStore) -> None:
    """Fill the file that is open, and one message more."""
    before = store.statistics()["log_files"]
    while store.statistics()["log_files"] == before:
        assert store.put(message(body=b"x" * 300)).ok


@pytest.mark.parametrize("warm", [False, True])
async def test_a_file_made_ahead_is_the_one_that_is_used(warm: bool, tmp_path: Path) -> None:
    files = Counting(tmp_path)
    async with open_store(files, small_config(warm_maped_file_enable=warm)) as store:
        for _ in range(4):
            await roll(store)
            await until(lambda: ready(store))
        made = (tmp_path / "commitlog.next").stat()
        assert made.st_size == 4096
        assert made.st_blocks * 512 >= 4096
        assert files.made_by_appends == 1
        assert verify_directory(tmp_path).findings == []
        count = len(bodies(store))
    assert not (tmp_path / "commitlog.next").exists()
    assert verify_directory(tmp_path).findings == []
    async with open_store(OsFileSystem(tmp_path)) as store:
        assert len(bodies(store)) == count


async def test_without_space_for_it_the_append_makes_one(tmp_path: Path) -> None:
    files = Counting(tmp_path)
    files.refuse = True
    async with open_store(files) as store:
        for _ in range(3):
            await roll(store)
        assert files.made_by_appends == 3
        assert not ready(store)


async def test_appends_do_not_wait_for_it(tmp_path: Path) -> None:
    files = Counting(tmp_path)
    async with open_store(files) as store:
        for _ in range(5):
            await roll(store)  # without giving the thread a chance
        assert files.made_by_appends == 5
        await until(lambda: ready(store))
        await roll(store)
        assert files.made_by_appends == 5


async def test_one_that_a_kill_left_is_removed(tmp_path: Path) -> None:
    async with open_store(OsFileSystem(tmp_path)) as store:
        store.put(message())
    (tmp_path / "commitlog.next").write_bytes(bytes(100))
    async with open_store(OsFileSystem(tmp_path)):
        assert (
            not (tmp_path / "commitlog.next").exists()
            or (tmp_path / "commitlog.next").stat().st_size != 100
        )
    assert not (tmp_path / "commitlog.next").exists()


@pytest.mark.real_time
async def test_a_file_that_is_left_stays_open_until_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may tell a failed write only to a descriptor that was open then."""
    closed: list[tuple[str, int]] = []
    take = OsFileSystem._take

    async with open_store(OsFileSystem(tmp_path), small_config()) as store:

        def closing(self: OsFileSystem, file: OsFile) -> int:
            if file.path.startswith("commitlog/"):
                closed.append((file.path, store.flushed.value))
            return take(self, file)

        monkeypatch.setattr(OsFileSystem, "_take", closing)
        for _ in range(40):
            assert store.put(message(body=b"x" * 1000)).ok
        assert closed == []
        await store.flush()
        assert len(closed) > 5
        for path, flushed in closed:
            assert int(path.rpartition("/")[2]) + 4096 <= flushed
