"""The metrics of Apache's broker, under its names, types and labels.

As its exporter for Prometheus writes them (release 5.5.0), with the unit in the name.
Where the unit there is not what the number is, the text says what it is here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.broker_embedded.metrics.lag import is_of_system
from rocketmq_sdk.broker_embedded.metrics.page import Kind, Row
from rocketmq_sdk.broker_embedded.metrics.request_times import labels_of
from rocketmq_sdk.model.enums import ConsumeType
from rocketmq_sdk.names import is_system_group
from rocketmq_sdk.releases import version_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
    from rocketmq_sdk.broker_embedded.metrics.lag import GroupLag
    from rocketmq_sdk.broker_embedded.metrics.page import Labels, Samples
    from rocketmq_sdk.broker_embedded.metrics.source import Source
    from rocketmq_sdk.broker_embedded.tables.figures import Counter as Sums
    from rocketmq_sdk.broker_embedded.tables.figures import Distributions, Figures

_GAUGE, _COUNTER, _HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM
_STORAGE: Final = ("storage_type", "local", "storage_medium", "disk")
_REMOTING: Final = ("protocol_type", "remoting")
_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _one(value: Callable[[], float]) -> Callable[[], Samples]:
    return lambda: iter((((), value()),))


def of_sums(sums: Sums[Any]) -> Callable[[], Samples]:
    """The samples of sums by labels."""

    def samples() -> Samples:
        yield from list(sums.values.items())
        if sums.overflow:
            yield None, sums.overflow

    return samples


def of_distributions(found: Distributions[Any]) -> Callable[[], Samples]:
    """The samples of distributions by labels."""

    def samples() -> Samples:
        yield from list(found.values.items())
        if found.overflow is not None:
            yield None, found.overflow

    return samples


def rows(source: Source) -> Iterator[Row]:
    """All of them."""
    yield from _stats(source)
    yield from _traffic(source.core, source.figures)
    yield from _creation(source.figures)
    yield from _connections(source)
    yield from _lag(source)
    yield from _transactions(source)
    yield from _rpc(source)
    yield from _storage(source)
    yield from _timers(source)
    yield from _pop(source)


def _stats(source: Source) -> Iterator[Row]:
    core = source.core
    yield Row(
        "rocketmq_processor_watermark",
        _GAUGE,
        "Requests that are worked on, by the pool that Apache's broker has for them.",
        ("processor",),
        lambda: (((name,), number) for name, number in source.times.working.items()),
    )
    permission = _one(lambda: core.config.current.broker_permission)
    yield Row("rocketmq_broker_permission", _GAUGE, "Broker permission.", (), permission)
    topics = _one(lambda: len(core.topics.all()))
    yield Row("rocketmq_topic_number", _GAUGE, "Topics.", (), topics)
    groups = _one(lambda: len(core.groups.all()))
    yield Row("rocketmq_consumer_group_number", _GAUGE, "Consumer groups.", (), groups)


def _traffic(core: Core, figures: Figures) -> Iterator[Row]:
    def came_in(member: str) -> Callable[[], Samples]:
        def samples() -> Samples:
            for (topic, kind), counts in list(figures.incoming.items()):
                yield (topic, kind, _truth(core.topics.is_system(topic))), getattr(counts, member)
            if figures.overflow_in.messages:
                yield None, getattr(figures.overflow_in, member)

        return samples

    def went_out(member: str) -> Callable[[], Samples]:
        def samples() -> Samples:
            for (topic, group, retry), counts in list(figures.outgoing.items()):
                system = core.topics.is_system(topic) or is_system_group(group)
                if group == _SCHEDULE_GROUP:
                    system = True
                yield (topic, group, _truth(system), retry), getattr(counts, member)
            if figures.overflow_out.messages:
                yield None, getattr(figures.overflow_out, member)

        return samples

    come = ("topic", "message_type", "is_system")
    go = ("topic", "consumer_group", "is_system", "is_retry")
    for name, kind, text, labels, samples in (
        ("messages_in_total", _COUNTER, "Incoming messages.", come, came_in("messages")),
        ("throughput_in_total", _COUNTER, "Bytes of incoming messages.", come, came_in("bytes")),
        ("message_size", _HISTOGRAM, "Sizes of incoming messages.", come, came_in("sizes")),
        ("messages_out_total", _COUNTER, "Outgoing messages.", go, went_out("messages")),
        ("throughput_out_total", _COUNTER, "Bytes of outgoing messages.", go, went_out("bytes")),
    ):
        yield Row(f"rocketmq_{name}", kind, text, labels, samples)


_SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"


def _creation(figures: Figures) -> Iterator[Row]:
    yield Row(
        "rocketmq_topic_create_execution_time_milliseconds",
        _HISTOGRAM,
        "How long requests to create topics took.",
        ("invocation_status", "is_system"),
        of_distributions(figures.created_topics),
    )
    yield Row(
        "rocketmq_consumer_group_create_execution_time_milliseconds",
        _HISTOGRAM,
        "How long requests to create consumer groups took.",
        ("invocation_status",),
        of_distributions(figures.created_groups),
    )


def _language(client: ClientChannel) -> str:
    return "unknown" if client.language is None else client.language.name.lower()


def _connections(source: Source) -> Iterator[Row]:
    def producers() -> Samples:
        counted = Counter(
            (_language(client), version_text(client.version))
            for clients in source.parts.members.producers.all().values()
            for client in clients
        )
        return iter(counted.items())

    def consumers() -> Samples:
        counted: Counter[Labels] = Counter()
        for group in source.parts.members.consumers.groups():
            mode = _MODES.get(group.consume_type, "") if group.consume_type else ""
            system = _truth(is_system_group(group.name))
            for client in group.channels.values():
                version = version_text(client.version)
                counted[group.name, _language(client), version, mode, system] += 1
        return iter(counted.items())

    yield Row(
        "rocketmq_producer_connections",
        _GAUGE,
        "Producers.",
        ("language", "version"),
        producers,
        _REMOTING,
    )
    yield Row(
        "rocketmq_consumer_connections",
        _GAUGE,
        "Consumers.",
        ("consumer_group", "language", "version", "consume_mode", "is_system"),
        consumers,
        _REMOTING,
    )


def _lag(source: Source) -> Iterator[Row]:
    core = source.core

    def of(value: Callable[[GroupLag, int], int]) -> Callable[[], Samples]:
        def samples() -> Samples:
            now = core.clock.now_ms()
            for lag in source.lag.groups:
                yield lag.labels(is_of_system(core, lag.group, lag.topic)), value(lag, now)

        return samples

    def since(then: int, now: int) -> int:
        return max(0, now - then) if then else 0

    for name, text, value in (
        ("lag_messages", "Messages that a group has not consumed.", lambda lag, _now: lag.lag),
        (
            "lag_latency_milliseconds",
            "How long ago the oldest of them was stored.",
            lambda lag, now: since(lag.oldest_ms, now),
        ),
        (
            "inflight_messages",
            "Messages that members have and have not consumed.",
            lambda lag, _now: lag.in_flight,
        ),
        (
            "queueing_latency_milliseconds",
            "How long ago the oldest message was stored that no member has.",
            lambda lag, now: since(lag.oldest_unpulled_ms, now),
        ),
        ("ready_messages", "Messages that no member has.", lambda lag, _now: lag.ready),
    ):
        labels = ("consumer_group", "topic", "is_retry", "is_system")
        yield Row(f"rocketmq_consumer_{name}", _GAUGE, text, labels, of(value))

    def dead_letters() -> Samples:
        letters = core.stats.figures.dead_letters if core.stats.figures else None
        for (group, topic), number in list(letters.values.items()) if letters else ():
            yield (group, topic, _truth(is_of_system(core, group, topic))), number

    yield Row(
        "rocketmq_send_to_dlq_messages_total",
        _COUNTER,
        "Messages that went to dead letter topics.",
        ("consumer_group", "topic", "is_system"),
        dead_letters,
    )


def _transactions(source: Source) -> Iterator[Row]:
    figures = source.figures
    for name, text, sums in (
        ("commit", "Transactions that were committed.", figures.committed),
        ("rollback", "Transactions that were rolled back.", figures.rolled_back),
    ):
        yield Row(f"rocketmq_{name}_messages_total", _COUNTER, text, ("topic",), of_sums(sums))
    yield Row(
        "rocketmq_finish_message_latency_milliseconds",
        _HISTOGRAM,
        "Seconds (as with Apache, whatever the name says) from half messages to commits.",
        ("topic",),
        of_distributions(figures.finished),
    )
    yield Row(
        "rocketmq_half_messages",
        _GAUGE,
        "Transactions that are neither committed nor rolled back.",
        ("topic",),
        lambda: source.half_messages.items(),
    )


def _rpc(source: Source) -> Iterator[Row]:
    times = source.times.times

    def samples() -> Samples:
        for key, found in list(times.values.items()):
            yield labels_of(key), found
        if times.overflow is not None:
            yield None, times.overflow

    yield Row(
        "rocketmq_rpc_latency_milliseconds",
        _HISTOGRAM,
        "How long requests took, from their arrival to their answers.",
        ("request_code", "response_code", "is_long_polling", "result"),
        samples,
        _REMOTING,
    )


def _storage(source: Source) -> Iterator[Row]:
    core = source.core
    store = core.store

    def size() -> Samples:
        if source.used_bytes >= 0:
            yield (), source.used_bytes

    def reserve_time() -> Samples:
        earliest = store.earliest_store_time()
        if earliest > 0:
            yield (), core.clock.now_ms() - earliest

    for name, text, samples in (
        ("size_bytes", "Bytes in use where the store lies.", size),
        (
            "flush_behind_bytes",
            "Bytes of the log that a power cut would take.",
            _one(lambda: max(0, store.max_physical_offset - store.flushed.value)),
        ),
        (
            "dispatch_behind_bytes",
            "Bytes of the log that consumers do not see yet.",
            _one(lambda: max(0, store.max_physical_offset - store.dispatched.value)),
        ),
        ("message_reserve_time_milliseconds", "Age of the oldest message.", reserve_time),
    ):
        yield Row(f"rocketmq_storage_{name}", _GAUGE, text, (), samples, _STORAGE)


def _timers(source: Source) -> Iterator[Row]:
    service = source.parts.timers.service
    timers = service.timers

    def waiting() -> Samples:
        for topic, metric in timers.metrics.wrapper().timing_count.items():
            yield (topic,), metric.count

    def snapshot() -> Samples:
        return (((str(bound),), count) for bound, count in source.timer_snapshot.items())

    gauges: Iterable[tuple[str, str, Labels, Callable[[], Samples]]] = (
        (
            "timer_enqueue_lag",
            "Timer messages that are not in the wheel yet.",
            (),
            _one(lambda: service.behind_messages),
        ),
        (
            "timer_enqueue_latency_milliseconds",
            "How long ago the first of them was stored.",
            (),
            _one(lambda: source.timer_enqueue_latency),
        ),
        (
            "timer_dequeue_lag",
            "Timer messages in the wheel.",
            (),
            _one(lambda: timers.pending_count),
        ),
        (
            "timer_dequeue_latency_milliseconds",
            "How late the wheel is: milliseconds, where Apache's broker tells seconds.",
            (),
            _one(lambda: max(0, timers.behind_ms)),
        ),
        ("timing_messages", "Timer messages that wait.", ("topic",), waiting),
        (
            "timer_message_snapshot",
            "Timer messages that are due within so many seconds, and not before.",
            ("timer_bound_s",),
            snapshot,
        ),
    )
    for name, text, labels, samples in gauges:
        yield Row(f"rocketmq_{name}", _GAUGE, text, labels, samples, _STORAGE)
    yield from _timer_counts(source.figures)


def _timer_counts(figures: Figures) -> Iterator[Row]:
    for name, text, sums in (
        ("enqueue", "Messages that went into the wheel.", figures.timers_in),
        ("dequeue", "Messages that came out of it.", figures.timers_out),
    ):
        samples = of_sums(sums)
        total = f"rocketmq_timer_{name}_total"
        yield Row(total, _COUNTER, text, ("topic",), samples, _STORAGE)
    yield Row(
        "rocketmq_delay_message_latency_seconds",
        _HISTOGRAM,
        "For how long timer messages were to wait when they came.",
        ("topic",),
        of_distributions(figures.delays),
        _STORAGE,
    )


def _pop(source: Source) -> Iterator[Row]:
    figures, state = source.figures, source.parts.pop.state
    group_topic = ("consumer_group", "topic")
    for name, text, labels, sums in (
        (
            "in_message",
            "Records that pop has put into the revive topic.",
            (*group_topic, "revive_message_type", "put_status"),
            figures.revive_in,
        ),
        (
            "out_message",
            "Records that revival has read.",
            (*group_topic, "queue_id", "revive_message_type"),
            figures.revive_out,
        ),
        (
            "retry_messages",
            "Popped messages that came back.",
            (*group_topic, "put_status"),
            figures.revive_retries,
        ),
    ):
        counted: Sums[Any] = sums
        total = f"rocketmq_pop_revive_{name}_total"
        yield Row(total, _COUNTER, text, labels, of_sums(counted))

    def behind(member: str) -> Callable[[], Samples]:
        return lambda: (
            ((str(queue_id),), getattr(lag, member)) for queue_id, lag in source.revive_lag.items()
        )

    yield Row(
        "rocketmq_pop_revive_lag_milliseconds",
        _GAUGE,
        "Records (as with Apache, whatever the name says) that revival has not read.",
        ("queue_id",),
        behind("messages"),
    )
    yield Row(
        "rocketmq_pop_revive_latency_milliseconds",
        _GAUGE,
        "How long ago the oldest of them was stored.",
        ("queue_id",),
        behind("milliseconds"),
    )
    for name, text in (
        ("offset", "Queues of groups whose pops are kept in memory."),
        ("checkpoint", "Pops that are kept in memory."),
    ):
        size = state.buffer.queue_count if name == "offset" else state.buffer.__len__
        yield Row(f"rocketmq_pop_{name}_buffer_size", _GAUGE, text, (), _one(size))


NOT_HERE: Final[Mapping[str, str]] = {
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": "the buffer of pops is not scanned: "
    "each checkpoint has its moment",
    "rocketmq_rocksdb_*": "there are no RocksDB stores",
    "rocketmq_tiered_store_*": "there is no tiered store",
}
"""Metrics of Apache's broker that are not exported, and why."""
