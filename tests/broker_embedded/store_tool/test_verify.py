"""The look at a store directory: nothing at clean ones, everything at damaged ones, by
file and offset.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool import index, log
from rocketmq_sdk.broker_embedded.store_tool.repair import repair_directory
from rocketmq_sdk.broker_embedded.store_tool.report import DirectoryReader, Finding, StoreReport
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.errors import StoreError, StoreLockedError
from support.paths import STORE_VECTORS
from support.store import bodies, config_for, expected, message, open_store, small_config, unpack

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time

CLEAN = ["plain", "long-topic", "master", "slave", "kitchen-sink", "kitchen-sink-5.3.3", "batch-cq"]
DAMAGED = {"killed": "killed", "killed-noindex": "killed-noindex.full", "torn": "torn"}
VARIANTS: list[dict[str, Any]] = json.loads((STORE_VECTORS / "torn-variants.json").read_text())
SMALL_INDEX = {"max_hash_slot_num": 10, "max_index_num": 40}


def kinds(report: StoreReport) -> set[str]:
    return {finding.kind for finding in report.findings}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_directories_of_apache(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every record, unit and index entry that Apache wrote is accepted, and counted."""
    expectation = expected(name)
    monkeypatch.setattr(log, "_TELL_EACH", 50_000)
    monkeypatch.setattr(index, "_TELL_EACH", 50)
    told: dict[str, list[int]] = {}
    totals: dict[str, int] = {}

    def advance(what: str, done: int, total: int) -> None:
        told.setdefault(what, []).append(done)
        assert totals.setdefault(what, total) == total

    report = verify_directory(unpack(name, tmp_path), advance)
    assert report.findings == []
    # How far it is, is told within files, not only at the end of each.
    for what, done in told.items():
        assert done == sorted(done)
        assert done[-1] == totals[what]
    assert len(told["bytes of log"]) >= (report.log_end - report.log_start) // 60_000
    assert len(told.get("queue units", ())) >= 2 or name == "batch-cq"
    assert len(told.get("bytes of index", ())) >= 2 or name == "batch-cq"
    assert report.log_end == expectation["max_physical_offset_after_recovery"]
    assert report.log_file_size == expectation["sizes"]["mappedFileSizeCommitLog"]
    assert report.queue_file_size == (
        expectation["sizes"]["mappedFileSizeConsumeQueue"] if name != "batch-cq" else 0
    )
    assert report.units == expectation["messages_in_queues"]


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_killed_broker(name: str, tmp_path: Path) -> None:
    """What it left is reported before a recovery, and nothing is after one."""
    root = unpack(name, tmp_path)
    before = verify_directory(root)
    assert "abort" in kinds(before)
    assert {
        "killed": {"abort"},
        "killed-noindex": {"abort", "queue_behind"},
        "torn": {"abort", "tail", "extra", "index"},
    }[name] == kinds(before)
    expectation = expected(DAMAGED[name])
    async with open_store(OsFileSystem(root), config_for(expectation)):
        assert verify_directory(root).running
    after = verify_directory(root)
    assert after.findings == []
    assert after.units == expectation["messages_in_queues"]


@pytest.mark.parametrize("variant", VARIANTS, ids=[str(variant["name"]) for variant in VARIANTS])
def test_every_damage_at_the_end_is_named(variant: dict[str, Any], tmp_path: Path) -> None:
    """File and record of each patch; where Apache's checks accept the record its
    properties are named.
    """
    root = unpack("killed", tmp_path)
    for patch in variant["patches"]:
        path = root.parent / patch["file"]
        data = bytearray(path.read_bytes())
        after = bytes.fromhex(patch["after"])
        data[patch["offset"] : patch["offset"] + len(after)] = after
        path.write_bytes(data)
    found = [
        finding
        for finding in verify_directory(root).findings
        if finding.path.startswith("commitlog/")
    ]
    (patch,) = variant["patches"]
    record_at = max(variant["lost_physical_offsets"] or [1499648]) - 1441792
    lowest = min(variant["lost_physical_offsets"] or [1499648]) - 1441792
    assert [finding.path for finding in found] == [patch["file"].removeprefix("store/")]
    assert lowest <= found[0].offset < record_at + 318
    assert found[0].kind == ("properties" if variant["name"] == "torn-props" else "tail")


