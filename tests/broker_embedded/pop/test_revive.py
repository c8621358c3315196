"""Revival of what others wrote: Apache's directories, and records that no broker would
write.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from rocketmq_sdk.broker_embedded.pop.progress import is_torn
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.bodies.pop import encode_bit_set
from rocketmq_sdk.protocol.bodies.pop_records import AckRecord, PopCheckPoint
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code
from support.broker import open_broker
from support.paths import STORE_VECTORS
from support.popping import Popper, make_topic
from support.store import config_for, expected, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.model.received import ReceivedMessage

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def put(
    broker: EmbeddedBroker, tag: str, body: bytes, queue_id: int = 0, properties: str = ""
) -> None:
    """A record in the revive topic, as the wheel would have delivered it."""
    text = f"TAGS\x01{tag}\x02{properties}"
    assert broker.store.put(
        MessageToStore(REVIVE, queue_id, body, text, tags_code=tags_code(tag))
    ).ok


def messages_of(broker: EmbeddedBroker, topic: str) -> list[ReceivedMessage]:
    found = []
    for offset in range(broker.store.max_offset(topic, 0)):
        unit = broker.store.queue_unit(topic, 0, offset)
        assert unit is not None
        found.append(decode_message(broker.store.record_at(unit[0], unit[1]) or b""))
    return found


async def test_records_of_apache_are_understood(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"0")
        await peer.send("T", b"1")
        broker.core.groups.get("G")
        now = broker.core.clock.now_ms()
        checkpoint = {
            "bm": 0,
            "bn": "broker-a",
            "c": "G",
            "d": [0, 1],
            "it": 2000,
            "n": 2,
            "pt": now,
            "q": 0,
            "reviveTime": now + 2000,
            "ro": 0,
            "so": 0,
            "t": "T",
        }
        ack = {
            "ackOffset": 0,
            "brokerName": "broker-a",
            "consumerGroup": "G",
            "popTime": now,
            "queueId": 0,
            "startOffset": 0,
            "topic": "T",
        }
        put(broker, "ck", json.dumps(checkpoint).encode())
        put(broker, "ack", json.dumps(ack).encode())
        await trio.sleep(10)
        assert [
            (message.body, message.reconsume_times) for message in messages_of(broker, "%RETRY%G_T")
        ] == [(b"1", 1)]
        assert broker.core.offsets.query("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) == 1


@pytest.mark.parametrize("named", [{}, {"bn": ""}, {"bn": "broker-a"}])
async def test_a_batch_of_acks_that_names_no_broker_means_this_one(
    named: dict[str, str], autojump_clock: MockClock
) -> None:
    """As `PopBufferMergeService.putBatchAckToStore` writes it: a directory of Apache's
    with merging and batches on has such records.
    """
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        for body in (b"0", b"1", b"2"):
            await peer.send("T", body)
        broker.core.groups.get("G")
        now = broker.core.clock.now_ms()
        put(
            broker,
            "ck",
            PopCheckPoint("T", "G", 0, 0, now, 2000, 3, [0, 1, 2], broker_name="broker-a").encode(),
        )
        batch = {"ao": 0, "aol": [0, 2], "c": "G", "pt": now, "q": 0, "so": 0, "t": "T"}
        put(broker, "bAck", json.dumps(batch | named).encode())
        before = broker.core.stats.put_messages
        await trio.sleep(10)
        assert [message.body for message in messages_of(broker, "%RETRY%G_T")] == [b"1"]
        assert broker.core.stats.put_messages == before + 1, (
            "what is revived counts as put (`PopReviveService.reviveRetry`)"
        )
        assert broker.core.stats.find("TOPIC_PUT_NUMS", "%RETRY%G_T") is not None


class Recorded(TrioClock):
    """A wall clock that shows the moment after the recording."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.now_ms()  # the epoch is fixed at the first look
        self._epoch = epoch - trio.current_time()


@pytest.mark.parametrize(
    ("name", "epoch"), [("kitchen-sink", 1_795_238_905), ("kitchen-sink-5.3.3", 1_795_239_240)]
)
async def test_pops_under_way_in_a_directory_of_apache_are_taken_over(
    name: str, epoch: int, autojump_clock: MockClock, tmp_path: Path
) -> None:
    directory, sizes = unpack(name, tmp_path), config_for(expected(name))
    with (
        tarfile.open(STORE_VECTORS / f"{name}.tar.gz") as archive,
        (directory / "timerwheel").open("wb") as target,
    ):
        shutil.copyfileobj(archive.extractfile("store/timerwheel"), target)  # type: ignore[arg-type]
    timer_log_size = next((directory / "timerlog").iterdir()).stat().st_size
    config = BrokerConfig(store=attrs.evolve(sizes, mapped_file_size_timer_log=timer_log_size))
    retry = "%RETRY%CG_popk_KPop"
    async with open_broker(directory, config=config, clock=Recorded(epoch)) as (broker, peer):
        before = broker.store.max_offset(retry, 0)
        assert broker.parts.members.modes.get("KPop", "CG_popk") is not None
        assert broker.core.offsets.query("CG_popk", "KPop", 0) == 8
        popper = Popper(peer, "KPop", "CG_popk")
        # Of five messages of queue 0 three were acknowledged, one of these because it
        # got a checkpoint of its own; of queue 1 four were not.
        of_one = [broker.store.queue_unit("KPop", 1, offset) for offset in range(4)]
        held = {
            decode_message(broker.store.record_at(*unit[:2]) or b"").message_id
            for unit in of_one
            if unit is not None
        }
        held |= {message.message_id for message in messages_of(broker, "KPop")[5:8]}
        taken = await popper.pop()
        assert not held & {message.message_id for message in taken.messages}
        await popper.ack_all(taken.handles)
        await trio.sleep(400)
        revived = messages_of(broker, retry)[before:]
        assert {message.message_id for message in revived} == held
        assert [message.properties["ORIGIN_GROUP"] for message in revived] == ["CG_popk"] * 7


