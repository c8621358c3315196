"""Seeds and snapshots of brokers under test."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import Message, Producer
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.testing import FaultyFileSystem, Snapshot, TestBroker
from support.consuming import texts

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

SEED_JSON = """{
  "topics": {"orders": 2, "payments": 1},
  "groups": ["billing"],
  "messages": {"orders": ["one", {"number": 2}, {"body": "three", "tags": "new", "queue": 1}]},
  "offsets": {"billing": {"orders": 1, "payments": [0]}}
}"""
SEED_TOML = """
groups = ["billing"]
[topics]
orders = 2
payments = 1
[messages]
orders = ["one", {number = 2}, {body = "three", tags = "new", queue = 1}]
[offsets.billing]
orders = 1
payments = [0]
"""


@pytest.mark.parametrize(("name", "text"), [("a.json", SEED_JSON), ("a.toml", SEED_TOML)])
async def test_a_broker_begins_with_what_a_file_says(
    name: str, text: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    (tmp_path / name).write_text(text)
    async with TestBroker() as broker:
        await broker.seed(tmp_path / name, topics=["more"])
        seen = broker.wait.seen
        assert seen.topics() == ["more", "orders", "payments"]
        assert {topic: len(seen.queues(topic)) for topic in seen.topics()} == {
            "more": 4,
            "orders": 2,
            "payments": 1,
        }
        messages = broker.sent("orders")
        assert texts(messages) == ["one", '{"number": 2}', "three"]
        assert (messages[2].tags, messages[2].queue_id) == ("new", 1)
        assert seen.committed("billing", "orders") == {0: 1, 1: 1}
        assert seen.committed("billing", "payments") == {0: 0}
        assert len(broker.seen) == 0


@pytest.mark.parametrize(
    ("seed", "text"),
    [
        ({"topic": {}}, "no member 'topic'"),
        ({"messages": {"orders": [{"body": "x", "tag": "y"}]}}, "no member 'tag'"),
        ({"offsets": {"billing": {"nothing": 1}}}, "no topic 'nothing'"),
        ({"topics": ["a"], "offsets": {"billing": {"a": [1]}}}, "1 offsets were given for the 4"),
        ({"topics": "orders"}, "lists of names"),
        ({"messages": {"orders": "abc"}}, "lists by topic"),
        ({"offsets": {"billing": 5}}, "whole numbers, or lists"),
        ({"messages": {"orders": [{"body": "x", "queue": 9}]}}, "'orders' has no queue 9"),
        (4, "the seed is 4; give a file, or a mapping"),
        ({"topics": 4}, "lists of names"),
        ({"topics": [{}]}, "lists of names"),
        ({"groups": [["billing"]]}, "lists of names"),
        ({"messages": {"orders": ["\ud800"]}}, "surrogates not allowed"),
        ({"groups": {"billing": 1}}, "lists of names"),
        ({"topics": {"orders": 0}}, "'orders' of a seed has 0 queues; give a whole number from 1"),
        ({"topics": {"orders": "2"}}, "'orders' of a seed has '2' queues"),
        ({"topics": {"orders": True}}, "'orders' of a seed has True queues"),
        ("nowhere.json", r"nowhere\.json cannot be read"),
    ],
)
async def test_a_seed_that_cannot_be_is_refused(
    seed: object, text: str, autojump_clock: MockClock
) -> None:
    async with TestBroker() as broker:
        with pytest.raises(ConfigurationError, match=text):
            await broker.seed(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_disk", [False, True])
async def test_a_state_is_kept_and_put_back(on_disk: bool, tmp_path: Path) -> None:
    path = tmp_path / "store" if on_disk else None
    async with TestBroker(path) as broker, Producer("shop", namesrv=broker) as producer:
        await broker.seed(messages={"orders": ["1", "2"]}, offsets={"billing": {"orders": 1}})
        await producer.send(Message("orders", b"late", delay=1800))
        kept = await broker.snapshot()
        for number in range(3):
            await producer.send(Message("orders", b"more %d" % number))
        assert len(broker.sent("orders")) == 5
        assert len(repr(kept)) < 100  # a failing test shows it
        for _ in range(2):
            await broker.restore(kept)
            assert texts(broker.sent("orders")) == ["1", "2"]
            assert set(broker.wait.seen.committed("billing", "orders").values()) == {1}
            assert broker.wait.seen.delayed() == 1
            await producer.send(Message("orders", b"3"))
        kept.save(tmp_path / "kept.zip")
        assert kept.size > 0
    async with TestBroker(tmp_path / "other" if on_disk else None) as other:
        await other.restore(Snapshot.load(tmp_path / "kept.zip"))
        assert texts(other.sent("orders")) == ["1", "2"]
        assert other.wait.seen.delayed() == 1


@pytest.mark.parametrize("given", ["kept.zip", None])
async def test_a_broker_lives_on_when_it_is_to_restore_what_is_no_snapshot(given: object) -> None:
    async with TestBroker() as broker:
        with pytest.raises(WrongTypeError, match=r"is no snapshot; give what snapshot\(\) or"):
            await broker.restore(given)  # type: ignore[arg-type]
        assert broker.running


async def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    for name in ("x", "nothing"):
        with pytest.raises(ConfigurationError, match="no snapshot"):
            Snapshot.load(tmp_path / name)
    async with TestBroker(files=FaultyFileSystem()) as broker:
        with pytest.raises(ConfigurationError, match="FaultyFileSystem"):
            await broker.snapshot()


async def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    async with TestBroker() as broker:
        await broker.seed(messages={"orders": ["1"]})
        (await broker.snapshot()).save(tmp_path / "whole")
    whole, damaged = (tmp_path / "whole").read_bytes(), tmp_path / "damaged"
    refused = 0
    for at in range(0, len(whole), 7):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
        try:
            Snapshot.load(damaged)  # some bits of an archive mean nothing
        except ConfigurationError:
            refused += 1
    assert refused > len(whole) // 14


@pytest.mark.parametrize(
    ("path", "size", "piece"),
    [("../x", 3, [0, 3]), ("/x", 3, [0, 3]), ("", 3, [0, 3]), ("x", 3, [1, 3]), ("x", 9, [-1, 3])],
)
def test_a_snapshot_holds_files_of_its_own_directory(
    path: str, size: int, piece: list[int], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "kept", "w") as archive:
        files = [{"path": path, "size": size, "pieces": [piece]}]
        archive.writestr("snapshot.json", json.dumps({"format": 1, "files": files}))
        archive.writestr("0", b"abc")
    with pytest.raises(ConfigurationError, match="no snapshot of a broker: "):
        Snapshot.load(tmp_path / "kept")


async def test_a_reset_broker_is_new_and_has_its_address(autojump_clock: MockClock) -> None:
    async with TestBroker() as broker, Producer("shop", namesrv=broker) as producer:
        await producer.send(Message("orders", b"1"))
        broker.faults.on("send", topic="nothing").refuse()
        address = broker.own_address
        await broker.reset()
        assert broker.own_address == address
        assert broker.wait.seen.topics() == []
        assert not broker.faults.declared
        await producer.send(Message("orders", b"2"))
        assert texts(broker.sent("orders")) == ["2"]


async def test_a_broker_that_was_stopped_stays_so_over_a_snapshot() -> None:
    async with TestBroker() as broker:
        await broker.stop()
        kept = await broker.snapshot()
        assert not broker.running
        await broker.restore(kept)
        assert broker.running
    await trio.lowlevel.checkpoint()
