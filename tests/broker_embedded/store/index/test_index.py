"""The key index under this store: what is found when, rolling, kills, lost files,
times.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.append.batch_units import tags_codes
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.index.keys import (
    KeyHasher,
    alike,
    key_hash,
    query_text,
)
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.model.properties import TAGS, encode_properties, property_in_text
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.files.file_system import StoreFile
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
    from rocketmq_sdk.model.received import ReceivedMessage

SMALL = {"max_hash_slot_num": 7, "max_index_num": 20, "memory_limit": 8 * 1024 * 1024}


def keyed(number: int, topic: str = "TopicA", tag: str | None = None) -> MessageToStore:
    """A message with keys of its own."""
    return message(
        topic,
        body=b"%d" % number,
        tag=tag,
        properties={"UNIQ_KEY": f"U{number:015d}", "KEYS": f"k{number} half{number // 2}"},
    )


async def numbers(
    store: MessageStore,
    key: str,
    topic: str = "TopicA",
    limit: int = 32,
    index_type: str | None = None,
) -> list[int]:
    """The numbers in the bodies of what a lookup finds that really has the key."""
    result = await store.query(topic, key, limit, index_type=index_type)
    decoded = [decode_message(record) for record in result.records]
    assert (
        [item.commit_log_offset for item in decoded]
        == result.physical_offsets
        == sorted(result.physical_offsets)
    )
    return [int(item.body) for item in decoded if item.topic == topic and key in names_of(item)]


def names_of(item: ReceivedMessage) -> list[str]:
    """What a message can be found by."""
    return [*item.keys, item.properties["UNIQ_KEY"], item.tags or "", f"T#{item.tags}"]


async def check_all(store: MessageStore, count: int) -> None:
    """Each message is found once by each of its keys."""
    for number in range(count):
        assert await numbers(store, f"k{number}") == [number]
        assert await numbers(store, f"U{number:015d}") == [number]
    for number in range(0, count - 1, 2):
        assert await numbers(store, f"half{number // 2}") == [number, number + 1]


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_a_message_is_found_at_once(flush: FlushDiskType) -> None:
    """By unique key, keys and tags, before anything of the index was written; under
    SYNC_FLUSH behind its sync.
    """
    async with open_store(config=small_config(flush_disk_type=flush, **SMALL)) as store:
        for number in range(5):
            result = store.put(keyed(number, tag="red" if number % 2 else "blue"))
            await store.wait_durable(result)
        await check_all(store, 5)
        assert await numbers(store, "red", index_type="T") == [1, 3]
        assert await numbers(store, "T#blue") == [0, 2, 4]
        assert await numbers(store, "red") == []
        assert await numbers(store, "k1", topic="TopicB") == []
        assert (
            await store.query("TopicA", "k1", 32)
        ).index_last_update_physical_offset == result.physical_offset


@pytest.mark.parametrize("kill", [False, True])
async def test_files_roll_and_survive_stops_and_kills(kill: bool) -> None:
    """Many small files; after each stop or kill everything is found once."""
    files = MemoryFileSystem(write_through=True)
    count = 0
    for _life in range(4):
        async with open_store(files, small_config(**SMALL)) as store:
            await check_all(store, count)
            for _ in range(17):
                store.put(keyed(count))
                count += 1
            await store.flush()
            for _ in range(6):
                store.put(keyed(count))
                count += 1
            if kill:
                files = copy_of(files)
    async with open_store(files, small_config(**SMALL)) as store:
        await check_all(store, count)
        names = [name for name, _size in files.file_sizes("index")]
        assert len(names) > 10
        assert names == sorted(names)


def copy_of(files: MemoryFileSystem) -> MemoryFileSystem:
    """The files as they are now: what a kill leaves."""
    copy = MemoryFileSystem(write_through=True)
    for path, file in files._files.items():
        copy.create(path, file.size())
        for low, high in file.data_ranges(0, file.size()):
            copy.open(path).pwrite(file.pread(high - low, low), low)
    return copy


@pytest.mark.parametrize("lost", ["all", "last", "half", "first"])
async def test_lost_files_after_a_kill(lost: str) -> None:
    """Index files that are gone after an unclean stop: built again from the end of the
    ones that are left.
    """
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config(**SMALL)) as store:
        for number in range(60):
            store.put(keyed(number))
        await store.flush()
        killed = copy_of(files)
    names = [name for name, _size in killed.file_sizes("index")]
    chosen = {
        "all": names,
        "last": names[-1:],
        "half": names[len(names) // 2 :],
        "first": names[:1],
    }[lost]
    for name in chosen:
        killed.remove(f"index/{name}")
    async with open_store(killed, small_config(**SMALL)) as store:
        if lost == "first":
            assert await numbers(store, "k59") == [59]
        else:
            await check_all(store, 60)


async def test_a_start_that_ends_while_it_removes_files_leaves_no_gap(
    autojump_clock: MockClock,
) -> None:
    """The first file cannot be read, so all of them go; the start fails at one."""
    files = FaultyFileSystem()
    with suppress(StoreError):
        async with open_store(files, small_config(**SMALL)) as store:
            for number in range(60):
                store.put(keyed(number))
                await trio.sleep(1)
            await store.flush()
            files.halt()
    files = files.kill()
    first, *_others = [name for name, _size in files.file_sizes("index")]
    files.faults.fail(Operation.READ, f"index/{first}")
    files.faults.fail(Operation.REMOVE, "index/*", after=1)
    with pytest.raises(StoreError):
        async with open_store(files, small_config(**SMALL)):
            pass
    files.faults.clear()
    async with open_store(files, small_config(**SMALL)) as store:
        await check_all(store, 60)


async def test_entries_behind_the_end_of_the_log_go() -> None:
    """A log that ends earlier than its index: positions there will hold other
    messages.
    """
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config(**SMALL)) as store:
        for number in range(40):
            store.put(keyed(number))
    log = files.file_sizes("commitlog")
    files.remove(f"commitlog/{log[-1][0]}")
    async with open_store(files, small_config(**SMALL)) as store:
        kept = store.max_offset("TopicA", 0)
        assert 0 < kept < 40
        await check_all(store, kept - 1)
        assert await numbers(store, f"k{kept}") == []
        assert (await store.query("TopicA", "k39", 32)).physical_offsets == []
        for number in range(kept, 50):
            store.put(keyed(number))
        await check_all(store, 50)


async def test_switched_off() -> None:
    """No entries and no files; what is there can still be looked up."""
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config(message_index_enable=False, **SMALL)) as store:
        store.put(keyed(0))
        assert await numbers(store, "k0") == []
    assert not files.file_sizes("index")
    async with open_store(files, small_config(**SMALL)) as store:
        assert await numbers(store, "k0") == [0]
    async with open_store(files, small_config(message_index_enable=False, **SMALL)) as store:
        assert await numbers(store, "k0") == [0]


async def test_limits_and_times(tmp_path: Path, autojump_clock: object) -> None:
    """The newest ones up to the limit; a range of times, whole seconds exact at its
    begin.
    """
    async with open_store(
        OsFileSystem(tmp_path / "store"),
        small_config(mapped_file_size_commit_log=65536, max_hash_slot_num=3),
    ) as store:
        times: list[int] = []
        for number in range(100):
            times.append(
                store.put(message(body=b"%d" % number, properties={"KEYS": "same"})).store_timestamp
            )
            await trio.sleep(1)
        assert await numbers(store, "same") == list(range(68, 100))
        assert await numbers(store, "same", limit=1000) == list(range(36, 100))
        result = await store.query("TopicA", "same", 32, times[10], times[20])
        assert [int(decode_message(record).body) for record in result.records][-1] in (20, 21)
        assert len(result.records) in (10, 11, 12)
        assert (await store.query("TopicA", "same", 32, times[99] + 2000)).records == []


def _whole_hashes(topic: str, unique: str, keys: str = "", tags: str = "") -> list[int]:
    """The hashes of a message's entries, each taken of its whole text."""
    found = [key_hash(query_text(topic, unique, None))]
    found += [key_hash(query_text(topic, key, None)) for key in keys.split(" ") if key]
    return [*found, key_hash(query_text(topic, tags, "T"))] if tags else found


