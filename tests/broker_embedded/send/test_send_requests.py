"""Sends: what is refused, in which order, and what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeader
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.source import TcpChannelSource
from support.broker import Peer, open_broker, open_on, pull_request, send_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock


async def stored(peer: Peer, topic: str, offset: int = 0, queue_id: int = 0) -> dict[str, str]:
    answer = await peer.ask(pull_request(topic, offset, queue_id=queue_id))
    assert answer.code == 0
    return decode_messages(answer.body)[0].properties


@pytest.mark.parametrize(
    ("request_", "code", "remark"),
    [
        (
            send_request("bad topic!", b"x"),
            29,
            (
                "The specified topic: bad topic!, contains illegal characters, allowing only "
                "^[%|a-zA-Z0-9_-]+$"
            ),
        ),
        (send_request("", b"x"), 29, "The specified topic is blank."),
        (send_request("t" * 128, b"x"), 29, "is longer than topic max length: 127"),
        (
            send_request("SCHEDULE_TOPIC_XXXX", b"x"),
            16,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        ),
        (
            send_request("unknown", b"x", default_topic="nothing"),
            17,
            "topic[unknown] not exist, apply first please!",
        ),
        (
            send_request("orders", b"x", queue_id=4),
            29,
            "request queueId[4] is illegal, TopicConfig [topicName=orders, readQueueNums=4, ",
        ),
        (send_request("orders", bytes(2001)), 13, "msg body length limit 2000B"),
        (
            send_request("orders", b"x", properties="a\x01" + "v" * 33_000 + "\x02"),
            13,
            "msg properties length limit 32KB",
        ),
        (
            send_request("orders", b"x", properties="TIMER_DELAY_SEC\x01soon\x02"),
            13,
            "timer message illegal",
        ),
        (
            send_request("orders", b"x", properties="TIMER_DELAY_SEC\x01300000\x02"),
            13,
            "timer message illegal",
        ),
        (send_request("%RETRY%bad group", b"x"), 29, "illegal characters"),
        (send_request("compacted", b"x"), 13, "key is missing"),
        (send_request("orders", b""), 1, "without a body"),
        (send_request("orders", b"x", properties="DELAY\x01soon\x02"), 1, "DELAY"),
    ],
)
async def test_refusals(
    request_: Command, code: int, remark: str, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_broker(max_message_size=2000) as (broker, peer):
            broker.core.topics.put(TopicConfig("orders", 4, 4))
            broker.core.topics.put(
                TopicConfig("compacted", 4, 4, attributes={"cleanup.policy": "COMPACTION"})
            )
            end = broker.store.max_physical_offset
            answer = await peer.ask(request_)
            assert answer.code == code
            assert remark in (answer.remark or "")
            assert broker.store.max_physical_offset == end
            if code != 1:
                assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@pytest.mark.parametrize("missing", list("abcdefgh"))
async def test_missing_fields_are_named(missing: str, autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            request = send_request("new-topic", b"x")
            del request.ext_fields[missing]
            answer = await peer.ask(request)
            if missing == "a":
                return  # nobody looks at the producer group, here as at Apache's
            assert answer.code == 1
            assert "SendMessageRequestHeaderV2" in (answer.remark or "")


async def test_what_the_broker_adds(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(region_id="here", trace_on=False, broker_cluster_name="shop") as (
            _broker,
            peer,
        ):
            old = "POP_CK\x01gone\x02MSG_REGION\x01elsewhere\x02a\x01b\x02"
            answer = await peer.send("orders", b"x", properties=old, tag="A")
            properties = await stored(peer, "orders")
            assert properties == {
                "a": "b",
                "TAGS": "A",
                "MSG_REGION": "here",
                "TRACE_ON": "false",
                "CLUSTER": "shop",
                "UNIQ_KEY": answer.ext_fields["transactionId"],
            }
            assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == (
                "here",
                "false",
            )


async def test_a_property_text_without_its_last_separator(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x", properties="UNIQ_KEY\x01U1\x02a\x01b")
            properties = await stored(peer, "orders")
            assert (properties["a"], properties["UNIQ_KEY"], properties["MSG_REGION"]) == (
                "b",
                "U1",
                "DefaultRegion",
            )


async def test_the_long_names(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            header = SendMessageRequestHeader(
                producer_group="PG",
                topic="orders",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=1,
                sys_flag=0,
                born_timestamp=5,
                flag=7,
            )
            answer = await peer.ask(Command.request(RequestCode.SEND_MESSAGE, header, body=b"v1"))
            assert answer.code == 0
            [message] = await peer.pull("orders", queue_id=1)
            assert (message.body, message.flag, message.born_timestamp) == (b"v1", 7, 5)
            broken = Command(RequestCode.SEND_MESSAGE, ext_fields={"topic": "orders"}, body=b"x")
            assert (await peer.ask(broken)).code == 1


async def test_one_way(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            peer.channel.send_oneway(send_request("orders", b"no answer"))
            peer.channel.send_oneway(send_request("bad topic!", b"no answer"))
            assert len(await peer.pull("orders")) == 1
            assert broker.core.stats.put_messages == 1


async def test_a_negative_queue_is_chosen_by_the_broker(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            chosen = {
                (await peer.send("orders", b"x", queue_id=-1)).ext_fields["queueId"]
                for _ in range(100)
            }
            assert chosen == {"0", "1", "2", "3"}


async def test_batches(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            body = encode_batch(
                [
                    (
                        number,
                        str(number).encode(),
                        f"UNIQ_KEY\x01U{number}\x02TAGS\x01T{number}\x02".encode(),
                    )
                    for number in range(3)
                ]
            )
            request = send_request("orders", body, batch=True, properties="UNIQ_KEY\x01B\x02")
            answer = await peer.ask(request)
            assert answer.code == 0
            assert len(answer.ext_fields["msgId"].split(",")) == 3
            assert (answer.ext_fields["queueOffset"], answer.ext_fields["transactionId"]) == (
                "0",
                "B",
            )
            messages = await peer.pull("orders")
            assert [
                (message.offset, message.flag, message.body, message.tags) for message in messages
            ] == [(number, number, str(number).encode(), f"T{number}") for number in range(3)]
            assert [message.offset_message_id for message in messages] == answer.ext_fields[
                "msgId"
            ].split(",")
            assert [message.tags for message in await peer.pull("orders", expression="T1")] == [
                "T1"
            ]
            assert broker.core.stats.put_messages == 3
            assert (
                await peer.ask(send_request("%RETRY%CG", body, batch=True))
            ).code == ResponseCode.MESSAGE_ILLEGAL
            assert (
                await peer.ask(send_request("orders", b"no batch", batch=True))
            ).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.real_time
async def test_a_batch_over_tcp_is_in_its_queue_when_its_answer_is_there() -> None:
    """It goes there after the answer has left: nobody comes between."""
    body = encode_batch([(0, b"%d" % number, b"") for number in range(3)])
    with trio.fail_after(60):
        async with open_broker() as (broker, _peer), trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            await nursery.start(broker.server.serve, [listener])
            host, port = listener.socket.getsockname()[:2]
            address = f"{host}:{port}"
            source = TcpChannelSource()
            one = await source.open_channel(address, Dispatcher(), nursery)
            two = await source.open_channel(address, Dispatcher(), nursery)
            await one.call(send_request("orders", body, batch=True), 60)
            for number in range(1, 20):
                held = two.submit(pull_request("orders", 3 * number, hold=60.0), 60)
                answer = await one.call(send_request("orders", body, batch=True), 60)
                assert answer.ext_fields["queueOffset"] == f"{3 * number}"
                assert broker.store.max_offset("orders", 0) == 3 * (number + 1)
                found = await one.call(pull_request("orders", 3 * number), 60)
                for pulled in (found, await held.wait()):
                    bodies = [message.body for message in decode_messages(pulled.body)]
                    assert bodies == [b"0", b"1", b"2"]
            nursery.cancel_scope.cancel()


async def test_a_consumer_that_sends_to_its_retry_topic(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.send("%RETRY%CG", b"again", reconsume_times=16, max_reconsume_times=16)
            assert [message.reconsume_times for message in await peer.pull("%RETRY%CG")] == [16]
            answer = await peer.send(
                "%RETRY%CG",
                b"dead",
                reconsume_times=17,
                max_reconsume_times=16,
                properties="DELAY\x013\x02",
            )
            assert answer.ext_fields["queueId"] == "0"
            [dead] = await peer.pull("%DLQ%CG")
            assert (dead.body, dead.properties["DELAY"]) == (b"dead", "-1")
            broker.parts.members.locks.lock("CG", [MessageQueue("orders", "broker-a", 0)], "c1")
            await peer.send("%RETRY%CG", b"orderly", reconsume_times=1)
            assert [message.body for message in await peer.pull("%DLQ%CG")] == [b"dead", b"orderly"]
            assert broker.core.stats.dead_letters == 2


async def test_a_retry_topic_of_a_group_that_may_not_be_made(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(auto_create_subscription_group=False) as (_broker, peer):
            answer = await peer.ask(send_request("%RETRY%CG", b"x"))
            assert (answer.code, (answer.remark or "").split(",")[0]) == (
                26,
                "subscription group not exist",
            )


async def test_priorities_choose_the_queue(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for priority, queue in ((0, "0"), (2, "2"), (99, "3")):
                answer = await peer.send(
                    "orders", b"x", properties=f"_SYS_MSG_PRIORITY_\x01{priority}\x02", queue_id=1
                )
                assert answer.ext_fields["queueId"] == queue
            answer = await peer.send(
                "orders",
                b"x",
                properties="_SYS_MSG_PRIORITY_\x012\x02__SHARDINGKEY\x01k\x02",
                queue_id=1,
            )
            assert answer.ext_fields["queueId"] == "1"
            assert "_SYS_MSG_PRIORITY_" not in await stored(peer, "orders", queue_id=1)


async def test_multi_tag_topics_mark_their_messages(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            broker.core.topics.put(TopicConfig("orders", 1, 1, topic_filter_type="MULTI_TAG"))
            await peer.send("orders", b"x")
            assert [message.sys_flag for message in await peer.pull("orders")] == [2]


async def test_a_timer_whose_time_has_come_is_an_ordinary_message(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x", properties="TIMER_DELIVER_MS\x011000\x02")
            assert len(await peer.pull("orders")) == 1


async def test_a_broker_that_may_not_be_written(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(broker_permission=4) as (broker, peer):
            broker.core.topics.put(TopicConfig("ordered", 1, 1, order=True))
            assert (
                await peer.ask(send_request("ordered", b"x"))
            ).code == ResponseCode.NO_PERMISSION
            await peer.send("free", b"x")


async def test_settings_changed_while_running(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
            peer = Peer()
            peer.channel = await broker.open_channel(broker.core.address(), peer.handle, nursery)
            await peer.send("orders", bytes(100))
            change = Command(
                RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=50\nregionId=moved\n"
            )
            assert (await peer.ask(change)).code == 0
            refused = await peer.ask(send_request("orders", bytes(100)))
            assert (refused.code, refused.ext_fields["MSG_REGION"]) == (
                ResponseCode.MESSAGE_ILLEGAL,
                "moved",
            )
            await peer.ask(
                Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=6000000\n")
            )
            await peer.send("orders", bytes(5_000_000))
            fixed = await peer.ask(
                Command(
                    RequestCode.UPDATE_BROKER_CONFIG,
                    body=b"flushDiskType=SYNC_FLUSH\nregionId=elsewhere\n",
                )
            )
            assert (fixed.code, broker.config.region_id) == (ResponseCode.SYSTEM_ERROR, "moved")
            assert (
                "flushDiskType cannot change while the broker runs: it takes effect after a restart"
                in (fixed.remark or "")
            )
            await peer.ask(
                Command(
                    RequestCode.UPDATE_BROKER_CONFIG,
                    body=b"startAcceptSendRequestTimeStamp=9999999999999\n",
                )
            )
            assert (await peer.ask(send_request("orders", b"x"))).code == ResponseCode.SYSTEM_ERROR
            nursery.cancel_scope.cancel()


async def test_a_deleted_topic_is_made_anew(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"old")
            assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")).code == 0
            answer = await peer.send("orders", b"new")
            assert answer.ext_fields["queueOffset"] == "0"
            assert [message.body for message in await peer.pull("orders")] == [b"new"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, 10),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14),
        (PutStatus.PUT_OK, 0),
    ],
)
async def test_how_a_synchronous_flush_ended(
    status: PutStatus, code: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def when_durable(_self: object, _result: object, tell: Callable[[PutStatus], None]) -> None:
        trio.lowlevel.spawn_system_task(tell_later, tell)

    async def tell_later(tell: Callable[[PutStatus], None]) -> None:
        await trio.sleep(1)
        tell(status)

    with trio.fail_after(60):
        async with open_broker(flush_disk_type="SYNC_FLUSH") as (_broker, peer):
            monkeypatch.setattr(MessageStore, "when_durable", when_durable)
            answer = await peer.ask(send_request("orders", b"x"))
            assert answer.code == code
            assert ("queueOffset" in answer.ext_fields) == (code != 14)
            assert (
                await peer.ask(send_request("orders", b"x", properties="WAIT\x01false\x02"))
            ).code == 0


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.CREATE_MAPPED_FILE_FAILED, 1),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14),
        (PutStatus.OS_PAGE_CACHE_BUSY, 2),
        (PutStatus.UNKNOWN_ERROR, 1),
    ],
)
async def test_what_a_store_that_refuses_means(
    status: PutStatus, code: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MessageStore, "put", lambda _self, _message: PutResult(status))
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answer = await peer.ask(send_request("orders", b"x"))
            assert answer.code == code
            assert answer.remark
            assert broker.core.stats.put_failed == 1


async def test_a_send_is_refused_while_the_file_of_topics_cannot_be_written(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = [True]
    store = ConfigFile.store

    def failing(file: ConfigFile, value: object) -> None:
        if fails[0] and file.name == "topics.json":
            raise StoreError("No space left on device")
        store(file, value)

    with trio.fail_after(60):
        async with open_on(MemoryFileSystem()) as (broker, peer):
            monkeypatch.setattr(ConfigFile, "store", failing)
            end = broker.store.max_physical_offset
            for _ in range(2):
                answer = await peer.ask(send_request("fresh", b"x"))
                assert (answer.code, answer.remark) == (
                    ResponseCode.SYSTEM_ERROR,
                    "No space left on device",
                )
                assert broker.core.topics.get("fresh") is None
                assert broker.namesrv.table.route("fresh") is None
            assert broker.store.max_physical_offset == end
            fails[0] = False
            await peer.send("fresh", b"x")
            assert broker.namesrv.table.route("fresh") is not None
            stored = ConfigFile(broker.store.files, "topics.json").load()
            assert isinstance(stored, dict)
            assert "fresh" in stored["topicConfigTable"]


async def test_a_batch_for_a_topic_of_batch_queues_stays_one_record(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            broker.core.topics.put(
                TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"})
            )
            body = encode_batch([(0, b"one", b"a\x011\x02"), (0, b"two", b""), (0, b"three", b"")])
            request = send_request("batches", body, properties="UNIQ_KEY\x01BATCH1\x02", batch=True)
            answer = await peer.ask(request)
            assert (
                answer.code,
                answer.ext_fields["queueOffset"],
                answer.ext_fields["batchUniqId"],
            ) == (0, "0", "BATCH1")
            assert (await peer.send("batches", b"four")).ext_fields["queueOffset"] == "3"
            pulled = await peer.ask(pull_request("batches", 0))
            assert (
                pulled.code,
                pulled.ext_fields["nextBeginOffset"],
                pulled.ext_fields["maxOffset"],
            ) == (0, "4", "4")
            messages = decode_messages(pulled.body)
            assert [(message.offset, message.body) for message in messages] == [
                (0, b"one"),
                (1, b"two"),
                (2, b"three"),
                (3, b"four"),
            ]
            assert messages[0].properties == {"a": "1"}
            (container, _single) = decode_messages(pulled.body, unwrap=False)
            assert (container.properties["INNER_NUM"], container.properties["INNER_BASE"]) == (
                "3",
                "0",
            )
