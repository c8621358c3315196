"""Committed offsets, resets, their file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.tables.offsets import FILE_NAME, ConsumerOffsetManager
from support.administration import FixedClock

if TYPE_CHECKING:
    from trio.testing import MockClock


def make(files: MemoryFileSystem | None = None, **options: int) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(
        ConfigFile(files or MemoryFileSystem(), FILE_NAME), FixedClock(), **options
    )


async def test_the_last_commit_wins_also_backwards(autojump_clock: MockClock) -> None:
    offsets = make()
    assert offsets.query("g", "t", 0) == -1
    offsets.commit("g", "t", 0, 10)
    offsets.commit("g", "t", 0, 4)
    assert offsets.query("g", "t", 0) == 4
    assert offsets.query("g", "t", 1) == -1
    assert offsets.query("other", "t", 0) == -1


async def test_a_reset_wins_once(autojump_clock: MockClock) -> None:
    offsets = make()
    offsets.commit("g", "t", 0, 10)
    offsets.assign_reset("g", "t", 0, 3)
    offsets.commit("g", "t", 0, 11)
    assert offsets.query("g", "t", 0) == 3
    assert offsets.has_reset("g", "t", 0)
    assert offsets.take_reset("g", "t", 1) is None
    assert offsets.take_reset("g", "t", 0) == 3
    assert offsets.take_reset("g", "t", 0) is None
    assert not offsets.has_reset("g", "t", 0)
    assert offsets.query("g", "t", 0) == 11


async def test_the_file(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem()
    offsets = make(files)
    offsets.load()
    offsets.commit("g", "t", 0, 10)
    offsets.commit("g", "%RETRY%g", 2, 1)
    await offsets.persist()
    assert not offsets.dirty
    again = make(files)
    again.load()
    assert again.query("g", "t", 0) == 10
    assert again.query("g", "%RETRY%g", 2) == 1
    topics = again.wrapper().group_topic_map
    assert topics is not None
    assert set(topics["g"]) == {"t", "%RETRY%g"}


async def test_apaches_file_is_read(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem()
    files.write(
        f"config/{FILE_NAME}",
        b'{\n\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},\n\t"offsetTable":{"t@g":{0:7,1:8}}\n}',
    )
    offsets = make(files)
    offsets.load()
    assert offsets.offsets_of("g", "t") == {0: 7, 1: 8}
    assert offsets.data_version.counter == 3


async def test_an_equal_commit_makes_nothing_dirty(autojump_clock: MockClock) -> None:
    offsets = make()
    offsets.commit("g", "t", 0, 10)
    await offsets.persist()
    offsets.commit("g", "t", 0, 10)
    assert not offsets.dirty


async def test_the_version_grows_with_every_so_many_commits(autojump_clock: MockClock) -> None:
    offsets = make(version_step=10)
    for number in range(25):
        offsets.commit("g", "t", 0, number)
    assert offsets.data_version.counter == 2


async def test_tables_of_topics_and_groups(autojump_clock: MockClock) -> None:
    offsets = make()
    for group, topic in (("g1", "a"), ("g1", "b"), ("g2", "a")):
        offsets.commit(group, topic, 0, 5 if group == "g1" else 3)
    offsets.note_pulled("g1", "a", 0, 9)
    assert offsets.topics_of("g1") == {"a", "b"}
    assert offsets.groups_of("a") == {"g1", "g2"}
    assert offsets.all_groups() == {"g1", "g2"}
    assert offsets.min_offsets_in_all_groups("a") == {0: 3}
    offsets.clone("g1", "g3", "a")
    assert offsets.query("g3", "a", 0) == 5
    offsets.remove_topic("a")
    assert offsets.query("g1", "a", 0) == -1
    assert offsets.pulled("g1", "a", 0) == -1
    offsets.remove_group("g1")
    assert offsets.all_groups() == set()


async def test_filtered_groups_lose_their_offsets(autojump_clock: MockClock) -> None:
    offsets = make()
    offsets.commit("g1", "a", 0, 5)
    offsets.commit("g2", "a", 0, 3)
    assert offsets.min_offsets_in_all_groups("a", frozenset({"g2"})) == {0: 5}
    assert offsets.query("g2", "a", 0) == -1


async def test_a_write_that_fails_is_tried_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = make()
    offsets.commit("g", "t", 0, 10)

    async def fail(_value: object) -> None:
        raise OSError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFile, "save", lambda _self, value: fail(value))
        with pytest.raises(OSError, match="injected"):
            await offsets.persist()
    assert offsets.dirty


async def test_offsets_behind_the_end_of_a_queue_come_back_to_it(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem()
    offsets = make(files)
    for queue_id, offset in enumerate((3, 5, 9)):
        offsets.commit("g", "t", queue_id, offset)
    offsets.limit(lambda topic, queue_id: {("t", 0): 5, ("t", 1): 5, ("t", 2): 5}[topic, queue_id])
    assert [offsets.query("g", "t", queue_id) for queue_id in range(3)] == [3, 5, 5]
    await offsets.persist()
    again = make(files)
    again.load()
    assert again.query("g", "t", 2) == 5