@pytest.mark.parametrize("keys", ["", "a b"])
def test_hashes_of_neighbouring_unique_keys_are_those_of_the_whole_texts(keys: str) -> None:
    hasher, random = KeyHasher(), Random(7)
    stems = [f"7F0000014E2B35D9417D6C5D{random.randrange(1 << 32):08X}" for _ in range(3)]
    stems += ["short", "", "ü" * 30]
    for _ in range(300):
        topic, tags = random.choice("ab"), random.choice(["", "x", "y"])
        unique = f"{random.choice(stems)}{random.randrange(1 << 16):04X}"
        text = (
            f"UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02"
            + (f"KEYS\x01{keys}\x02" if keys else "")
            + (f"TAGS\x01{tags}\x02" if tags else "")
        )
        assert hasher.hashes(topic, text) == _whole_hashes(topic, unique, keys, tags)


ODD_TEXTS = [
    "",
    "KEYS\x01k\x02",
    "UNIQ_KEY\x01",
    "UNIQ_KEY\x01\x02TAGS\x01x\x02",
    "UNIQ_KEY\x01abc",
]
ODD_TEXTS.append(f"WAIT\x01true\x02UNIQ_KEY\x01{'A' * 32}\x02TAGS\x01t\x02")


def test_hashes_of_a_batch_are_those_of_its_messages() -> None:
    random = Random(11)
    stems = [f"7F0000014E2B35D9417D6C5D{random.randrange(1 << 32):08X}"[:28] for _ in range(2)] + [
        "",
        "short",
        "ü" * 30,
    ]
    rests = [
        "",
        "WAIT\x01true\x02",
        "TAGS\x01ü\x02",
        "KEYS\x01a b\x02TAGS\x01x\x02",
        "UNIQ_KEY\x01second\x02",
        *[
            f"TAGS\x01x\x02traceparent\x0100-{place:032x}-{place:016x}-01\x02WAIT\x01true\x02"
            for place in range(3)
        ],
        "traceparent\x01TAGS\x02TAGS\x01y\x02",
    ]
    for number in range(100):
        # Alike all of them, alike but for a few, and all sorts.
        some = [stems, rests] if number % 2 else [[random.choice(stems)], [random.choice(rests)]]
        texts = [
            (
                f"UNIQ_KEY\x01{random.choice(some[0])}{random.randrange(1 << 16):04X}\x02"
                f"{random.choice(some[1])}"
            )
            for _ in range(20)
        ]
        if number % 3:
            texts += random.choices([*ODD_TEXTS, texts[0].replace("0", "\x02")], k=number % 5)
        random.shuffle(texts)
        raw = [text.encode() for text in texts]
        assert tags_codes(raw, alike(raw)) == [
            tags_code(property_in_text(text, TAGS)) for text in texts
        ]
        hasher, positions = KeyHasher(), [number * 100 for number in range(len(texts))]
        wanted = [
            (value, position)
            for text, position in zip(texts, positions, strict=True)
            for value in KeyHasher().hashes("t", text)
        ]
        for _again in range(2):
            hashes, at, others = hasher.hashes_of_batch("t", raw, positions, alike(raw))
            found = zip(hashes, at, strict=True)
            assert [(one, place) for key, place in found for one in (key, *others)] == wanted


