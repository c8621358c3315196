"""A start after a clean stop reads no log, unless something does not fit the note of
that stop.
"""

from __future__ import annotations

import json
import logging

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

RECORDS_READ = "records read from"


async def fill(files: MemoryFileSystem, count: int = 40) -> None:
    """Messages in two queues over several log files, and a clean stop."""
    async with open_store(files) as store:
        for number in range(count):
            assert store.put(
                message(queue_id=number % 2, body=b"%d" % number, properties={"KEYS": f"k{number}"})
            ).ok


async def reopened(
    files: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> tuple[int, list[bytes]]:
    """How many records the start read, and the bodies there are."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "rocketmq_sdk"):
        async with open_store(files) as store:
            (text,) = [
                record.getMessage()
                for record in caplog.records
                if RECORDS_READ in record.getMessage()
            ]
            assert " after a clean stop" in text or " after an unclean stop" in text
            found = bodies(store, queue_id=0) + bodies(store, queue_id=1)
            assert store.put(message("Other")).ok
    return int(text.split(": ")[1].split()[0]), sorted(found, key=int)


ALL = [b"%d" % number for number in range(40)]


async def test_nothing_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """The note is enough, again and again."""
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    assert await reopened(files, caplog) == (0, ALL)
    assert await reopened(files, caplog) == (0, ALL)


async def test_nothing_is_read_after_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """Each queue ends where its own last record does, not where the run ends."""
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        for number in range(2):
            assert store.put(message(queue_id=number, body=b"%d" % number)).ok
        run = store.begin_run()
        assert run is not None
        lanes = [run.lane("TopicA", queue_id) for queue_id in (0, 1)]
        for number in range(2, 6):
            lane = lanes[number % 2]
            assert lane is not None
            run.messages.append((lane, b"%d" % number, b"", 1, (0, 0, 0, 0), 0))
        assert store.put_run(run, b"\x7f\x00\x00\x01\x00\x00\x00\x01") == 4
    assert await reopened(files, caplog) == (0, ALL[:6])


async def test_nothing_is_read_after_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    """The queue of a message that was refused is in memory only."""
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    async with open_store(files) as store:
        assert not store.put(message(queue_id=7, properties={"long": "x" * 40_000})).ok
    assert await reopened(files, caplog) == (0, ALL)


@pytest.mark.parametrize(
    "doubt",
    [
        "no note",
        "broken note",
        "earlier end",
        "later end",
        "queue gone",
        "other queue",
        "no queues",
    ],
)
async def test_doubts(doubt: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever does not fit makes the start read, and everything is there."""
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    note = json.loads(files.read("cleanStop.json") or b"")
    if doubt == "no note":
        files.remove("cleanStop.json")
    elif doubt == "broken note":
        files.write("cleanStop.json", b'{"logEnd":')
    elif doubt == "earlier end":
        files.write("cleanStop.json", json.dumps({**note, "logEnd": note["logEnd"] - 200}).encode())
    elif doubt == "later end":
        files.write(
            "cleanStop.json", json.dumps({**note, "logEnd": note["logEnd"] + 100_000}).encode()
        )
    elif doubt == "queue gone":
        files.remove_tree("consumequeue/TopicA/1")
    elif doubt == "other queue":
        files.create("consumequeue/TopicB/0/00000000000000000000", 200)
    else:
        files.remove_tree("consumequeue")
    count, found = await reopened(files, caplog)
    assert count > 0
    assert found == ALL
    assert (await reopened(files, caplog))[0] == 0


async def test_a_record_behind_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Another broker went on, and no queue tells: the record is found."""
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    note = files.read("cleanStop.json")
    async with open_store(files) as store:
        store.put(message(queue_id=1, body=b"40"))
    assert note is not None
    files.write("cleanStop.json", note)
    queue = files.open("consumequeue/TopicA/1/00000000000000000400")
    queue.pwrite(bytes(20), 0)
    count, found = await reopened(files, caplog)
    assert count > 0
    assert found == [*ALL, b"40"]


async def test_a_damaged_last_record(caplog: pytest.LogCaptureFixture) -> None:
    """The last record is checked; when it is broken, the log is cut there as after any
    recovery.
    """
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    name, _size = files.file_sizes("commitlog")[-1]
    log = files.open(f"commitlog/{name}")
    data = log.pread(4096, 0)
    log.pwrite(b"?", data.rindex(b"39\x06TopicA"))
    count, found = await reopened(files, caplog)
    assert count > 0
    assert found == ALL[:-1]


async def test_a_kill_is_no_clean_stop(caplog: pytest.LogCaptureFixture) -> None:
    """An old note is not believed."""
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    files.write("abort", b"1")
    assert (await reopened(files, caplog))[0] > 0


async def test_messages_in_no_queue_stay(caplog: pytest.LogCaptureFixture) -> None:
    """The end noted may lie behind the last record that a queue knows."""
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    async with open_store(files, small_config()) as store:
        assert store.put(message(sys_flag=4)).ok
        end = store.max_physical_offset
    assert (await reopened(files, caplog))[0] == 0
    assert int(json.loads(files.read("cleanStop.json") or b"")["logEnd"]) > end


@pytest.mark.parametrize("extension", [False, True])
async def test_what_a_kill_left_unsynced_for_expired_records_is_durable_after_a_clean_stop(
    extension: bool, autojump_clock: object
) -> None:
    """Retention may remove a log file before the units of its records were synced; the
    next process does not write them again, but shows their files.
    """
    config = small_config(
        mapped_file_size_consume_queue=60,
        mapped_file_size_consume_queue_ext=1024,
        enable_consume_queue_ext=extension,
        flush_interval_consume_queue=20,
        flush_consume_queue_least_pages=100,
        flush_consume_queue_thorough_interval=1_000_000,
    )
    files = FaultyFileSystem()
    async with open_store(files, config) as store:
        store.calculate_bit_maps((lambda _topic, _properties: b"bits" * 20) if extension else None)
        for number in range(120):
            store.put(message(body=b"%d" % number * 50, tag="T"))
        await trio.sleep(1)
        files.faults.fail(Operation.REMOVE, "consumequeue*")  # it died in between
        files.told_used_ratio = 0.95
        with trio.fail_after(600):
            while not store.min_physical_offset:
                await trio.sleep(1)
        files.told_used_ratio = None
        files.faults.clear()
        files.halt()
    async with open_store(files.kill(), config) as store:
        assert not store.started_clean
        shown = bodies(store)
        assert shown
    for seed in range(30):
        async with open_store(files.power_cut(seed), config) as store:
            assert store.started_clean
            assert bodies(store) == shown


@pytest.mark.parametrize("damage", ["missing", "garbage"])
async def test_a_log_that_ends_earlier_than_at_the_stop_is_told(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFileSystem(write_through=True)
    await fill(files)
    last = f"commitlog/{files.file_sizes('commitlog')[-1][0]}"
    if damage == "missing":
        files.remove(last)
    else:
        files.open(last).pwrite(b"\x55" * 4096, 0)
    async with open_store(files) as store:
        end = store.max_physical_offset
    assert f"when the store was closed; what follows {end} is lost" in caplog.text
    caplog.clear()
    async with open_store(files):
        pass
    assert "is lost" not in caplog.text