async def write_directory(root: Path) -> None:
    """Several files of log, queues and index."""
    async with open_store(OsFileSystem(root), small_config(**SMALL_INDEX)) as store:
        for number in range(120):
            tag = ("TagA", "TagB", None)[number % 3]
            properties = {"KEYS": f"k{number} all", "UNIQ_KEY": f"U{number:020d}"}
            assert store.put(
                message(
                    ("TopicA", "TopicB")[number % 2],
                    number % 3,
                    b"%d " % number * 9,
                    tag=tag,
                    properties=properties,
                )
            ).ok


def structure(path: str, data: bytes) -> list[int]:
    """Bytes of a file that stand under a CRC or decide its structure."""
    if path.startswith("consumequeue/"):
        return list(range(len(data.rstrip(b"\0"))))
    if path.startswith("index/"):
        count = int.from_bytes(data[36:40])
        # The seconds of the first entry of a file, at 112, are read by nobody.
        return [at for at in range(80 + 20, 80 + 20 * count) if not 112 <= at < 116]
    places: list[int] = []
    at = 0
    while data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
        size, body = int.from_bytes(data[at : at + 4]), int.from_bytes(data[at + 84 : at + 88])
        fields = (0, 4, 8, 12, 20, 24, 28, 32, 84)
        places += [at + field + byte for field in fields for byte in range(4)]
        places += range(at + 88, at + 88 + body + 1 + data[at + 88 + body] + 2)
        at += size
    if data[at : at + 8].strip(b"\0"):
        places += range(at, at + 8)
    return places


def names(finding: Finding, path: str, offset: int) -> bool:
    """Whether a finding points to the record, unit or entry that holds a byte."""
    reach = {"commitlog": 400, "consumequeue": 20, "index": 20}[path.partition("/")[0]]
    return finding.path == path and finding.offset - reach < offset < finding.offset + reach


async def test_each_flipped_bit_is_named(tmp_path: Path) -> None:
    """180 bits at seeded places under a CRC or in a field that decides the structure:
    each is found in its file near its offset.
    """
    root = tmp_path / "store"
    await write_directory(root)
    assert verify_directory(root).findings == []
    generator = random.Random(7)
    for directory in ("commitlog", "consumequeue", "index"):
        paths = [
            str(path.relative_to(root))
            for path in sorted((root / directory).rglob("*"))
            if path.is_file()
        ]
        for _ in range(60):
            path = generator.choice(paths)
            original = (root / path).read_bytes()
            places = structure(path, original)
            if not places:
                continue
            offset = generator.choice(places)
            data = bytearray(original)
            data[offset] ^= 1 << generator.randrange(8)
            (root / path).write_bytes(data)
            report = verify_directory(root)
            assert any(names(finding, path, offset) for finding in report.findings), (
                path,
                offset,
                report.findings[:5],
            )
            (root / path).write_bytes(original)
    assert verify_directory(root).findings == []


async def test_files_of_wrong_length_and_name(tmp_path: Path) -> None:
    """Cut files, gaps and strangers."""
    root = tmp_path / "store"
    await write_directory(root)
    log = sorted((root / "commitlog").iterdir())
    log[1].rename(tmp_path / "away")
    with log[2].open("r+b") as file:
        file.truncate(1000)
    (root / "commitlog" / "notes.txt").write_text("hello")
    (root / "config" / "topics.json").parent.mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text("{")
    found = {(finding.path, finding.kind) for finding in verify_directory(root).findings}
    assert found >= {
        (f"commitlog/{log[2].name}", "size"),
        (f"commitlog/{log[3].name}", "gap"),
        ("commitlog/notes.txt", "name"),
        ("config/topics.json", "config"),
    }