async def test_hostile_records_hold_up_nobody(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        now = broker.core.clock.now_ms()
        for body in (
            b"",
            b"{",
            b"[]",
            b'{"t":"T"}',
            b'{"t":"T","c":"G","n":40}',
            b"\xff\xfe",
            b"[" * 20_000,
        ):
            put(broker, "ck", body)
            put(broker, "ack", body)
            put(broker, "bAck", body)
        put(broker, "other", b"{}")
        put(broker, "ck", PopCheckPoint("T", "G", 0, 0, now + 10**15, 5, 1, [0]).encode())
        put(
            broker, "ck", PopCheckPoint("T", "G", 0, 0, now, 3_600_000, 1, [0]).encode()
        )  # due in an hour: back into the wheel
        put(broker, "ck", PopCheckPoint("T", "G", 99, 7, 0, 5, 2, [0, 500]).encode())
        put(broker, "ck", PopCheckPoint("Nowhere", "G", 0, 0, 0, 5, 1, [0]).encode())
        put(broker, "bAck", AckRecord("T", "G", 0, 0, 0, None, [10**18, -5], batch=True).encode())
        put(broker, "ack", b"{}", properties="TIMER_DELIVER_MS\x01999999999999999\x02")
        popper = Popper(peer, "T")
        for _ in range(8):
            await popper.pop(invisible_time=3_000)
            await trio.sleep(6)
        again = await popper.pop()
        assert [message.body for message in again.messages] == [b"x"]


async def test_an_acknowledgement_of_thirty_thousand_entries_lets_others_have_their_turn(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        popper = Popper(peer, "T")
        handle = (await popper.pop(invisible_time=60_000)).handles[0]
        entry: dict[str, Any] = {
            "b": encode_bit_set([0]),
            "c": "PopGroup",
            "it": handle.invisible_time,
            "pt": handle.pop_time,
            "q": 0,
            "r": "0",
            "rq": handle.revive_queue_id,
            "so": 0,
            "t": "T",
        }
        body = json.dumps(
            {"acks": [{**entry, "pt": 1}] * 29_999 + [entry], "brokerName": "broker-a"}
        ).encode()
        answered: list[str] = []
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def big() -> None:
                answer = await peer.ask(Command(RequestCode.BATCH_ACK_MESSAGE, body=body), 600.0)
                assert answer.code == 0
                answered.append("big")

            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            await peer.send("T", b"y")
            answered.append("send")
        assert answered == ["send", "big"]
        await trio.sleep(65)
        assert await popper.bodies() == [b"y"]


@pytest.mark.parametrize("settings", [{}, {"use_separate_retry_queue": True}])
async def test_messages_that_cannot_be_put_are_tried_again(
    settings: dict[str, bool], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_broker(**settings) as (broker, peer):
        await make_topic(peer, "T", 2)
        await peer.send("T", b"x", queue_id=1)
        popper = Popper(peer, "T")
        await popper.pop(invisible_time=2_000)
        failures: list[object] = []
        real = broker.core.topics.create_retry

        def fail(*args: Any, **options: Any) -> Any:
            if len(failures) < 2:
                failures.append(args)
                raise StoreError("the disk is full for a moment")
            return real(*args, **options)

        monkeypatch.setattr(broker.core.topics, "create_retry", fail)
        began = trio.current_time()
        again = await popper.pop(poll_time=60_000)
        assert [message.body for message in again.messages] == [b"x"]
        assert 30 <= trio.current_time() - began <= 40  # 2 s, then 10 s and 20 s more
        assert again.handles[0].queue_id == (1 if settings else 0)


def test_a_copy_whose_properties_were_not_written_to_their_end_is_known_again() -> None:
    wanted = ("%RETRY%G_T", 7, 99, 1, "UNIQ_KEY\x011\x02ORIGIN_GROUP\x01G\x02")
    for kept in range(len(wanted[4])):
        torn = wanted[4][:kept].ljust(len(wanted[4]), "\0")
        assert is_torn((*wanted[:4], torn), wanted)
        assert not is_torn((*wanted[:3], 2, torn), wanted)
    assert not is_torn(("%RETRY%G_T", 7, 99, 1, "UNIQ_KEY\x012\0\0"), wanted)
    assert not is_torn(("%RETRY%G_T", 7, 99, 1, "UNIQ_KEY\x011\x02"), wanted)
