"""Messages that leave together are one send to telemetry, whatever becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from rocketmq_sdk import ConsumeFrom, EmbeddedBroker, Message, Producer, PushConsumer
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError, ClosedError, ConfigurationError, SendTimeout
from rocketmq_sdk.producer.config import AutoBatch
from support.peers import SILENT, open_cluster
from support.producing import Running, message
from support.telemetry import Recorded, fake_send, id_of, linked, recording
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan
    from trio.testing import MockClock

    from rocketmq_sdk import ReceivedMessage
    from rocketmq_sdk.client.hooks import SendContext
    from support.peers import Cluster

FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as found:
        yield found


def contexts_of(cluster: Cluster) -> list[int]:
    """The spans that the messages name which brokers got, in their order."""
    found = []
    for broker in cluster.brokers:
        for _moment, _command, header in broker.sends:
            text = header.properties.partition("traceparent\x01")[2]
            found.append(int(text[36:52], 16))
    return found


def began(span: ReadableSpan) -> int:
    assert span.start_time is not None
    return span.start_time


def facts(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("messaging."): value for name, value in span.attributes.items()}  # type: ignore[union-attr]


async def test_messages_of_a_turn_topic_and_caller_have_one_span(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    """However they go: with others in one write, to a queue of their own, delayed."""
    tracer = recorded.provider.get_tracer("test")
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.publish_queues("t")
        cluster.route("u")
        await producer.publish_queues("u")
        handles = [producer.submit(message(b"%d" % number, tags="a")) for number in range(3)]
        handles.append(producer.submit(message(b"aimed", tags="a"), key=7))
        with tracer.start_as_current_span("send orders", attributes=fake_send()) as outer:
            handles += [producer.submit(message(delay_level=1)), producer.submit(message())]
        handles.append(producer.submit(message(tags="a")))
        handles.append(producer.submit(Message("u", b"body")))
        for handle in handles:
            await handle
        handles = [producer.submit(message(keys=["k"]), key="k") for _ in range(2)]
        await trio.sleep(0.001)  # another turn: aimed messages are in no outbox
        handles.append(producer.submit(message()))
        for handle in handles:
            await handle
        contexts = contexts_of(cluster)
    first, inside, later, alone = sorted(recorded.named("send t"), key=began)
    assert [len(found) for found in (first.links, inside.links)] == [0, 0]
    assert facts(first)["batch.message_count"] == 5
    assert facts(first)["rocketmq.message.tag"] == "a"
    assert facts(first)["rocketmq.message.type"] == "normal"
    assert facts(first)["client.id"] == producer.client.client_id
    assert facts(inside)["batch.message_count"] == 2
    assert "rocketmq.message.type" not in facts(inside)
    assert inside.parent is not None
    assert inside.parent.span_id == outer.get_span_context().span_id
    assert facts(later)["rocketmq.message.keys"] == ("k",)
    for span in (first, inside, later):
        assert span.kind is SpanKind.PRODUCER
        assert "message.id" not in facts(span)
        assert (facts(span)["batch.message_count"] > 1) == ("message.body.size" not in facts(span))
    assert facts(alone)["message.id"] == handles[-1].message_id
    assert facts(alone)["destination.partition.id"] == str((await handles[-1]).queue.queue_id)
    assert "batch.message_count" not in facts(alone)
    spans = [first, inside, later, alone, recorded.one("send u")]
    assert sorted(contexts) == sorted(
        id_of(span) for span in spans for _ in range(facts(span).get("batch.message_count", 1))
    )
    counted = recorded.metrics()
    assert sum(count for _, count in counted["messaging.client.sent.messages"]) == 11
    assert sum(count for _, count in counted["messaging.client.operation.duration"]) == 5


async def test_listeners_belong_to_the_send_of_all(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    heard: list[list[str]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        heard.append([each.message_id for each in messages])

    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        await producer.publish_queues("t")
        for handle in [producer.submit(message()) for _ in range(8)]:
            await handle
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"t": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            batch=4,
        ):
            await until(lambda: sum(map(len, heard)) == 8)
    sends = {id_of(span) for span in recorded.named("send t")}
    assert len(sends) <= 2  # a broker in the process answers the first one at once
    several = 0
    for span, ids in zip(recorded.named("process t"), heard, strict=True):
        assert linked(span) <= sends
        assert len(span.links) == len(ids)
        if len(ids) > 1:
            several += 1
            assert [link.attributes["messaging.message.id"] for link in span.links] == ids  # type: ignore[index]
    assert several


async def test_what_fails_of_several_is_told_one_by_one(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    def refuse(*_arguments: object) -> Any:
        raise ValueError("no queue for this one")

    async with open_cluster(brokers=1) as cluster, Running(cluster, retry_times=1) as producer:
        await producer.publish_queues("t")
        cluster.brokers[0].script = [0, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_BUSY, 0]
        handles = [producer.submit(message()) for _ in range(3)]
        handles.append(producer.submit(message(), selector=refuse))
        for place in (0, 2):  # one of them is stored by its second attempt
            await handles[place]
        with pytest.raises(BrokerError):
            await handles[1]
        with pytest.raises(ValueError, match="no queue"):
            await handles[3]
    span = recorded.one("send t")
    assert facts(span)["batch.message_count"] == 4
    assert span.status.status_code is StatusCode.ERROR
    assert str(span.status.description).startswith("2 of 4 messages failed, the first: ")
    events = {
        event.attributes["messaging.message.id"]: event.attributes["exception.type"]  # type: ignore[index]
        for event in span.events
    }
    assert events == {
        handles[1].message_id: "MessageIllegalError",
        handles[3].message_id: "ValueError",
    }
    counts = recorded.metrics()["messaging.client.sent.messages"]
    assert {(found.get("error.type"), count) for found, count in counts} == {
        (None, 2),
        ("MessageIllegalError", 1),
        ("ValueError", 1),
    }


async def test_spans_end_with_what_ends_the_messages(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    """A cancelled sender, a silent broker, the end of the producer; each is told, and
    `recording` sees that no span stays open.
    """
    async with open_cluster(brokers=1) as cluster:
        cluster.brokers[0].script = [SILENT] * 20
        async with Running(cluster, send_timeout=5) as producer:
            await producer.publish_queues("t")
            with trio.move_on_after(1):
                await producer.send(message())
            handle = producer.submit(message(), timeout=2)
            with pytest.raises(SendTimeout):
                await handle
            with trio.move_on_after(1):
                await producer.send_batch([message(), message()])
            last = [producer.submit(message()) for _ in range(3)]
            await producer.send_oneway(message())
        for handle in last:
            with pytest.raises((SendTimeout, ClosedError)):
                await handle
    errors = [facts(span).get("error.type") for span in recorded.named("send t")]
    assert errors[:3] == ["ClosedError", "SendTimeout", "ClosedError"]
    assert len(errors) in (4, 5)


@pytest.mark.parametrize("gathers", [False, True])
async def test_batches_have_one_span_and_no_creates(
    gathers: bool, recorded: Recorded, autojump_clock: MockClock
) -> None:
    async with open_cluster(brokers=1) as cluster:
        options = {"auto_batch": AutoBatch(max_bytes=1500, linger=0.1)} if gathers else {}
        async with Running(cluster, **options) as producer:
            await producer.publish_queues("t")
            if gathers:
                handles = [producer.submit(message(bytes(100), tags="a")) for _ in range(13)]
                for tag in "ab":  # both are taken back
                    with trio.move_on_after(0.01):
                        await producer.send(message(tags=tag))
                for handle in handles:
                    await handle
            else:
                await producer.send_batch([message(bytes(100), tags="a") for _ in range(12)])
        bodies = b"".join([command.body for _, command, _ in cluster.brokers[0].sends])
    spans = recorded.spans
    assert {(span.name, span.kind) for span in spans} == {("send t", SpanKind.PRODUCER)}
    counts = [facts(span)["batch.message_count"] for span in spans]
    if gathers:
        assert len(counts) > 1  # what is full leaves
        assert sum(counts) == 14  # one of those that were taken back would have been alone
        assert facts(spans[0])["rocketmq.message.tag"] == "a"
    else:
        assert counts == [12]
        assert facts(spans[0])["rocketmq.message.type"] == "normal"
    for span, count in zip(spans, counts, strict=True):
        failed = span.status.status_code is StatusCode.ERROR
        assert bodies.count(f"-{id_of(span):016x}-".encode()) == count - failed
    (counted,) = {
        count
        for found, count in recorded.metrics()["messaging.client.sent.messages"]
        if "error.type" not in found
    }
    assert counted == (13 if gathers else 12)


async def test_batches_that_are_not_sent_end_their_spans(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight=1, auto_batch=True) as producer,
    ):
        await producer.publish_queues("t")
        with pytest.raises(ConfigurationError, match="empty"):
            await producer.send_batch([])
        with pytest.raises(ConfigurationError, match="delayed"):
            await producer.send_batch([message(), message(delay_level=1)])
        with pytest.raises(ConfigurationError, match="excludes"):
            await producer.send_batch([message()], queue=producer._topics["t"].queues[0], key="k")
        with pytest.raises(ConfigurationError, match="properties"):
            producer.submit(message(keys="k" * 40000))
        cluster.brokers[0].script = [SILENT]
        held = producer.submit(message(delay_level=1), timeout=3)
        with pytest.raises(SendTimeout, match="limit"):
            await producer.send_batch([message()], timeout=1)
        with pytest.raises(SendTimeout):
            await held
        assert not producer._hooks._batches
    errors = [facts(span).get("error.type") for span in recorded.named("send t")]
    assert errors == [*["ConfigurationError"] * 3, "SendTimeout", "SendTimeout"]


async def test_a_batch_that_is_taken_back_keeps_no_context(autojump_clock: MockClock) -> None:
    with recording(ratio=0.0):
        async with (
            open_cluster(brokers=1) as cluster,
            Running(cluster, auto_batch=AutoBatch(linger=1.0)) as producer,
        ):
            await producer.publish_queues("t")
            with trio.move_on_after(0.5):
                await producer.send(message())
            (departures,) = producer._hooks.departures
            assert not departures._gathering
            assert not cluster.brokers[0].sends


@pytest.mark.parametrize("spans", ["batch", "message"])
async def test_a_context_that_a_message_brings_is_kept(
    spans: str, autojump_clock: MockClock
) -> None:
    bringing = message(properties={"traceparent": FOREIGN})
    with recording(spans=spans) as recorded:
        async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
            await producer.publish_queues("t")
            handles = [producer.submit(bringing), producer.submit(message())]
            for handle in handles:
                await handle
            texts = [header.properties for _, _, header in cluster.brokers[0].sends]
            await producer.send_batch([bringing, message()])
            batch = cluster.brokers[0].sends[-1][1].body
    assert sorted(text.count("traceparent") for text in texts) == [1, 1]
    assert sum(FOREIGN in text for text in texts) == 1
    assert batch.count(FOREIGN.encode()) == 1
    assert batch.count(b"traceparent") == 2
    by_kind = [span for span in recorded.named("send t") if span.kind is SpanKind.CLIENT]
    assert linked(by_kind[0]) == {0x00F067AA0BA902B7}
    assert facts(by_kind[0])["message.id"] == handles[0].message_id


@pytest.mark.parametrize("gathers", [False, True])
async def test_no_send_fails_for_its_context(
    gathers: bool, recorded: Recorded, autojump_clock: MockClock
) -> None:
    """Properties that just fit are sent without one."""
    long = message(keys="k" * 32_000)
    async with open_cluster(brokers=1) as cluster, Running(cluster, auto_batch=gathers) as producer:
        await producer.publish_queues("t")
        await producer.submit(long)
        await producer.send_batch([long])
        sends = cluster.brokers[0].sends
        assert len(sends) == 2
        assert not any("traceparent" in header.properties for _, _, header in sends)
        assert not any(b"traceparent" in command.body for _, command, _ in sends)
    assert len(recorded.named("send t")) == 2


async def test_hooks_of_a_producer_see_each_message_beside_it(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    class Hook:
        def __init__(self) -> None:
            self.seen: list[tuple[Message, bool]] = []

        def before_send(self, context: SendContext) -> None:
            context.properties["mine"] = "1"

        def after_send(self, context: SendContext) -> None:
            self.seen.append((context.message, context.error is None))

    def forbid(context: SendContext) -> None:
        if context.message.tags == "no":
            raise PermissionError("not this one")

    class Forbidding:
        check_forbidden = staticmethod(forbid)

    hook = Hook()
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, send_hooks=[hook], forbidden_hooks=[Forbidding()]) as producer,
    ):
        await producer.publish_queues("t")
        messages = [message() for _ in range(3)]
        handles = [producer.submit(one) for one in messages]
        with pytest.raises(PermissionError):
            producer.submit(message(tags="no"))
        for handle in handles:
            await handle
        contexts = contexts_of(cluster)
        texts = [header.properties for _, _, header in cluster.brokers[0].sends]
    assert [seen for seen, stored in hook.seen if stored] == messages
    assert all("mine\x011\x02" in text for text in texts)
    span = recorded.one("send t")
    assert contexts == [id_of(span)] * 3
    assert facts(span)["batch.message_count"] == 3
    assert recorded.metrics()["messaging.client.sent.messages"][0][1] == 3


async def test_a_listener_sends_on_in_the_trace_of_its_message(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    """Each call has a context of its own, so its sends do not join those of others."""
    sent: list[tuple[int, int]] = []

    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:

        async def listener(received: ReceivedMessage) -> None:
            mine = trace.get_current_span().get_span_context().span_id
            await producer.send(message(received.body))
            sent.append((mine, 1))

        await producer.publish_queues("t")
        for handle in [producer.submit(Message("u", b"%d" % n)) for n in range(4)]:
            await handle
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"u": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await until(lambda: len(sent) == 4)
    parents = [span.parent.span_id for span in recorded.named("send t") if span.parent]
    assert sorted(parents) == sorted(mine for mine, _ in sent)
