"""Directories that move between our broker and Apache's: closed and killed, in both
directions, from and to both releases.
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import EmbeddedBroker, Message, MessageQueue, Producer
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.names import SCHEDULE_TOPIC
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import UpdateConsumerOffsetRequestHeader
from rocketmq_sdk.protocol.headers.topics import CreateTopicRequestHeader
from support import java
from support.exchange import (
    GROUP,
    Contents,
    committed,
    contents_of_broker,
    contents_of_store,
    questions,
    some_times,
)
from support.ports import free_port
from support.store import STORE_HOST
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

TOPIC, BATCHES = "Exchange", "ExchangeBatches"
LEVELS = "1s 2h"
SIZES: dict[str, int] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 1000,
    "mapperFileSizeBatchConsumeQueue": 460,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
# 400 single ones, 20 batches of 1 to 5 and 20 of 1 to 4, 10 delayed ones, 5 of which
# were delivered.
EXPECTED_MESSAGES = 400 + 60 + 50 + 10 + 5
WANTED_TOPICS = {TOPIC, BATCHES, SCHEDULE_TOPIC}
VERSIONS = (*java.RELEASES, "5.3.3")
each_version = pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=pytest.mark.xdist_group(f"exchange {version}"))
        for version in VERSIONS
    ],
)
"""Each in a group of its own: a dozen starts of Apache's broker take minutes."""


def our_broker(root: Path, **settings: Any) -> EmbeddedBroker:
    texts = {name: str(size) for name, size in SIZES.items()} | {
        "messageDelayLevel": LEVELS,
        "diskMaxUsedSpaceRatio": "95",
    }
    config, _warnings = BrokerConfig().with_settings(texts)
    return EmbeddedBroker(root, config=config, **settings)


@contextmanager
def apache_broker(
    apache: java.ApacheCluster, directory: Path, version: str = java.VERSION
) -> Iterator[java.ApacheCluster]:
    """A broker of Apache's on `directory/store`, with the name server of the
    session.
    """
    cluster = java.ApacheCluster(directory, apache.namesrv, f"127.0.0.1:{free_port(-2, 1)}", {})
    settings = {
        **SIZES,
        **java.STOPS_SOON,
        "messageDelayLevel": LEVELS,
        "brokerName": f"exchange-{directory.name}",
        "brokerClusterName": f"cluster-{directory.name}",
    }
    try:
        java.start_broker(cluster, version=version, **settings)
        yield cluster
    finally:
        cluster.close()


