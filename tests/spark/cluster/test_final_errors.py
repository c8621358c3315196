"""What is asked of brokers is asked again for `retryTimeout`; what is said then, and
what is said of a refusal, names broker and queue.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import trio

from rocketmq_sdk import Admin, Client, EmbeddedBroker, Producer
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import UnreachableError, whole_text
from rocketmq_sdk.spark.cluster.view import ClusterView
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.plan.ranges import Range
from rocketmq_sdk.spark.read.pulls import Piece, PullPlan, pull_ranges
from rocketmq_sdk.spark.write.rows import RowMaker
from rocketmq_sdk.spark.write.send_plan import SendPlan
from rocketmq_sdk.spark.write.sending import Tally, send_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command

NS = {"namesrvAddr": "unused:1", "retryTimeout": "20s"}
UNUSED = ClusterAccess("unused:1")


class Answering:
    """Lets the broker's answers to some requests be others."""

    def __init__(self) -> None:
        self.asked: RequestCode | None = None
        self.code = ResponseCode.SYSTEM_BUSY
        self.count = 0

    def before(self, command: Command, address: str | None) -> None:
        """Requests go as they are."""

    def after(self, command: Command, response: Command, address: str | None) -> None:
        if command.code == self.asked:
            response.code, response.remark, response.body, response.ext_fields = (
                self.code,
                "as the test says",
                b"",
                {},
            )
            self.count += 1


@asynccontextmanager
async def a_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[Client, QueueKey, Answering]]:
    """A topic of one queue, a client whose answers can be changed."""
    answering = Answering()
    async with (
        EmbeddedBroker() as broker,
        Client(broker, interceptors=[answering]) as client,
        Producer("P", client=client) as producer,
    ):
        await Admin(client=producer.client).topics.create("T", queues=1)
        (queue,) = await producer.publish_queues("T")

        @asynccontextmanager
        async def lent(*_: Any, **__: Any) -> AsyncIterator[Any]:
            yield client

        @asynccontextmanager
        async def lent_producer(*_: Any, **__: Any) -> AsyncIterator[Any]:
            yield producer

        monkeypatch.setattr(bridge, "client", lent)
        monkeypatch.setattr(bridge, "producer", lent_producer)
        yield client, QueueKey("T", queue.broker_name, queue.queue_id), answering


def cluster(client: Client, **options: str) -> ClusterView:
    return ClusterView(client, parse(NS | {"subscribe": "T"} | options, Use.STREAM))


async def ends(client: Client, queue: QueueKey) -> None:
    await cluster(client).bounds([queue])


async def times(client: Client, queue: QueueKey) -> None:
    await cluster(client).at_times({queue: 1})


async def expression(client: Client, queue: QueueKey) -> None:
    await cluster(client, subExpression="a = 1", filterType="SQL92").check_expression([queue])


async def pull(client: Client, queue: QueueKey) -> None:
    async def put(pieces: Sequence[Piece]) -> None:
        raise AssertionError(f"nothing can be pulled: {pieces}")

    await pull_ranges(
        put, PullPlan(UNUSED, "TOOLS_CONSUMER", "*", "TAG", 32, 20.0, True), [Range(queue, 0, 1)]
    )


async def send(*columns: tuple[str, pa.Array]) -> None:
    names = [name for name, _ in columns]
    ids = lambda count: ["0" * 32] * count  # noqa: E731
    maker = RowMaker(
        names, topic="T", scope="s", partition=0, max_body=1 << 20, skip_bad=False, next_ids=ids
    )
    sending, receiving = trio.open_memory_channel[Any](10)
    async with sending:
        for part in maker.parts(
            pa.RecordBatch.from_arrays([array for _, array in columns], names=names)
        ):
            await sending.send(part)
    await send_all(receiving, SendPlan.of(parse(NS | {"topic": "T"}, Use.SINK), UNUSED), Tally())


async def send_batch(client: Client, queue: QueueKey) -> None:
    await send(("body", pa.array([b"a", b"b"])))


async def send_in_order(client: Client, queue: QueueKey) -> None:
    await send(("body", pa.array([b"a", b"b"])), ("shardingKey", pa.array(["k", "k"])))


async def send_alone(client: Client, queue: QueueKey) -> None:
    await send(("body", pa.array([b"a"])), ("delayLevel", pa.array([1], pa.int32())))


CALLS: list[tuple[Callable[[Client, QueueKey], Awaitable[None]], RequestCode, tuple[str, ...]]] = [
    (ends, RequestCode.GET_TOPIC_STATS_INFO, ("the broker 'broker-a'", "topic 'T'")),
    (
        times,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        ("the broker 'broker-a'", "queue T/broker-a/0"),
    ),
    (expression, RequestCode.CHECK_CLIENT_CONFIG, ("the broker 'broker-a'", "topic 'T'")),
    (pull, RequestCode.PULL_MESSAGE, ("pulling from queue T/broker-a/0 at offset 0",)),
    (
        send_batch,
        RequestCode.SEND_BATCH_MESSAGE,
        ("sending to topic 'T'", "the last try was at broker 'broker-a', queue 0"),
    ),
    (
        send_in_order,
        RequestCode.SEND_BATCH_MESSAGE,
        ("sending to queue T/broker-a/0", "the last try was at broker 'broker-a', queue 0"),
    ),
    (
        send_alone,
        RequestCode.SEND_MESSAGE_V2,
        ("sending to topic 'T'", "the last try was at broker 'broker-a', queue 0"),
    ),
]
IDS = [f"{call.__name__}-{code.name}" for call, code, _ in CALLS]


@pytest.mark.parametrize(("call", "asked", "named"), CALLS, ids=IDS)
@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_BUSY, ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
)
async def test_broker_and_queue_are_named(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    call: Any,
    asked: RequestCode,
    named: tuple[str, ...],
    code: ResponseCode,
) -> None:
    async with a_topic(monkeypatch) as (client, queue, answering):
        answering.asked, answering.code = asked, code
        begin = trio.current_time()
        with pytest.raises(RocketMQError) as caught:
            await call(client, queue)
        took, text = trio.current_time() - begin, whole_text(caught.value)
        assert [part for part in named if part not in text] == [], text
        assert "as the test says" in text
        if code is ResponseCode.SYSTEM_BUSY:
            assert isinstance(caught.value, UnreachableError)
            assert "retryTimeout=20s" in text
            assert 10 < took <= 25
            assert answering.count > 5
        else:
            assert took < 10