@pytest.mark.parametrize("number", [1, 2, 91])
async def test_messages_of_a_batch_with_many_keys_are_found(number: int) -> None:
    """Also the one that is left over where a batch is indexed in parts."""
    keys = " ".join(f"key{index}" for index in range(40))
    items = [
        (0, b"body", f"UNIQ_KEY\x01{index:032X}\x02KEYS\x01{keys}\x02TAGS\x01x\x02".encode())
        for index in range(number)
    ]
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config(mapped_file_size_commit_log=1 << 20)) as store:
        for _again in range(2):
            result = store.put_batch(message(body=encode_batch(items)))
            assert result.physical_offsets is not None
            for key in (f"{number - 1:032X}", "key0", "key39"):
                found = await store.query("TopicA", key, 1)
                assert found.physical_offsets == [result.physical_offsets[-1]]


async def test_a_batch_is_indexed_once_when_the_next_file_cannot_be_made_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFileSystem(write_through=True)
    made: list[str] = []
    create = MemoryFileSystem.create

    def refuse_the_second(self: MemoryFileSystem, path: str, size: int) -> StoreFile:
        if path.startswith("index/"):
            made.append(path)
            if len(made) == 2:
                raise StoreError("told to fail")
        return create(self, path, size)

    async with open_store(files, small_config(**SMALL)) as store:
        monkeypatch.setattr(MemoryFileSystem, "create", refuse_the_second)
        items = [
            (
                0,
                b"%d" % number,
                f"UNIQ_KEY\x01U{number:015d}\x02KEYS\x01k{number} half{number // 2}\x02".encode(),
            )
            for number in range(12)
        ]
        assert store.put_batch(message(body=encode_batch(items))).ok
        with pytest.raises(StoreError, match="told to fail"):
            await store.query("TopicA", "k1", 32)
        await check_all(store, 12)
        assert len(made) == 3
        assert [
            len((await store.query("TopicA", key, 32)).physical_offsets)
            for key in ("k1", "k11", "half3")
        ] == [1, 1, 2]


