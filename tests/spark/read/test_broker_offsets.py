"""Offsets that a stream shows at the brokers: written on change, never backwards, never
for a group that somebody consumes with.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin, Client, EmbeddedBroker, Message, Producer, PushConsumer
from rocketmq_sdk.client.api.offsets import query_consumer_offset
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.read.broker_offsets import AWAY_PAUSE, BrokerOffsets
from rocketmq_sdk.spark.read.edges import batch_ranges
from rocketmq_sdk.spark.read.pulls import PullPlan, pull_ranges

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.spark.options.settings import SparkOptions

FIRST, SECOND = QueueKey("T", "broker-a", 0), QueueKey("T", "broker-a", 1)


class Codes:
    """The requests of a client, by code."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.refused: int | None = None

    def before(self, command: Command, address: str | None) -> None:
        self.seen.append(command.code)

    def after(self, command: Command, response: Command, address: str | None) -> None:
        if command.code == self.refused:
            response.code, response.remark = ResponseCode.NO_PERMISSION, "no"

    @property
    def writes(self) -> int:
        return self.seen.count(RequestCode.UPDATE_CONSUMER_OFFSET)


@asynccontextmanager
async def cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[EmbeddedBroker, Client, Codes]]:
    """A topic of two queues with 20 messages, and the client that the bridge lends."""
    codes = Codes()
    async with EmbeddedBroker() as broker, Client(broker, interceptors=[codes]) as client:
        async with Producer("filler", namesrv=broker) as producer:
            await Admin(client=producer.client).topics.create("T", queues=2)
            for queue in await producer.publish_queues("T"):
                await producer.send_batch(
                    [Message("T", b"%d" % number) for number in range(20)], queue=queue
                )

        @asynccontextmanager
        async def lent(_connection: ClusterAccess) -> AsyncIterator[Client]:
            yield client

        monkeypatch.setattr(bridge, "client", lent)
        yield broker, client, codes


def settings(**more: str) -> SparkOptions:
    options = {
        "namesrvAddr": "unused:1",
        "subscribe": "T",
        "consumerGroup": "shown",
        "commitOffsetsToBroker": "true",
        "retryTimeout": "20s",
    }
    return parse(options | more, Use.STREAM)


async def shown(client: Client, queue: QueueKey) -> int | None:
    return await query_consumer_offset(client, queue.broker, "shown", queue.topic, queue.queue_id)


async def test_offsets_are_written_on_change_only_and_never_backwards(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(monkeypatch) as (_, client, codes):
        offsets = BrokerOffsets(settings())
        await offsets.write({FIRST: 5, SECOND: 7})
        assert (await shown(client, FIRST), await shown(client, SECOND)) == (5, 7)
        written = codes.writes
        for _ in range(3):
            await offsets.write({FIRST: 5, SECOND: 7})
        assert codes.writes == written
        await offsets.write({FIRST: 5, SECOND: 9})
        assert codes.writes == written + 1
        later = BrokerOffsets(settings())  # a restart: it knows nothing of what was written before
        await later.write({FIRST: 3, SECOND: 9})
        assert codes.writes == written + 1
        assert (await shown(client, FIRST), await shown(client, SECOND)) == (5, 9)
        await later.write({FIRST: 6, SECOND: 8})
        assert (await shown(client, FIRST), await shown(client, SECOND)) == (6, 9)


async def test_a_group_with_consumers_is_refused_and_left_alone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listener(_message: Any) -> None:
        await trio.sleep_forever()  # nothing is consumed

    told = (
        "the group 'shown' has 1 live consumers at the broker 'broker-a'; commitOffsetsToBroker "
        "needs a group of its own"
    )
    async with (
        cluster(monkeypatch) as (broker, _, codes),
        PushConsumer("shown", namesrv=broker, subscriptions={"T": "*"}, listener=listener),
    ):
        with pytest.raises(ConfigurationError, match=told):
            await BrokerOffsets(settings()).write({FIRST: 5})
        assert codes.writes == 0


async def test_a_topic_that_is_gone_is_a_warning(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it ends the query is for failOnDataLoss to say."""
    async with cluster(monkeypatch) as (_, client, _):
        offsets = BrokerOffsets(settings())
        await offsets.write({FIRST: 5})
        gone = QueueKey("missing", "broker-b", 0)
        with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
            await offsets.write({FIRST: 6, gone: 1})
            await offsets.write({FIRST: 6, gone: 1})
        assert (
            caplog.text.count(
                "the offset of queue missing/broker-b/0 is not written for group 'shown'"
            )
            == 1
        )
        assert await shown(client, FIRST) == 6


@pytest.mark.parametrize("fails", ["true", "false"])
async def test_a_broker_that_is_away(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: str,
) -> None:
    """Whatever `failOnDataLoss` says, the query and the other offsets go on."""
    async with cluster(monkeypatch) as (_, client, _):
        offsets = BrokerOffsets(settings(failOnDataLoss=fails))
        away = QueueKey("T", "broker-away", 0)
        begin = trio.current_time()
        with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
            for number in range(6, 10):
                await offsets.write({away: 5, FIRST: number})
        assert trio.current_time() - begin < 10
        assert await shown(client, FIRST) == 9
        assert caplog.text.count("the query goes on, and they are written later") == 1


async def test_a_broker_that_refuses(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(monkeypatch) as (_, client, codes):
        offsets = BrokerOffsets(settings())
        codes.refused = RequestCode.UPDATE_CONSUMER_OFFSET
        with caplog.at_level(logging.WARNING, "rocketmq_sdk.spark"):
            await offsets.write({FIRST: 5, SECOND: 7})
        assert "writing the offset of queue T/broker-a/0 for group 'shown' failed" in caplog.text
        codes.refused = None
        await trio.sleep(AWAY_PAUSE)
        await offsets.write({FIRST: 5, SECOND: 7})
        assert (await shown(client, FIRST), await shown(client, SECOND)) == (5, 7)


async def test_offsets_of_many_queues_are_written_side_by_side(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round trip of 20 ms for each of 512 queues would be 20 s one after another."""
    async with cluster(monkeypatch) as (_broker, client, codes):
        await Admin(client=client).topics.create("wide", queues=512)
        queues = [QueueKey("wide", "broker-a", number) for number in range(512)]
        answering = Client.call_broker

        async def slow(self: Client, *args: Any, **more: Any) -> Command:
            await trio.sleep(0.02)
            return await answering(self, *args, **more)

        monkeypatch.setattr(Client, "call_broker", slow)
        begin = trio.current_time()
        await BrokerOffsets(settings()).write(dict.fromkeys(queues, 1))
        assert trio.current_time() - begin < 2
        assert codes.writes >= 512
        assert await shown(client, queues[-1]) == 1


async def test_a_reader_is_no_member_of_any_group(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends no heartbeat, however long it runs, and moves no offset unless it is
    told to.
    """

    async def put(_bundle: object) -> None:
        await trio.sleep(100)  # longer than three heartbeats of a consumer are apart

    async with cluster(monkeypatch) as (_, _, codes):
        given = parse({"namesrvAddr": "unused:1", "subscribe": "T"}, Use.BATCH)
        ranges = await batch_ranges(given)
        assert sum(map(len, ranges)) == 40
        await pull_ranges(put, PullPlan.of(given, ClusterAccess("unused:1")), ranges)
        assert codes.seen.count(RequestCode.PULL_MESSAGE) >= 2
        assert not {RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET} & set(codes.seen)
