"""Spans and metrics of clients, held against OpenTelemetry's conventions, with its
SDK's exporter in memory.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as contexts
from opentelemetry.propagators.textmap import default_setter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    aio,
    otel,
    sync,
)
from rocketmq_sdk.client import observers
from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from support import asyncio_run
from support.telemetry import Recorded, fake_send, id_of, linked, recording
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

    from rocketmq_sdk import ReceivedMessage


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as found:
        yield found


@pytest.fixture
def by_message() -> Iterator[Recorded]:
    with recording(spans="message") as found:
        yield found


async def test_a_listener_belongs_to_the_trace_of_the_send(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    inside = []

    async def listener(message: ReceivedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        await trio.sleep(0.5)

    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
    ):
        await producer.send(Message("orders", b"42", tags="new", keys=["42"], sharding_key="c"))
        assert observers.installed()
        async with _pushing(broker, listener):
            await until(lambda: recorded.named("process orders"))
    send, process = recorded.one("send orders"), recorded.one("process orders")
    assert send.kind is SpanKind.PRODUCER
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is not None
    assert process.parent.span_id == id_of(send)
    assert linked(process) == {id_of(send)}
    assert inside == [id_of(process)]
    sent, processed = dict(send.attributes or {}), dict(process.attributes or {})
    assert sent["messaging.rocketmq.message.type"] == "fifo"
    assert sent["messaging.rocketmq.message.group"] == "c"
    assert sent["messaging.rocketmq.message.tag"] == "new"
    assert sent["messaging.rocketmq.message.keys"] == ("42",)
    assert sent["messaging.message.body.size"] == 2
    assert sent["messaging.message.id"] == processed["messaging.message.id"]
    assert (
        sent["messaging.destination.partition.id"]
        == processed["messaging.destination.partition.id"]
    )
    assert processed["messaging.consumer.group.name"] == "billing"
    for attributes in (sent, processed):
        assert _server(attributes) == ("127.0.0.1", 10911)
    found = recorded.metrics()
    assert set(found) - {"rocketmq_consumer_cached_messages", "rocketmq_consumer_cached_bytes"} <= {
        value for name, value in vars(messaging_metrics).items() if name.isupper()
    }
    ((attributes, count),) = found["messaging.client.sent.messages"]
    assert count == 1
    assert attributes["messaging.destination.name"] == "orders"
    ((attributes, count),) = found["messaging.process.duration"]
    assert (attributes["messaging.consumer.group.name"], count) == ("billing", 1)
    assert found["messaging.client.consumed.messages"][0][1] == 1


def _server(attributes: Any) -> tuple[Any, Any]:
    return attributes.get("server.address"), attributes.get("server.port")


def _pushing(broker: EmbeddedBroker, listener: Any, **options: Any) -> PushConsumer:
    return PushConsumer(
        "billing",
        namesrv=broker,
        subscriptions={"orders": "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        **options,
    )


async def test_the_callers_span_is_the_parent_of_a_send(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    tracer = recorded.provider.get_tracer("test")
    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        with tracer.start_as_current_span("send orders", attributes=fake_send()) as outer:
            handle = producer.submit(Message("orders", b"42"))
            await handle
    inner = next(span for span in recorded.spans if span.parent is not None)
    assert inner.parent is not None
    assert inner.parent.span_id == outer.get_span_context().span_id


async def test_the_messages_of_a_batch_have_contexts_to_which_spans_link(
    by_message: Recorded, autojump_clock: MockClock
) -> None:
    async def listener(_messages: list[ReceivedMessage]) -> None:
        pass

    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        await producer.send_batch([Message("orders", b"%d" % n) for n in range(3)])
        async with _pushing(broker, listener, batch=8):
            await until(lambda: by_message.named("process orders"))
    created = {id_of(span) for span in by_message.named("create orders")}
    assert len(created) == 3
    send, process = (
        by_message.one("send orders"),
        by_message.one("process orders"),
    )
    assert send.kind is SpanKind.CLIENT
    assert linked(send) == created
    assert linked(process) == created
    assert process.parent is None
    for span in (send, process):
        assert dict(span.attributes or {})["messaging.batch.message_count"] == 3
    assert by_message.metrics()["messaging.client.sent.messages"][0][1] == 3


async def test_automatic_batches_keep_the_contexts_too(
    by_message: Recorded, autojump_clock: MockClock
) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker, auto_batch=True) as producer,
    ):
        handles = [producer.submit(Message("orders", b"%d" % n)) for n in range(4)]
        for handle in handles:
            await handle
    created = {id_of(span) for span in by_message.named("create orders")}
    assert len(created) == 4
    assert linked(by_message.one("send orders")) == created


async def test_receives_and_acknowledgements(recorded: Recorded, autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
        SimpleConsumer("billing", namesrv=broker, subscriptions={"orders": "*"}) as consumer,
    ):
        await producer.send(Message("orders", b"1"))
        messages = []
        while not messages:
            messages = await consumer.receive(1)
        await consumer.ack(messages[0])
        with pytest.raises(RocketMQError):
            await consumer.ack(messages[0])
    send = recorded.one("send orders")
    receive, ack = recorded.named("receive orders")[-1], recorded.one("ack orders")
    assert receive.kind is SpanKind.CLIENT
    assert linked(receive) == linked(ack) == {id_of(send)}
    assert dict(ack.attributes or {})["messaging.operation.type"] == "settle"
    for span in (receive, ack):
        assert _server(span.attributes) == ("127.0.0.1", 10911)
    assert receive.start_time is not None
    assert receive.end_time is not None
    assert receive.start_time <= receive.end_time
    durations = recorded.metrics()["messaging.client.operation.duration"]
    assert {attributes["messaging.operation.name"] for attributes, _count in durations} == {
        "send",
        "receive",
        "ack",
    }


async def test_polls(recorded: Recorded, autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
    ):
        await producer.send(Message("orders", b"1"))
        async with LitePullConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            while not await consumer.poll(10):
                pass
    receive = recorded.one("receive orders")
    assert linked(receive) == {id_of(recorded.one("send orders"))}
    assert _server(receive.attributes) == ("127.0.0.1", 10911)


async def test_transactions_and_checks(recorded: Recorded, autojump_clock: MockClock) -> None:
    current = []

    async def checker(_message: ReceivedMessage) -> TransactionState:
        current.append(trace.get_current_span().get_span_context().span_id)
        return TransactionState.COMMIT

    async with (
        EmbeddedBroker(transaction_time_out=1000, transaction_check_interval=1000) as broker,
        TransactionProducer("shop", checker, namesrv=broker) as producer,
    ):
        async with producer.transaction(Message("orders", b"kept")):
            pass
        async with producer.transaction(Message("orders", b"undone")) as undone:
            undone.rollback()
        async with producer.transaction(Message("orders", b"asked")) as asked:
            asked.unknown()
        await until(lambda: recorded.named("check orders"))
    first, second, third = recorded.named("send orders")
    for span in (first, second, third):
        attributes = dict(span.attributes or {})
        assert attributes["messaging.rocketmq.message.type"] == "transaction"
        assert _server(attributes) == ("127.0.0.1", 10911)
    commit, rollback = recorded.one("commit orders"), recorded.one("rollback orders")
    check = recorded.one("check orders")
    assert check.parent is not None
    assert check.parent.span_id == id_of(third)
    assert current == [id_of(check)]
    for span, sent in ((commit, first), (rollback, second), (check, third)):
        ids = [dict(each.attributes or {})["messaging.message.id"] for each in (span, sent)]
        assert ids[0] == ids[1]
        assert _server(span.attributes) == ("127.0.0.1", 10911)


async def test_what_fails_says_so(recorded: Recorded, autojump_clock: MockClock) -> None:
    async def listener(_message: ReceivedMessage) -> None:
        raise ValueError("as the test wants it")

    async with (
        EmbeddedBroker(auto_create_topic_enable=False) as broker,
        Producer("shop", namesrv=broker) as producer,
    ):
        with pytest.raises(RocketMQError):
            await producer.send(Message("missing", b"1"))
        async with Admin(namesrv=broker) as admin:
            await admin.topics.create("orders", queues=1)
        await producer.send(Message("orders", b"1"))
        async with _pushing(broker, listener):
            await until(lambda: recorded.named("process orders"))
    assert dict(recorded.one("send missing").attributes or {})["error.type"] == "TopicNotFoundError"
    process = recorded.named("process orders")[0]
    assert dict(process.attributes or {})["error.type"] == "ValueError"
    assert process.status.description == "as the test wants it"
    errors = [
        attributes.get("error.type")
        for attributes, _count in recorded.metrics()["messaging.client.sent.messages"]
    ]
    assert errors == ["TopicNotFoundError", None]


async def test_what_a_consumer_keeps_is_a_gauge(
    recorded: Recorded, autojump_clock: MockClock
) -> None:
    go_on = trio.Event()

    async def listener(_message: ReceivedMessage) -> None:
        await go_on.wait()

    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        for number in range(5):
            await producer.send(Message("orders", b"%d" % number))
        async with _pushing(broker, listener) as consumer:
            await until(lambda: consumer.statistics().cached_messages == 5)
            found = recorded.metrics()
            ((attributes, count),) = found["rocketmq_consumer_cached_messages"]
            assert (attributes["messaging.consumer.group.name"], count) == ("billing", 5)
            assert found["rocketmq_consumer_cached_bytes"][0][1] > 0
            go_on.set()
        assert recorded.metrics().get("rocketmq_consumer_cached_messages", []) == []


async def test_clients_made_before_or_after_are_not_observed(autojump_clock: MockClock) -> None:
    found = Recorded()
    async with EmbeddedBroker() as broker, Producer("before", namesrv=broker) as before:
        uninstall = otel.instrument(tracer_provider=found.provider)
        uninstall()
        async with Producer("after", namesrv=broker) as after:
            await before.send(Message("orders", b"1"))
            await after.send(Message("orders", b"1"))
    assert found.spans == []


async def test_a_ratio_leaves_sends_outside_of_spans_out(autojump_clock: MockClock) -> None:
    found = Recorded()
    uninstall = otel.instrument(
        tracer_provider=found.provider, meter_provider=found.meters, ratio=0.0
    )
    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        uninstall()
        await producer.send(Message("orders", b"1"))
        assert found.spans == []
        with found.provider.get_tracer("test").start_as_current_span(
            "send orders", attributes=fake_send()
        ):
            await producer.send(Message("orders", b"2"))
    assert len(found.spans) == 2
    assert found.metrics()["messaging.client.sent.messages"][0][1] == 2
    with pytest.raises(ConfigurationError, match="from 0 to 1"):
        otel.instrument(ratio=2)


@pytest.mark.parametrize("sampled", [False, True])
async def test_contexts_are_written_as_the_programs_propagators_write_them(
    sampled: bool, autojump_clock: MockClock
) -> None:
    """Also of a span that the SDK's sampler drops, so that whoever receives it drops
    its own; a propagator of another kind, baggage and a trace state are written too.
    """
    provider = TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
    uninstall = otel.instrument(tracer_provider=provider)
    heard: dict[bytes, tuple[dict[str, str], object]] = {}

    async def listener(message: ReceivedMessage) -> None:
        texts = ("traceparent", "tracestate", "baggage", "mine")
        found = {name: message.properties[name] for name in texts if name in message.properties}
        heard[message.body] = found, baggage.get_baggage("user")

    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
        _pushing(broker, listener),
    ):
        await producer.send(Message("orders", b"plain"))
        token = contexts.attach(baggage.set_baggage("user", "bob"))
        await producer.send(Message("orders", b"with baggage"))
        contexts.detach(token)
        state = trace.TraceState([("vendor", "1")])
        parent = trace.SpanContext(7, 8, True, trace.TraceFlags(int(sampled)), state)
        token = contexts.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
        await producer.send(Message("orders", b"with a state"))
        contexts.detach(token)
        usual = propagate.get_global_textmap()
        propagate.set_global_textmap(_Mine())
        await producer.send(Message("orders", b"another way"))
        propagate.set_global_textmap(usual)
        await until(lambda: len(heard) == 4)
    uninstall()
    texts = (b"plain", b"with baggage", b"with a state", b"another way")
    (plain, none), (second, bob), (third, _), (other, _) = [heard[text] for text in texts]
    pattern = f"00-[0-9a-f]{{32}}-[0-9a-f]{{16}}-0{'[13]' if sampled else '[02]'}"
    for found in (plain, second, third):
        assert re.fullmatch(pattern, found.pop("traceparent"))
    assert (plain, none) == ({}, None)
    assert (second, bob) == ({"baggage": "user=bob"}, "bob")
    assert third == {"tracestate": "vendor=1"}
    assert other.keys() == {"mine"}


class _Mine(TraceContextTextMapPropagator):
    """Writes a header of its own."""

    def inject(self, carrier: Any, context: Any = None, setter: Any = default_setter) -> None:
        span = trace.get_current_span(context)
        setter.set(carrier, "mine", f"{span.get_span_context().span_id:x}")


@pytest.mark.real_time
def test_a_listener_in_a_thread_finds_its_span(recorded: Recorded) -> None:
    called, inside = threading.Event(), []

    def listener(_message: ReceivedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        called.set()

    with sync.EmbeddedBroker() as broker, sync.Producer("shop", namesrv=broker) as producer:
        producer.send(Message("orders", b"1"))
        with sync.PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            assert called.wait(30)
    assert inside == [id_of(recorded.one("process orders"))]


@pytest.mark.real_time
def test_a_span_of_an_asyncio_task_is_the_parent(recorded: Recorded) -> None:
    """The context of the task goes into the run of trio, and to the listener."""
    inside: list[int] = []

    async def main() -> None:
        called = asyncio.Event()

        async def listener(_message: ReceivedMessage) -> None:
            inside.append(trace.get_current_span().get_span_context().span_id)
            called.set()

        async with (
            aio.EmbeddedBroker() as broker,
            aio.Producer("shop", namesrv=broker) as producer,
        ):
            with recorded.provider.get_tracer("test").start_as_current_span(
                "send orders", attributes=fake_send()
            ) as span:
                await producer.send(Message("orders", b"1"))
            outer.append(span.get_span_context().span_id)
            async with aio.PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ):
                await called.wait()

    outer: list[int] = []
    asyncio_run.run(main)
    sent = [span for span in recorded.named("send orders") if span.parent is not None]
    assert [span.parent.span_id for span in sent if span.parent] == outer
    process = recorded.one("process orders")
    assert process.parent is not None
    assert process.parent.span_id == id_of(sent[0])
    assert inside == [id_of(process)]


@pytest.mark.real_time
def test_the_span_of_a_thread_is_the_parent_of_its_sends(recorded: Recorded) -> None:
    tracer = recorded.provider.get_tracer("test")

    def send_three() -> None:
        with tracer.start_as_current_span("send orders", attributes=fake_send()):
            for _ in range(2):  # the second time without another thread
                producer.send(Message("orders", b"1"))
            producer.submit(Message("orders", b"2")).result(60)

    with sync.EmbeddedBroker() as broker, sync.Producer("shop", namesrv=broker) as producer:
        send_three()
        thread = threading.Thread(target=send_three)
        thread.start()
        thread.join()
    spans = recorded.named("send orders")
    mine = Counter(id_of(span) for span in spans if span.kind is SpanKind.INTERNAL for _ in "123")
    sends = [span for span in spans if span.kind is SpanKind.PRODUCER]
    assert Counter(send.parent and send.parent.span_id for send in sends) == mine
    assert len(sends) == 6


@pytest.mark.real_time
def test_each_call_of_a_listener_in_asyncio_has_its_span_and_a_context_of_its_own(
    recorded: Recorded,
) -> None:
    inside: list[tuple[int, int, str]] = []
    variable = contextvars.ContextVar("variable", default="unset")

    def span() -> int:
        return trace.get_current_span().get_span_context().span_id

    async def listener(message: ReceivedMessage) -> None:
        first, before = span(), variable.get()
        variable.set(message.body.decode())
        await asyncio.sleep(0.001)
        assert variable.get() == message.body.decode()
        inside.append((first, span(), before))

    async def main() -> None:
        async with (
            aio.EmbeddedBroker() as broker,
            aio.Producer("shop", namesrv=broker) as producer,
            aio.PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                concurrency=1,
            ),
        ):
            for number in range(4):
                await producer.send(Message("orders", b"%d" % number))
            while len(inside) < 4:
                await asyncio.sleep(0.002)

    asyncio.run(main())
    spans = {id_of(each) for each in recorded.named("process orders")}
    assert {first for first, _, _ in inside} == spans
    assert all(first == later and before == "unset" for first, later, before in inside)
