"""Batches that are indexed as one, beside messages that are indexed one by one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.checkpoint import Checkpoint
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.index.keys import alike
from rocketmq_sdk.broker_embedded.store.index.service import IndexService
from rocketmq_sdk.clock import SystemClock
from support.store import small_config

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_700_000_000_000
STYLES = (
    "UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02",
    "UNIQ_KEY\x01{unique}\x02KEYS\x01k{small}\x02",
    "UNIQ_KEY\x01{unique}\x02KEYS\x01a {small} b{small}\x02TAGS\x01é\x02",
    "more\x01{unique}{unique}\x02{odd}\x01k{small}\x02",
    "é\x01{small}\x02UNIQ_KEY\x01{unique}\x02",
    "WAIT\x01true\x02",
)


class Index:
    """An index service in memory, with the calls that it wants when nobody waits."""

    def __init__(self, slots: int = 5000, capacity: int = 20_000) -> None:
        self.files = MemoryFileSystem(write_through=True)
        self.calls: list[Callable[[], None]] = []
        config = small_config(max_hash_slot_num=slots, max_index_num=capacity)
        self.service = IndexService(self.files, config, SystemClock(), Checkpoint(self.files))
        self.service.load(clean=True)
        self.service.completed()
        self.service.when_idle = lambda call: self.calls.append(call) is None

    def state(self) -> tuple[int, ...]:
        """What changes with each message that has entries."""
        # A file may be begun sooner or later than the first entry in it.
        files = [file for file in self.service.files if file.count > 1]
        if not files:
            return ()
        last = files[-1]
        return len(files), last.count, last.used_slots, last.end_timestamp, last.end_offset

    def contents(self) -> list[bytes]:
        for file in self.service.files:
            file.write_out()
        sizes = sorted(self.files.file_sizes("index"))
        return [self.files.open(f"index/{name}").pread(size, 0) for name, size in sizes]

    def batch(self, position: int, texts: list[bytes], time: int = NOW) -> None:
        """Note messages of one byte each."""
        positions = range(position, position + len(texts))
        self.service.note_batch("T", texts, positions, time)

    def idle(self) -> int:
        """Let it work; returns how many messages it has indexed."""
        before = self.service.pending
        [call] = self.calls
        self.calls.clear()
        call()
        return before - self.service.pending


def texts(random: Random, style: str, count: int, numbers: list[int]) -> list[bytes]:
    """Properties of messages of one of two producers."""
    producer, found = random.choice((0, 0, 1)), []
    for _ in range(count):
        numbers[producer] += 1
        unique = f"7F00000{producer}0D2A2C8D3E0F5A7B{numbers[producer]:08X}"
        small, odd = random.randrange(10), random.choice(("KEYS", "SAME"))
        found.append(style.format(unique=unique, small=small, odd=odd).encode())
    return found


@pytest.mark.parametrize("seed", range(40))
def test_joined_batches_are_indexed_as_their_messages_one_by_one(seed: int) -> None:
    """After each step the index is as that of so many single messages, to the byte."""
    random = Random(seed)
    slots, capacity = random.choice(((7, 60), (100, 500), (5000, 20_000)))
    plain, joined = Index(slots, capacity), Index(slots, capacity)
    numbers, position, time, states = [random.randrange(1 << 16)] * 2, 0, NOW, [plain.state()]
    styles, topics = random.sample(STYLES, random.choice((1, 2))), ("T", "É")
    step, single = random.choice((0, 40, 400, 3000)), random.choice((0.0, 0.2))
    for _ in range(60):
        topic = random.choice(topics[: random.choice((1, 1, 2))])
        found = texts(random, random.choice(styles), random.choice((1, 2, 5, 12, 30)), numbers)
        positions = [position := position + random.randrange(1, 300) for _ in found]
        time += random.randrange(step + 1) if random.random() < 0.95 else -1500
        for text, at in zip(found, positions, strict=True):
            plain.service.note((topic, text.decode(), at, time))
            plain.service.drain()
            states.append(plain.state())
        if random.random() < single:
            for text, at in zip(found, positions, strict=True):
                joined.service.note((topic, text.decode(), at, time))
        else:
            same = alike(found) if random.random() < 0.2 else None
            joined.service.note_batch(topic, found, positions, time, same)
        if joined.calls and random.random() < 0.8:
            joined.idle()
        if random.random() < 0.05:
            joined.service.drain(random.choice((1, None)))
        done = len(states) - 1 - joined.service.pending
        if done:
            assert joined.state() == states[done]
    joined.service.drain()
    assert joined.contents() == plain.contents()


def ready() -> Index:
    """An index that has an entry already: the first one of a file is made alone."""
    index = Index()
    index.service.note(("T", "KEYS\x01k\x02", 0, NOW))
    index.service.drain()
    return index


def unique(first: int, count: int) -> list[bytes]:
    """Properties of messages that are alike."""
    return [b"UNIQ_KEY\x01%032X\x02" % number for number in range(first, first + count)]


def test_what_was_indexed_in_part_is_not_indexed_again() -> None:
    """As a batch is where an error comes in the middle of it."""
    index = ready()
    index.batch(1, unique(0, 40))
    first = index.service._pending[0]
    index.service._entries.make("T", unique(0, 1)[0].decode(), 1, NOW)
    first.made = 1  # type: ignore[union-attr]
    index.batch(41, unique(40, 40))
    assert index.idle() == 0
    index.service.drain()
    assert index.state()[1] == 1 + 1 + 80


def test_what_came_is_indexed_with_one_call_and_counted_anew() -> None:
    index = ready()
    for number in range(20):
        index.batch(1 + 10 * number, unique(10 * number, 10))
    assert index.idle() == 200
    for number in range(20, 25):
        index.batch(1 + 10 * number, unique(10 * number, 10))
        assert not index.calls
    for number in range(25, 30):
        index.batch(1 + 10 * number, unique(10 * number, 10))
    assert index.idle() == 100


@pytest.mark.parametrize("size", [1, 10, 40])
def test_one_call_indexes_no_more_than_takes_a_moment(size: int) -> None:
    index = ready()
    for number in range(800 // size):
        index.batch(1 + size * number, unique(size * number, size))
    assert 200 <= index.idle() < 512


def test_the_last_entry_of_a_joined_batch_may_be_in_its_middle() -> None:
    """The last time of the file is that of its message, not of those without any."""
    index = ready()
    text = b"more\x01%b\x02%b\x01k\x02"
    pair = [text % (b"x" * 40, name) for name in (b"KEYS", b"SAME")]
    for number in range(40):
        index.batch(1 + 2 * number, pair, NOW + number)
    assert index.idle() == 80
    assert index.service.last_update == (NOW + 39, 79)


def test_entries_of_joined_batches_keep_their_seconds() -> None:
    joined, plain = ready(), ready()
    for number, text in enumerate(unique(0, 40)):
        time = NOW + 300 * number
        joined.batch(1 + 2 * number, [text, text], time)
        for place in range(2):
            plain.service.note(("T", text.decode(), 1 + 2 * number + place, time))
            plain.service.drain()
    assert joined.idle() == 80
    assert joined.contents() == plain.contents()
