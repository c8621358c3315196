"""Messages that consumers send back: retry levels, dead letters, what the copies
carry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.broker import Peer, open_broker, pull_request

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


async def next_retry(peer: Peer, offset: int, topic: str = "%RETRY%CG") -> ReceivedMessage:
    while True:
        answer = await peer.ask(pull_request(topic, offset, hold=30))
        if answer.code == 0:
            return decode_messages(answer.body)[0]


async def test_all_the_way_to_the_dead_letter_topic(autojump_clock: MockClock) -> None:
    """Sixteen retries with growing delays, then the dead letter topic."""
    delays = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    with trio.fail_after(30_000):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"bad", tag="A", properties="KEYS\x01k\x02", flag=7)
            [original] = await peer.pull("orders")
            message, sent = original, trio.current_time()
            for number, delay in enumerate(delays):
                assert (await peer.send_back(message)).code == 0
                message = await next_retry(peer, number)
                assert trio.current_time() - sent == pytest.approx(delay, abs=0.003)
                sent = trio.current_time()
                assert message.reconsume_times == number + 1
                assert message.properties["RETRY_TOPIC"] == "orders"
                assert message.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
                assert message.properties["UNIQ_KEY"] == original.properties["UNIQ_KEY"]
                assert message.properties["WAIT"] == "false"
                assert (message.body, message.tags, message.keys, message.flag) == (
                    b"bad",
                    "A",
                    ("k",),
                    7,
                )
                assert (message.born_timestamp, message.born_host) == (
                    original.born_timestamp,
                    original.born_host,
                )
            assert (await peer.send_back(message)).code == 0
            [dead] = await peer.pull("%DLQ%CG")
            assert (
                dead.reconsume_times,
                dead.properties["DELAY"],
                dead.properties["RETRY_TOPIC"],
            ) == (17, "0", "orders")
            assert broker.core.stats.dead_letters == 1
            assert broker.core.stats.groups["orders", "CG"].sent_back == 17


async def test_levels_of_the_request(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x")
            [message] = await peer.pull("orders")
            begin = trio.current_time()
            await peer.send_back(message, level=1)
            assert (await next_retry(peer, 0)).body == b"x"
            assert trio.current_time() - begin == pytest.approx(1, abs=0.003)
            await peer.send_back(message, level=-1)
            assert len(await peer.pull("%DLQ%CG")) == 1


async def test_the_clients_maximum_wins(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"x")
            [message] = await peer.pull("orders")
            await peer.send_back(message, max_reconsume_times=0)
            assert broker.store.max_offset("%DLQ%CG", 0) == 1
            broker.core.groups.update(SubscriptionGroupConfig("few", retry_max_times=0))
            await peer.send_back(message, group="few")
            assert broker.store.max_offset("%DLQ%few", 0) == 1


async def test_refusals(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"x")
            [message] = await peer.pull("orders")
            assert (await peer.send_back(message, group="bad group!")).code == 26
            message.commit_log_offset = 99_999_999
            answer = await peer.send_back(message)
            assert (answer.code, answer.remark) == (1, "look message by offset failed, 99999999")
            message.commit_log_offset = 3
            assert (await peer.send_back(message)).code == 1
            message.commit_log_offset = 0
            broker.core.topics.put(TopicConfig("%RETRY%CG", 1, 1, 4))
            assert (await peer.send_back(message)).code == 16
            broker.core.groups.update(SubscriptionGroupConfig("none", retry_queue_nums=0))
            end = broker.store.max_physical_offset
            assert (await peer.send_back(message, group="none")).code == 0
            assert broker.store.max_physical_offset == end
            assert (await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, group="CG")).code == 1


async def test_a_broker_that_may_not_be_written(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(broker_permission=4) as (_broker, peer):
            await peer.send("orders", b"x")
            [message] = await peer.pull("orders")
            assert (await peer.send_back(message)).code == 16
