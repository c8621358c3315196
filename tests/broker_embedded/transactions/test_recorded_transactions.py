"""The recorded conversation of a transactional producer of Apache's, held again with
our broker; and what Apache's broker stored of one.

Mask: positions in the log, the times and hosts of the store, and which transactions are
checked: Apache's broker, whose op records come seconds late, asked again about two that
were ended; ours does not.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.broker_embedded.transactions.half_messages import committed, make_half, renewed
from rocketmq_sdk.broker_embedded.transactions.table import op_message, op_offsets
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import Peer, connect, open_on
from support.paths import VECTORS
from support.transactions import bodies_in, end_of_check, halves, ops, producer_heartbeat

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage

RECORDS = [
    entry
    for entry in json.loads((VECTORS / "codec" / "pop_and_transaction_records.json").read_text())
    if entry["topic"].startswith("RMQ_SYS_TRANS")
]


class RecordedClock:
    """Time of the loop, beginning when the recording began."""

    def __init__(self, epoch_ms: int) -> None:
        self._epoch_ms = epoch_ms
        self._start = trio.current_time()

    def now_ms(self) -> int:
        return self._epoch_ms + int((trio.current_time() - self._start) * 1000)

    def monotonic(self) -> float:
        return trio.current_time()


def recording(name: str) -> tuple[int, list[dict[str, Any]]]:
    lines = [json.loads(line) for line in (VECTORS / "wire" / name).read_text().splitlines()]
    return lines[0]["scenario"]["start_epoch_ms"], [
        {**line, "command": decode_frame(bytes.fromhex(line["frame"])[4:])}
        for line in lines[1:]
        if line.get("conn") == "broker1" and "frame" in line
    ]


def relocated(end: Command, told: list[Command], offsets: dict[str, tuple[str, int]]) -> Command:
    """An END_TRANSACTION with the positions of our log: those of our check when there
    was one, else those of the half message.
    """
    unique = end.ext_fields["msgId"]
    check = next((request for request in told if request.ext_fields["msgId"] == unique), None)
    fields = dict(end.ext_fields)
    if check is not None and fields["fromTransactionCheck"] == "true":
        fields.update(
            {name: check.ext_fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
        )
    else:
        fields["tranStateTableOffset"], position = offsets[unique]
        fields["commitLogOffset"] = str(position)
    return Command(end.code, flag=end.flag, ext_fields=fields)


async def hold(
    peer: Peer, broker: EmbeddedBroker, lines: list[dict[str, Any]]
) -> dict[int, Command]:
    """Say what the client said; our answers by opaque."""
    answers: dict[int, Command] = {}
    offsets: dict[str, tuple[str, int]] = {}
    begin, late = trio.current_time(), 0.0
    for line in lines:
        command: Command = line["command"]
        if line["dir"] != "c2s":
            continue
        if command.ext_fields.get("fromTransactionCheck") == "true":
            while (
                len(peer.requests) < 2
            ):  # our rounds are at other moments; from here on everything waits for them
                await trio.sleep(0.01)
            late = max(late, trio.current_time() - begin - line["t_ms"] / 1000)
        await trio.sleep_until(begin + line["t_ms"] / 1000 + late)
        if command.code == RequestCode.END_TRANSACTION:
            peer.channel.send_oneway(relocated(command, peer.requests, offsets))
            continue
        opaque = command.opaque
        answers[opaque] = await peer.ask(command)
        if command.code == RequestCode.SEND_MESSAGE_V2:
            half = halves(broker)[-1]
            offsets[half.message_id] = (
                answers[opaque].ext_fields["queueOffset"],
                half.commit_log_offset,
            )
    return answers


def comparable(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "body": message.body,
        "sys_flag": message.sys_flag,
        "born": message.born_timestamp,
        "properties": message.properties,
    }


@pytest.mark.parametrize(
    "name",
    [
        "transaction.json.jsonl",
        "transaction.rocketmq.jsonl",
        "transaction.mixed.jsonl",
        "transaction.json-5.3.3.jsonl",
    ],
)
async def test_a_recorded_conversation(name: str, autojump_clock: MockClock) -> None:
    epoch, lines = recording(name)
    with trio.fail_after(60):
        async with (
            EmbeddedBroker(
                clock=RecordedClock(epoch),
                transaction_time_out=2000,
                transaction_check_interval=2000,
            ) as broker,
            trio.open_nursery() as nursery,
        ):
            broker.core.topics.put(TopicConfig("W_tran", 1, 1))
            peer = await connect(broker, nursery)
            answers = await hold(peer, broker, lines)
            for line in lines:
                recorded: Command = line["command"]
                if line["dir"] == "c2s" or not recorded.is_response:
                    continue
                ours = answers[recorded.opaque]
                assert ours.code == recorded.code
                assert {**ours.ext_fields, "msgId": ""} == {**recorded.ext_fields, "msgId": ""}
            checks = {
                line["command"].ext_fields["msgId"]: line["command"]
                for line in lines
                if line["command"].code == 39
            }
            assert len(peer.requests) == 2
            for check in peer.requests:
                recorded = checks[check.ext_fields["msgId"]]
                assert check.ext_fields.keys() == recorded.ext_fields.keys()
                assert (check.flag, check.ext_fields["topic"]) == (
                    recorded.flag,
                    recorded.ext_fields.get("topic"),
                )
                assert comparable(decode_message(check.body)) == comparable(
                    decode_message(recorded.body)
                )
            assert bodies_in(broker, "W_tran") == [b"commit", b"check then commit"]
            assert ops(broker) == [b"0,", b"1,", b"4,", b"5,"]
            assert not broker.parts.transactions.table
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "entry",
    [entry for entry in RECORDS if entry["topic"].endswith("TRANS_HALF_TOPIC")],
    ids=lambda entry: entry["body"],
)
def test_half_messages_have_the_properties_and_fields_of_apaches(entry: dict[str, Any]) -> None:
    recorded = decode_message(bytes.fromhex(entry["record"]))
    added = ("REAL_TOPIC", "REAL_QID", "__transactionId__")
    text = "".join(
        f"{name}\x01{value}\x02" for name, value in recorded.properties.items() if name not in added
    )
    message = MessageToStore("KTran", 0, recorded.body, text, sys_flag=4, flag=recorded.flag)
    make_half(message)
    assert (message.topic, message.queue_id, message.sys_flag) == (
        recorded.topic,
        recorded.queue_id,
        recorded.sys_flag,
    )
    assert (
        dict(item.split("\x01") for item in message.properties.split("\x02")[:-1])
        == recorded.properties
    )
    final = committed(recorded, recorded.commit_log_offset)
    assert (final.topic, final.queue_id, final.sys_flag, final.prepared_offset) == (
        "KTran",
        0,
        8,
        recorded.commit_log_offset,
    )
    assert "REAL_" not in final.properties
    assert "TRANSACTION_CHECK_TIMES\x011\x02" in renewed(recorded, 1).properties


def test_op_messages_have_the_properties_of_apaches() -> None:
    [entry] = [entry for entry in RECORDS if entry["topic"].endswith("OP_HALF_TOPIC")]
    recorded = decode_message(bytes.fromhex(entry["record"]))
    assert op_offsets(recorded.body) == [0, 1, 3, 4, 6, 7, 9, 10]
    message = op_message(12, now_ms=0, host=bytes(8))
    assert message.body == b"12,"
    assert message.properties.encode() == recorded.properties_bytes
    assert (message.topic, message.queue_id, message.sys_flag) == (
        recorded.topic,
        recorded.queue_id,
        recorded.sys_flag,
    )


@pytest.mark.parametrize("name", ["kitchen-sink", "kitchen-sink-5.3.3"])
async def test_the_open_transactions_of_an_apache_directory_are_checked_and_committed(
    name: str, autojump_clock: MockClock
) -> None:
    """Four half messages were open when Apache's broker stopped; ours asks about
    exactly them, and shows those that are committed once.
    """
    files = FaultyFileSystem()
    with tarfile.open(VECTORS / "store" / f"{name}.tar.gz") as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None and not member.name.endswith(("timerwheel", "lock")):
                files.write(member.name.partition("store/")[2], content.read())
    expected = json.loads(
        gzip.decompress((VECTORS / "store" / f"{name}.expected.json.gz").read_bytes())
    )
    sizes = expected["sizes"]
    names = (
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
        "mappedFileSizeTimerLog",
    )
    settings = {setting: sizes[setting] for setting in names}
    # Transactions older than the log's retention are not asked about, so this goes on
    # where the directory was left.
    clock = RecordedClock(expected["store_checkpoint_before"]["physicMsgTimestamp"] + 60_000)
    with trio.fail_after(600):
        async with open_on(files, clock=clock, timer_wheel_enable=False, **settings) as (
            broker,
            peer,
        ):
            assert len(broker.parts.transactions.table) == 4
            before = len(bodies_in(broker, "KTran"))
            await peer.ask(producer_heartbeat("c@1", "PG_ktran"))
            await trio.sleep(35)
            assert len(peer.requests) == 4
            for check in peer.requests[:2]:
                assert (await peer.ask(end_of_check(check, 8, group="PG_ktran"))).code == 0
                assert (await peer.ask(end_of_check(check, 8, group="PG_ktran"))).code == 0
            assert len(bodies_in(broker, "KTran")) == before + 2
            assert len(broker.parts.transactions.table) == 2
        async with open_on(files, clock=clock, timer_wheel_enable=False, **settings) as (
            broker,
            peer,
        ):
            assert len(broker.parts.transactions.table) == 2
            assert len(bodies_in(broker, "KTran")) == before + 2