def test_a_second_unique_key_in_the_text_counts_as_the_properties_say() -> None:
    hasher = KeyHasher()
    first, second = "0" * 32, "1" * 32
    for _ in range(2):
        assert hasher.hashes(
            "t", f"UNIQ_KEY\x01{first}\x02WAIT\x01true\x02UNIQ_KEY\x01{second}\x02"
        ) == _whole_hashes("t", second)
        assert hasher.hashes("t", f"UNIQ_KEY\x01{first}\x02WAIT\x01true\x02") == _whole_hashes(
            "t", first
        )


def test_hashes_in_parts() -> None:
    """The hash made of remembered parts is Java's, whatever the key looks like."""
    generator = Random(5)
    hasher = KeyHasher()
    alphabet = "0123456789ABCDEFé键𐐷 -"
    for _ in range(3000):
        key = "".join(generator.choices(alphabet, k=generator.randrange(1, 40))).strip() or "k"
        topic = generator.choice(["TopicA", "B", "%RETRY%группа"])
        words = [word for word in key.split(" ") if word]
        properties = encode_properties({"UNIQ_KEY": key, "KEYS": key, "TAGS": key})
        wanted = [key_hash(query_text(topic, text, None)) for text in [key, *words]] + [
            key_hash(query_text(topic, key, "T"))
        ]
        assert hasher.hashes(topic, properties) == wanted
    assert hasher.hashes("T", "XUNIQ_KEY\x01a\x02KEYS\x01\x02TAGS\x01t") == [key_hash("T#T#t")]
    assert key_hash("polygenelubricants") == 0


