"""One file of the key index: what is written when."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.index.file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexFile,
    file_size,
)

SLOTS, CAPACITY = 3000, 2000
PATH = "index/20260101000000000"


def entries(seed: int, number: int) -> tuple[list[int], list[int]]:
    """Hashes, many of them alike, with the positions of their records."""
    random = Random(seed)
    hashes = [random.choice((7, random.randrange(1 << 31))) for _ in range(number)]
    return hashes, [1000 * seed + index for index in range(number)]


def content(files: MemoryFileSystem) -> bytes:
    return files.open(PATH).pread(file_size(SLOTS, CAPACITY), 0)


def filled(*, together: bool, between: bool) -> MemoryFileSystem:
    """A file of some entries, added one by one or together, with or without writing
    entries out in between.
    """
    files = MemoryFileSystem()
    file = IndexFile.create(files, PATH, SLOTS, CAPACITY, None)
    file.put([1], 5, 1_700_000_000_000)
    for seed in range(1, 6):
        hashes, positions = entries(seed, 60)
        now = 1_700_000_000_000 + seed * 1500
        if together:
            assert file.put_all(hashes, positions, now)
        else:
            for value, position in zip(hashes, positions, strict=True):
                assert file.put([value], position, now) == 1
        if between:
            file.write_entries()
            assert not file.unwritten_bytes
            assert file.changed
    file.write_out()
    assert not file.changed
    return files


def test_entries_added_together_or_written_early_make_the_same_file() -> None:
    expected = content(filled(together=False, between=False))
    for together, between in ((True, False), (False, True), (True, True)):
        assert content(filled(together=together, between=between)) == expected


NEIGHBOURS = st.builds(
    lambda first, step, count: [abs(first + index * step) for index in range(count)],
    st.integers(0, (1 << 31) - 200_000),
    st.integers(1, 500),
    st.integers(1, 120),
)
HASHES = NEIGHBOURS | st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=120)


def damaged(files: MemoryFileSystem, damage: dict[int, int]) -> IndexFile:
    """A file with one entry, loaded after some of its slots were overwritten."""
    file = IndexFile.create(files, PATH, SLOTS, CAPACITY, None)
    file.put([1], 5, 1_700_000_000_000)
    file.write_out()
    for slot, number in damage.items():
        files.open(PATH).pwrite(
            number.to_bytes(SLOT_SIZE, signed=True), HEADER_SIZE + slot * SLOT_SIZE
        )
    file = IndexFile(files.open(PATH), "20260101000000000", SLOTS, CAPACITY)
    file.load()
    return file


@settings(deadline=None, max_examples=60)
@given(
    st.lists(HASHES, min_size=1, max_size=6),
    st.dictionaries(st.integers(0, SLOTS - 1), st.integers(-(1 << 31), (1 << 31) - 1), max_size=9),
)
def test_entries_in_one_call_are_those_of_single_ones(
    batches: list[list[int]], damage: dict[int, int]
) -> None:
    """Whatever slots they share, and what damage has left in slots."""
    contents: list[bytes] = []
    for together in (True, False):
        files = MemoryFileSystem()
        file = damaged(files, damage)
        for turn, hashes in enumerate(batches):
            positions = range(1000 * turn + 10, 1000 * turn + 10 + 3 * len(hashes), 3)
            if together:
                assert file.put_all(hashes, positions, 1_700_000_000_000 + turn)
            else:
                for value, position in zip(hashes, positions, strict=True):
                    assert file.put([value], position, 1_700_000_000_000 + turn) == 1
        file.write_out()
        contents.append(content(files))
    assert contents[0] == contents[1]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(HASHES, st.lists(st.integers(0, (1 << 31) - 1) | st.just(7), max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.dictionaries(st.integers(0, SLOTS - 1), st.integers(-(1 << 31), (1 << 31) - 1), max_size=9),
)
def test_entries_with_the_same_ones_behind_each_are_those_of_single_ones(
    batches: list[tuple[list[int], list[int]]], damage: dict[int, int]
) -> None:
    """Whatever slots they share, and what damage has left in slots."""
    contents: list[bytes] = []
    for together in (True, False):
        files = MemoryFileSystem()
        file = damaged(files, damage)
        for turn, (hashes, others) in enumerate(batches):
            positions = range(1000 * turn + 10, 1000 * turn + 10 + 3 * len(hashes), 3)
            if together:
                assert file.put_all(hashes, positions, 1_700_000_000_000 + 900 * turn, others)
                continue
            for value, position in zip(hashes, positions, strict=True):
                entries_of_one = [value, *others]
                now = 1_700_000_000_000 + 900 * turn
                assert file.put(entries_of_one, position, now) == len(entries_of_one)
        file.write_out()
        contents.append(content(files))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("count", [30, 31, 32, 300, 600])
def test_many_entries_behind_those_of_one_record_or_two(number: int, count: int) -> None:
    """A message alone in its batch may have hundreds of keys."""
    contents: list[bytes] = []
    for together in (True, False):
        files = MemoryFileSystem()
        file = IndexFile.create(files, PATH, SLOTS, CAPACITY, None)
        file.put([1], 5, 1_700_000_000_000)
        hashes, others = range(9, 9 + number), range(100, 100 + count)
        if together:
            assert file.put_all(hashes, range(number), 1_700_000_000_000, others)
        else:
            for position, value in enumerate(hashes):
                file.put([value, *others], position, 1_700_000_000_000)
        file.write_out()
        contents.append(content(files))
    assert contents[0] == contents[1]


def test_entries_that_do_not_fit_with_those_behind_each_are_not_added() -> None:
    files = MemoryFileSystem()
    file = IndexFile.create(files, PATH, SLOTS, 102, None)
    file.put([1], 5, 1_700_000_000_000)
    assert not file.put_all(range(51), range(51), 1_700_000_000_000, [7])
    assert file.count == 2
    assert file.put_all(range(50), range(50), 1_700_000_000_000, [7])
    assert (file.count, file.full) == (102, True)


def test_entries_that_were_written_alone_are_found_and_no_header_tells_of_them() -> None:
    files = MemoryFileSystem()
    file = IndexFile.create(files, PATH, SLOTS, CAPACITY, None)
    file.put([1], 5, 1_700_000_000_000)
    file.write_out()
    hashes, positions = entries(1, 60)
    assert file.put_all(hashes, positions, 1_700_000_001_000)
    file.write_entries()
    found: list[int] = []
    for _ in file.select(7, 1000, 0, 1 << 50, found):
        pass
    assert (
        found
        == [position for value, position in zip(hashes, positions, strict=True) if value == 7][::-1]
    )
    again = IndexFile(files.open(PATH), file.name, SLOTS, CAPACITY)
    again.load()
    assert (again.count, again.end_offset) == (2, 5)


@pytest.mark.parametrize("chain", [{5: 9, 9: 5}, {5: 5}, {5: 9, 9: 59, 59: 7, 7: 5}])
def test_damage_that_leads_forward_or_in_a_circle_ends_a_lookup(chain: dict[int, int]) -> None:
    files = filled(together=False, between=False)
    for number, previous in chain.items():
        at = file_size(SLOTS, number) + ENTRY_SIZE - 4
        files.open(PATH).pwrite(previous.to_bytes(4), at)
    for slot in range(SLOTS):
        files.open(PATH).pwrite((5).to_bytes(4), HEADER_SIZE + slot * SLOT_SIZE)
    file = IndexFile(files.open(PATH), "name", SLOTS, CAPACITY)
    file.load()
    found: list[int] = []
    steps = file.select(-1, 10, 0, 1 << 60, found)
    assert len(list(islice(steps, 2))) == 0
    assert found == []
