"""Broadcasting: every member gets everything once; offsets are kept in Apache's file,
at the member.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.offsets.local import LocalOffsets
from rocketmq_sdk.consumer.outcome import ConsumeLater, RejectMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import ConfigurationError, StoreError
from rocketmq_sdk.model.enums import ConsumeFrom, MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from support.consuming import Collector, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]
APACHES = """{
	"offsetTable":{
		{
			"brokerName":"broker-a",
			"queueId":0,
			"topic":"orders"
		}:12,
		{
			"brokerName":"broker-a",
			"queueId":1,
			"topic":"orders"
		}:7
	}
}"""
COMPACT = (
    '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:12,'
    '{"brokerName":"broker-a","queueId":1,"topic":"orders"}:7}}'
)
TEXT_KEYS = (
    '{"offsetTable":{"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":0,'
    '\\"topic\\":\\"orders\\"}":12,'
    '"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":1,\\"topic\\":\\"orders\\"}":7}}'
)


def broadcasting(
    broker: EmbeddedBroker,
    directory: Path,
    listener: object,
    *,
    name: str = "one",
    **options: object,
) -> PushConsumer:
    return PushConsumer(
        "screens",
        namesrv=broker,
        subscriptions={"orders": "*"},
        listener=listener,  # type: ignore[arg-type]  # any callable
        message_model=MessageModel.BROADCASTING,
        local_offset_store_dir=directory,
        instance_name=name,
        **options,  # type: ignore[arg-type]  # settings of the tests
    )


async def test_every_member_gets_every_message_and_goes_on_where_it_was(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    first, second, again = Collector(), Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with (
            broadcasting(broker, tmp_path, first) as one,
            broadcasting(broker, tmp_path, second, name="two"),
        ):
            assert len(one.statistics().queues) == 4
            with pytest.raises(ConfigurationError, match="the group has no lag"):
                await one.group_lag()
            await sender.send("orders", *map(str, range(40)))
            await until(lambda: len(first.messages) == len(second.messages) == 40)
        await sender.send("orders", "meanwhile")
        async with broadcasting(broker, tmp_path, again):
            await until(lambda: again.messages)
            await trio.sleep(60)
        assert committed(broker, "screens", "orders") == [-1] * 4
    assert Counter(first.bodies) == Counter(second.bodies) == Counter(map(str, range(40)))
    assert again.bodies == ["meanwhile"]


@pytest.mark.parametrize("kind", [ValueError, RejectMessage, ConsumeLater])
async def test_a_message_that_fails_is_left_out(
    autojump_clock: MockClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: type[Exception],
) -> None:
    calls: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        calls.append(message.body.decode())
        if message.body == b"bad":
            raise kind("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        with caplog.at_level(logging.WARNING):
            async with broadcasting(broker, tmp_path, listener):
                await sender.send("orders", "bad", "good", queue=0)
                await trio.sleep(3600)
    assert calls == ["bad", "good"]
    (only,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert f"{kind.__name__}('as the test wants it')" in only
    assert "it is left out: broadcasting has no retries: message " in only


async def test_in_order_every_member_gets_each_queue_in_order_without_locks(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with (
            broadcasting(broker, tmp_path, first, orderly=True),
            broadcasting(broker, tmp_path, second, name="two", orderly=True),
        ):
            await sender.send("orders", *map(str, range(50)), queue=0)
            await until(lambda: len(first.messages) == len(second.messages) == 50)
        assert broker.parts.members.locks.owner("screens", QUEUES[0]) is None
    assert first.bodies == second.bodies == list(map(str, range(50)))


async def test_a_new_member_begins_behind_what_is_stored_or_in_front(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    last, first = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "before", queue=0)
        async with (
            broadcasting(broker, tmp_path, last),
            broadcasting(
                broker, tmp_path, first, name="two", consume_from=ConsumeFrom.FIRST_OFFSET
            ),
        ):
            await sender.send("orders", "after", queue=0)
            await until(lambda: last.messages and len(first.messages) == 2)
    assert last.bodies == ["after"]
    assert first.bodies == ["before", "after"]


async def test_two_members_of_one_name_are_refused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with EmbeddedBroker() as broker, broadcasting(broker, tmp_path, Collector()):
        with pytest.raises(ConfigurationError, match="instance_name"):
            async with broadcasting(broker, tmp_path, Collector()):
                pytest.fail("two members share one file of offsets")
    async with EmbeddedBroker() as broker, broadcasting(broker, tmp_path, Collector()) as consumer:
        assert consumer.health() is not None


async def write_two(offsets: LocalOffsets) -> None:
    for queue, offset in zip(QUEUES, (12, 7), strict=True):
        await offsets.commit(queue, offset, confirmed=False)


async def test_the_file_is_apaches(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "127.0.0.1@DEFAULT", "screens")
    offsets.load()
    await write_two(offsets)
    assert offsets.flush()
    offsets.release()
    assert offsets.path == tmp_path / "127.0.0.1@DEFAULT" / "screens" / "offsets.json"
    compact = "".join(offsets.path.read_text().split())
    assert compact == COMPACT
    assert not list(offsets.path.parent.glob("*.tmp"))


@pytest.mark.parametrize("text", [APACHES, COMPACT, TEXT_KEYS])
async def test_all_forms_of_the_file_are_read(tmp_path: Path, text: str) -> None:
    offsets = LocalOffsets(tmp_path, "me", "screens")
    offsets.path.parent.mkdir(parents=True)
    offsets.path.write_text(text)
    offsets.load()
    assert [await offsets.read(queue) for queue in QUEUES] == [12, 7]
    assert await offsets.read(MessageQueue("orders", "broker-b", 0)) is None
    offsets.release()


@pytest.mark.parametrize("damage", ["", "{", '{"offsetTable":[1]}', "\x00\x00\x00", None])
async def test_a_damaged_or_missing_file_is_replaced_by_its_backup(
    tmp_path: Path, damage: str | None
) -> None:
    offsets = LocalOffsets(tmp_path, "me", "screens")
    offsets.load()
    await write_two(offsets)
    offsets.flush()
    await offsets.commit(QUEUES[0], 13, confirmed=True)
    offsets.release()
    if damage is None:
        offsets.path.unlink()
    else:
        offsets.path.write_text(damage)
    again = LocalOffsets(tmp_path, "me", "screens")
    again.load()
    again.release()
    assert await again.read(QUEUES[0]) == 12
    await again.commit(QUEUES[0], 14, confirmed=True)
    for kept, expected in (("offsets.json", 14), ("offsets.json.bak", 12)):
        assert f":{expected}" in "".join((again.path.with_name(kept)).read_text().split()), (
            "what was damaged is no backup"
        )


async def test_two_empty_files_are_no_offsets(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "me", "screens")
    offsets.path.parent.mkdir(parents=True)
    for path in (offsets.path, offsets.path.with_name("offsets.json.bak")):
        path.write_text("")
    offsets.load()
    assert await offsets.read(QUEUES[0]) is None
    await write_two(offsets)
    assert offsets.flush()
    offsets.release()


async def test_damage_of_both_files_is_an_error_that_names_them(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "me", "screens")
    offsets.path.parent.mkdir(parents=True)
    for path in (offsets.path, offsets.path.with_name("offsets.json.bak")):
        path.write_text("{no json")
    with pytest.raises(StoreError, match=r"offsets\.json nor its backup"):
        offsets.load()
    offsets.release()


async def test_a_file_that_cannot_be_written_is_told_once_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = LocalOffsets(tmp_path, "me", "screens")
    offsets.load()
    (tmp_path / "me").write_text("a file where a directory should be")
    with caplog.at_level(logging.WARNING):
        assert not await offsets.commit(QUEUES[0], 5, confirmed=True)
        assert not offsets.flush()
    assert len(caplog.records) == 1
    (tmp_path / "me").unlink()
    assert offsets.flush()
    assert "5" in offsets.path.read_text()
    offsets.release()