async def test_lookups_while_the_index_is_written() -> None:
    """Lookups, puts and flushes at the same time: everything is found once, then and
    after a restart.
    """
    files = MemoryFileSystem(write_through=True)
    config = small_config(
        max_hash_slot_num=40_000,
        max_index_num=100,
        memory_limit=64 * 1024 * 1024,
        mapped_file_size_commit_log=1 << 20,
    )
    count = 0
    async with open_store(files, config) as store, trio.open_nursery() as nursery:

        async def flush() -> None:
            for _ in range(40):
                await store.flush()
                await trio.lowlevel.checkpoint()

        nursery.start_soon(flush)
        for _ in range(60):
            for _ in range(10):
                store.put(keyed(count))
                count += 1
            assert await numbers(store, f"k{count - 1}") == [count - 1]
            assert await numbers(store, f"k{count // 2}") == [count // 2]
    async with open_store(files, config) as store:
        await check_all(store, count)


@pytest.mark.parametrize("which", ["first", "last"])
async def test_a_header_that_claims_too_much_is_built_again(
    tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is told, removed with those behind it, and every message is found again;
    a stop later nothing is missing either.
    """
    config = small_config(**SMALL)
    async with open_store(OsFileSystem(tmp_path), config) as store:
        for number in range(30):
            assert store.put(keyed(number)).ok
    paths = sorted((tmp_path / "index").iterdir())
    assert len(paths) > 2
    damaged = paths[0 if which == "first" else -1]
    with damaged.open("r+b") as file:
        file.seek(36)
        file.write((21).to_bytes(4))
    for _ in range(2):
        async with open_store(OsFileSystem(tmp_path), config) as store:
            assert store.started_clean
            await check_all(store, 30)
    assert caplog.text.count(f"{damaged.name} says that it holds 20 entries") == 1
    assert verify_directory(tmp_path).findings == []


async def test_a_file_that_a_start_drops_does_not_come_back(autojump_clock: MockClock) -> None:
    """Also when the power is cut before anything else is synced: beside what is
    appended from now on its entries would be wrong.
    """
    files, config, clock = (
        FaultyFileSystem(),
        small_config(**SMALL),
        TrioClock(),
    )  # one clock: files are named by time
    async with open_store(files, config, clock) as store:
        for number in range(30):
            assert store.put(keyed(number)).ok
    dropped = {name for name, _size in files.file_sizes("index")}
    assert len(dropped) > 2
    files.write("abort", b"")
    files.remove("checkpoint")
    await trio.sleep(10)
    async with open_store(files, config, clock):
        assert not dropped & {name for name, _size in files.file_sizes("index")}
        for seed in range(30):
            assert not dropped & {name for name, _size in files.power_cut(seed).file_sizes("index")}


@pytest.mark.parametrize("gone", ["checkpoint", "first", "all"])
async def test_files_built_again_count_when_they_are_durable(
    gone: str, autojump_clock: MockClock
) -> None:
    """The checkpoint vouched for files of the same times that a start did not have."""
    files, clock = FaultyFileSystem(page_size=64), TrioClock()
    quick = small_config(flush_consume_queue_thorough_interval=0, **SMALL)
    config = small_config(flush_interval_consume_queue=60_000, **SMALL)
    async with open_store(files, quick, clock) as store:
        for number in range(30):
            assert store.put(keyed(number)).ok
            await trio.sleep(0.01)
        await trio.sleep(3)
        files.halt()
    files.kill()
    names = [name for name, _size in files.file_sizes("index")]
    assert len(names) > 2
    if gone == "checkpoint":
        files.faults.fail(Operation.READ, "checkpoint", times=1)
    elif gone == "first":
        files.open(f"index/{names[0]}").pwrite((21).to_bytes(4), 36)  # more than fit
    else:
        for name in names:
            files.remove(f"index/{name}")
        files.sync_directory("index")
    await trio.sleep(10)
    async with open_store(files, config, clock) as store:
        await check_all(store, 30)
        torn = [cut for cut in map(files.power_cut, range(300)) if _lacks_entries(cut, files)]
    for cut in torn[:3]:
        async with open_store(cut, config, clock) as store:
            await check_all(store, 30)
    assert torn


def _lacks_entries(cut: FaultyFileSystem, whole: FaultyFileSystem) -> bool:
    """Whether the first file has its header and lost something else."""
    name, _size = whole.file_sizes("index")[0]
    found, wanted = (files.read(f"index/{name}") or b"" for files in (cut, whole))
    return any(found[:40]) and found[:40] == wanted[:40] and found != wanted