async def test_a_directory_in_use(tmp_path: Path) -> None:
    """It can be looked at, also from the same process; what the broker still has in
    memory is no finding. Repair is refused.
    """
    root = tmp_path / "store"
    async with open_store(OsFileSystem(root), small_config(**SMALL_INDEX)) as store:
        for number in range(50):
            store.put(message(body=b"%d" % number))
        report = verify_directory(root)
        assert report.running
        assert report.findings == []
        assert report.records == 50
        with pytest.raises(StoreLockedError):
            repair_directory(root, print)
        assert store.put(message()).ok
    assert not verify_directory(root).running


async def test_repair_builds_again_what_the_log_tells(tmp_path: Path) -> None:
    """A damaged queue, a damaged index and a torn end, each step told."""
    root = tmp_path / "store"
    await write_directory(root)
    unit = root / "consumequeue" / "TopicA" / "0" / "00000000000000000000"
    unit.write_bytes(b"\x11" * 20 + unit.read_bytes()[20:])
    index = sorted((root / "index").iterdir())[0]
    index.write_bytes(index.read_bytes()[:100] + b"\x22" * 20 + index.read_bytes()[120:])
    log = sorted((root / "commitlog").iterdir())[-1]
    end = len(log.read_bytes().rstrip(b"\0"))
    with log.open("r+b") as file:
        file.seek(end)
        file.write(b"half a record")
    told: list[str] = []
    job = repair_directory(root, told.append)
    assert {"tail", "unit", "index"} <= kinds(job.report)
    assert told == []
    await job.run()
    assert [text.split()[0] for text in told] == ["cut", "remove", "remove", "recovered:"]
    assert verify_directory(root).findings == []
    async with open_store(OsFileSystem(root), small_config(**SMALL_INDEX)) as store:
        assert len(bodies(store, "TopicA", 0)) == 20


async def test_repair_refuses_damage_in_the_middle_of_the_log(tmp_path: Path) -> None:
    """A recovery would cut the log there."""
    root = tmp_path / "store"
    await write_directory(root)
    log = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    data[int.from_bytes(data[:4]) + 4] ^= 1
    log.write_bytes(data)
    content = log.read_bytes()
    job = repair_directory(root, print)
    assert job.plan.refusals
    with pytest.raises(StoreError, match=log.name):
        await job.run()
    assert log.read_bytes() == content


def test_what_is_no_store(tmp_path: Path) -> None:
    """Refused, and nothing is made."""
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(StoreError):
            verify_directory(path)
        with pytest.raises(StoreError):
            repair_directory(path, print)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("holes", [True, False])
async def test_the_rest_of_a_sparse_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holes: bool
) -> None:
    """A log file of 128 MiB with little in it costs little memory where the system
    knows its holes, and is looked at all the same.
    """
    size = 1 << 27 if holes else 1 << 22
    config = small_config(
        mapped_file_size_commit_log=size, allocation_step=4096, message_index_enable=False
    )
    if not holes:
        monkeypatch.delattr("os.SEEK_DATA")
    async with open_store(OsFileSystem(tmp_path), config) as store:
        for number in range(20):
            assert store.put(message(body=b"%d" % number)).ok
    read = DirectoryReader.read
    most = 0

    def count(self: DirectoryReader, path: str, offset: int, length: int) -> bytes:
        nonlocal most
        data = read(self, path, offset, length)
        most = max(most, len(data))
        return data

    monkeypatch.setattr(DirectoryReader, "read", count)
    report = verify_directory(tmp_path)
    assert report.findings == []
    assert (report.records, report.bytes >= size) == (20, True)
    assert most < 1 << 21 if holes else most >= size
    # something far behind the end, in an island of its own
    with (tmp_path / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(size // 2 + 77)
        file.write(b"lost")
    report = verify_directory(tmp_path)
    assert [(finding.kind, finding.path) for finding in report.findings] == [
        ("tail", "commitlog/" + "0" * 20)
    ]