async def send_everything(
    producer: Producer, names: list[str], at_half: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Messages with tags, keys, delays and batches, over several files of log, queues
    and index. `at_half` is done in between.
    """
    queues = [MessageQueue(TOPIC, names[0], queue_id) for queue_id in range(4)]
    for number in range(400):
        tags = ("red", "blue", None)[number % 3]
        body = f"body {number} ".encode() * (1 + number % 60)
        await producer.send(
            Message(TOPIC, body, tags=tags, keys=[f"key{number}", f"group{number % 7}"]),
            queue=queues[number % 4],
        )
    if at_half is not None:
        await at_half()
    for number in range(20):
        batch = [
            Message(TOPIC, f"batch {number} {index}".encode(), keys=[f"b{number}-{index}"])
            for index in range(number % 5 + 1)
        ]
        await producer.send_batch(batch, queue=queues[number % 4])
        await producer.send_batch(
            [
                Message(BATCHES, f"inner {number} {index}".encode())
                for index in range(number % 4 + 1)
            ]
        )
    for number in range(5):
        await producer.send(Message(TOPIC, f"soon {number}".encode(), delay_level=1, keys=["soon"]))
        await producer.send(Message(TOPIC, f"late {number}".encode(), delay_level=2, keys=["late"]))


def forget_units(root: Path) -> None:
    """Take away what a kill may take: the units behind the position that the checkpoint
    vouches for, from which Apache 5.5 builds the queues again, and nothing before it.
    """
    vouched = int.from_bytes((root / "checkpoint").read_bytes()[40:48])
    assert vouched > 2 * SIZES["mappedFileSizeCommitLog"]
    forgotten = 0
    for kind, size in (("consumequeue", 20), ("batchconsumequeue", 46)):
        for path in sorted((root / kind).rglob("*")):
            if path.is_file():
                data = bytearray(path.read_bytes())
                for at in range(0, len(data) // size * size, size):
                    if int.from_bytes(data[at : at + 8]) >= vouched:
                        data[at : at + size] = bytes(size)
                        forgotten += 1
                path.write_bytes(data)
    assert forgotten > 50


def copy_of(root: Path, directory: Path) -> Path:
    directory.mkdir()
    shutil.copytree(root, directory / "store")
    return directory


def unindexed(root: Path, version: str) -> range:
    """The positions whose keys Apache 5.5 forgets after a kill: it drops index files
    that are not full, and indexes only what it puts into queues again.
    """
    checkpoint = (root / "checkpoint").read_bytes()
    vouched, indexed = (int.from_bytes(checkpoint[at : at + 8]) for at in (40, 16))
    dropped = [
        int.from_bytes(header[16:24])
        for header in (path.read_bytes()[:40] for path in (root / "index").iterdir())
        if int.from_bytes(header[8:16]) > indexed
    ]
    built = vouched - vouched % SIZES["mappedFileSizeCommitLog"]
    return range(min(dropped), built) if version == java.RELEASES[0] else range(0)


def compare(found: Contents, wanted: Contents, forgotten: range = range(0)) -> None:
    assert found.queues.keys() == wanted.queues.keys()
    for key, (low, high, records) in wanted.queues.items():
        assert found.queues[key][:2] == (low, high), key
        assert found.queues[key][2] == records, key
    assert found.keys.keys() == wanted.keys.keys()
    for key, positions in wanted.keys.items():
        lost = set(positions) - set(found.keys[key])
        assert all(position in forgotten for position in lost), key
        assert set(found.keys[key]) <= set(positions), key
    # Apache answers times in batch queues by where its halving happens to fall; those
    # of ordinary queues are exact.
    assert found.times == wanted.times


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Contents]:
    """What our broker wrote: a directory that was closed, one as a kill leaves it, and
    what is in them.
    """
    return trio.run(_write, tmp_path_factory.mktemp("ours"))


async def _write(base: Path) -> tuple[Path, Path, Contents]:
    async with our_broker(base / "store") as broker:
        broker.core.topics.put(TopicConfig(TOPIC, 4, 4))
        broker.core.topics.put(TopicConfig(BATCHES, 1, 1, attributes={"queue.type": "BatchCQ"}))
        async with Producer("exchange-producer", namesrv=broker) as producer:
            store = broker.store
            await send_everything(producer, [broker.config.broker_name], store.flush)
        await until(
            lambda: (
                store.max_offset(SCHEDULE_TOPIC, 0) == 5
                and broker.parts.timers.schedule.offset(1) == 5
            )
        )
        for queue_id in range(4):
            broker.core.offsets.commit(GROUP, TOPIC, queue_id, 10 + queue_id)
        await broker.core.offsets.persist()
        await broker.parts.timers.schedule.persist()
        wanted = await contents_of_store(store, WANTED_TOPICS)
        killed = base / "killed"
        # No append runs meanwhile, so this is what the death of the process would
        # leave.
        shutil.copytree(base / "store", killed)
        forget_units(killed)
    assert (killed / "abort").exists()
    assert not (base / "store" / "abort").exists()
    assert len(list((killed / "commitlog").iterdir())) >= 4
    assert wanted.messages() == EXPECTED_MESSAGES
    return base / "store", killed, wanted


@each_version
@pytest.mark.parametrize("end", ["closed", "killed"])
async def test_apache_opens_what_we_wrote(
    ours: tuple[Path, Path, Contents],
    apache: java.ApacheCluster,
    version: str,
    end: str,
    tmp_path: Path,
) -> None:
    closed, killed, wanted = ours
    forgotten = unindexed(killed, version) if end == "killed" else range(0)
    directory = copy_of(closed if end == "closed" else killed, tmp_path / f"{end}-{version}")

    def serve() -> None:
        with apache_broker(apache, directory, version) as cluster:
            compare(contents_of_broker(cluster.broker, wanted), wanted, forgotten)
            assert [committed(cluster.broker, GROUP, TOPIC, queue_id) for queue_id in range(4)] == [
                10,
                11,
                12,
                13,
            ]
            cluster.stop("broker", SIGTERM)

    await trio.to_thread.run_sync(serve)
    async with our_broker(directory / "store") as broker:
        compare(await contents_of_store(broker.store, WANTED_TOPICS), wanted, forgotten)
    found = {finding.kind for finding in verify_directory(directory / "store").findings}
    assert found <= ({"index"} if forgotten else set())


@each_version
async def test_we_open_what_apache_wrote(
    apache: java.ApacheCluster, version: str, tmp_path: Path
) -> None:
    """First as a kill leaves it, then, after Apache has recovered it itself, as a clean
    stop does.
    """
    directory = tmp_path / f"apache-{version}"
    directory.mkdir()

    async def read_ours(root: Path, wanted: Contents) -> Contents:
        # The store alone: a broker would deliver delayed messages again whose delivery
        # the kill has made Apache forget.
        config = our_broker(root).config.store
        async with MessageStore(config, OsFileSystem(root), TrioClock(), STORE_HOST) as store:
            found = await contents_of_store(store, {topic for topic, _queue_id in wanted.queues})
        assert verify_directory(root).findings == []
        kept = texts_of(root, "config/consumerOffset.json*")
        async with our_broker(root) as broker:
            offsets = [broker.core.offsets.query(GROUP, TOPIC, number) for number in range(4)]
        assert offsets == [10, 11, 12, 13], kept
        return found

    def start() -> java.ApacheCluster:
        cluster = java.ApacheCluster(directory, apache.namesrv, f"127.0.0.1:{free_port(-2, 1)}", {})
        settings = {**SIZES, "messageDelayLevel": LEVELS, "brokerName": f"apache-{version}"}
        settings |= java.STOPS_SOON | {
            "flushConsumerOffsetInterval": 1000,
            "flushDelayOffsetInterval": 500,
        }
        java.start_broker(cluster, version=version, **settings)
        return cluster

    cluster = await trio.to_thread.run_sync(start)
    try:
        create_topics(cluster.broker)
        async with Producer("exchange-producer", namesrv=apache.namesrv) as producer:
            await send_everything(producer, [f"apache-{version}"])
        wanted = await trio.to_thread.run_sync(stable_contents, cluster.broker)
        commit_offsets(cluster.broker)
        files = {
            "consumerOffset.json": f'"{TOPIC}@{GROUP}":{{0:10,1:11,2:12,3:13}}',
            "delayOffset.json": "1:5",
        }
        # In the `.bak` too, as a kill may meet Apache while it replaces the file.
        await until(
            lambda: all(
                text in text_of(directory / "store" / "config" / f"{name}{end}")
                for name, text in files.items()
                for end in ("", ".bak")
            ),
            120,
        )
        cluster.stop("broker", SIGKILL)
        killed = copy_of(directory / "store", tmp_path / "killed") / "store"
        assert (killed / "abort").exists()
        compare(await read_ours(killed, wanted), wanted)
        cluster = await trio.to_thread.run_sync(start)
        cluster.stop("broker", SIGTERM)
    finally:
        cluster.close()
    assert not (directory / "store" / "abort").exists()
    compare(await read_ours(directory / "store", wanted), wanted)


def texts_of(root: Path, pattern: str) -> dict[str, str]:
    """The texts of some files by name, for the message of a failure."""
    return {path.name: path.read_text() for path in root.glob(pattern)}


def text_of(path: Path) -> str:
    """Without white space; nothing while the file is missing, as while Apache replaces
    it.
    """
    try:
        return "".join(path.read_text().split())
    except FileNotFoundError:
        return ""


def create_topics(address: str) -> None:
    with java.Asker(address) as asker:
        for topic, queues, attributes in ((TOPIC, 4, ""), (BATCHES, 1, "+queue.type=BatchCQ")):
            header = CreateTopicRequestHeader(
                topic=topic,
                default_topic="TBW102",
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=6,
                topic_filter_type="SINGLE_TAG",
                topic_sys_flag=0,
                order=False,
                attributes=attributes,
            )
            assert asker.ask(Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0


def commit_offsets(address: str) -> None:
    with java.Asker(address) as asker:
        for queue_id in range(4):
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=10 + queue_id
            )
            assert asker.ask(Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


def stable_contents(address: str) -> Contents:
    """What a broker of Apache's holds when all is dispatched, and the messages of the
    first delay level are delivered.
    """
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        names = [
            *((TOPIC, queue_id) for queue_id in range(4)),
            (BATCHES, 0),
            (SCHEDULE_TOPIC, 0),
            (SCHEDULE_TOPIC, 1),
        ]
        seen = contents_of_broker(address, Contents(queues := dict.fromkeys(names, (0, 0, b""))))
        delivered = seen.messages()
        if delivered == EXPECTED_MESSAGES:
            keys = {
                question: []
                for _low, _high, records in seen.queues.values()
                for question in questions(records)
            }
            times = {
                (t, q, time_): 0
                for (t, q), (_low, _high, records) in seen.queues.items()
                if t != BATCHES
                for time_ in some_times(records)
            }
            return contents_of_broker(address, Contents(queues, keys, times))
        time.sleep(0.1)
    raise AssertionError(f"the broker holds {delivered} messages, not {EXPECTED_MESSAGES}")
