"""The metrics that only this broker has; their names begin with `rocketmq_sdk_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_sdk.broker_embedded.metrics import process
from rocketmq_sdk.broker_embedded.metrics.page import Kind, Row
from rocketmq_sdk.broker_embedded.supervision import ServiceState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rocketmq_sdk.broker_embedded.metrics.page import Samples
    from rocketmq_sdk.broker_embedded.metrics.source import Source

_GAUGE, _COUNTER, _HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM


def _one(value: Callable[[], Any]) -> Callable[[], Samples]:
    return lambda: iter((((), value()),))


def _rows(kind: Kind, *few: tuple[str, str, Callable[[], Any]], prefix: str = "") -> Iterator[Row]:
    """Metrics with one sample each."""
    for name, text, value in few:
        yield Row(f"rocketmq_sdk_{prefix}{name}", kind, text, (), _one(value))


def rows(source: Source, failed_fast: Callable[[], int]) -> Iterator[Row]:
    """All of them; `failed_fast` tells how many requests waited too long."""
    yield from _health(source)
    yield from _times(source)
    yield from _connections(source)
    yield from _admission(source, failed_fast)
    yield from _store(source)
    yield from _delays(source)
    yield from _replication(source)
    yield from _queues(source)
    yield from process.rows()


def _health(source: Source) -> Iterator[Row]:
    core = source.core

    def role() -> Samples:
        current = core.config.current
        yield ("slave" if current.is_slave else "master",), 1

    def services() -> Samples:
        for service in core.supervisor.health().services:
            well = service.state is ServiceState.RUNNING and service.last_error is None
            yield (service.name,), int(well or service.state is ServiceState.ENDED)

    yield Row("rocketmq_sdk_broker_role", _GAUGE, "The broker's role.", ("role",), role)
    yield from _rows(
        _GAUGE,
        (
            "taking_messages",
            "1 while messages are accepted, 0 while they are refused.",
            lambda: int(core.supervisor.refusing() is None),
        ),
        (
            "troubles",
            "How many things are wrong; /readyz names them.",
            lambda: len(core.supervisor.health().reasons),
        ),
        (
            "start_time_seconds",
            "When the broker was opened, in seconds of the epoch.",
            lambda: core.boot_ms / 1000,
        ),
    )
    text = "1 for a service of the broker that works, 0 for one with an error."
    yield Row("rocketmq_sdk_service_up", _GAUGE, text, ("service",), services)


def _times(source: Source) -> Iterator[Row]:
    figures = source.figures
    yield from _rows(
        _HISTOGRAM,
        (
            "append_seconds",
            "How long messages took to be stored, up to what their answers promise.",
            lambda: figures.appends,
        ),
        ("sync_seconds", "How long syncs of the log took.", lambda: figures.syncs),
        (
            "loop_turn_seconds",
            "How long the loop was busy at a time, and others had to wait.",
            lambda: figures.stalls,
        ),
    )
    yield from _rows(
        _COUNTER,
        ("put_failures_total", "Messages that were refused.", lambda: source.core.stats.put_failed),
    )


def _connections(source: Source) -> Iterator[Row]:
    def channels() -> Samples:
        return (((name,), len(server.channels)) for name, server in source.servers.items())

    def held() -> Samples:
        parts = source.parts
        yield ("pull",), parts.pull.held.held
        yield ("pop",), parts.pop.state.waiting.held
        yield ("notification",), parts.pop.state.notifications.held

    yield Row("rocketmq_sdk_connections", _GAUGE, "Open connections.", ("server",), channels)
    text = "Requests that wait for messages."
    yield Row("rocketmq_sdk_held_requests", _GAUGE, text, ("kind",), held)


def _admission(source: Source, failed_fast: Callable[[], int]) -> Iterator[Row]:
    memory, audit = source.core.memory, source.parts.access.audit

    def refused() -> Samples:
        yield ("memory",), memory.refused
        yield ("waited",), failed_fast()
        yield ("not_authenticated",), audit.counters["notAuthenticated"]
        yield ("denied",), audit.counters["denied"]

    yield from _rows(
        _GAUGE,
        ("memory_bytes", "Bytes that all connections hold.", lambda: memory.used),
        ("memory_limit_bytes", "Most bytes that they may hold.", lambda: memory.limit),
        prefix="connection_",
    )
    yield from _rows(
        _COUNTER,
        (
            "pauses_total",
            "How often a connection was not read for a while, as it held too much.",
            lambda: memory.paused,
        ),
        (
            "closed_total",
            "Connections that were closed because they held too much.",
            lambda: memory.closed,
        ),
        prefix="connection_",
    )
    text = "Requests that were refused, by reason."
    yield Row("rocketmq_sdk_refused_requests_total", _COUNTER, text, ("reason",), refused)


def _store(source: Source) -> Iterator[Row]:
    store = source.core.store

    def ratio() -> Samples:
        if source.used_ratio >= 0:
            yield (), source.used_ratio

    text = "The part of the store's disk that is in use."
    yield Row("rocketmq_sdk_disk_used_ratio", _GAUGE, text, (), ratio)
    statistics: Iterable[tuple[str, str, Callable[[], Any]]] = (
        ("log_files", "Files of the log.", lambda: store.statistics()["log_files"]),
        ("log_end_bytes", "Where the log ends.", lambda: store.max_physical_offset),
        (
            "index_behind_bytes",
            "Bytes of the log that are not in the key index.",
            lambda: max(0, store.dispatched.value - store.statistics()["indexed_offset"]),
        ),
        (
            "unreadable_records",
            "Records that cannot be read and were set aside.",
            lambda: store.unreadable.count,
        ),
    )
    yield from _rows(_GAUGE, *statistics)


def _delays(source: Source) -> Iterator[Row]:
    schedule = source.parts.timers.schedule
    text = "How late messages of delay levels come: of the level that is latest."
    yield from _rows(_GAUGE, ("delay_levels_late_seconds", text, lambda: schedule.behind_ms / 1000))


def _replication(source: Source) -> Iterator[Row]:
    store, replication = source.core.store, source.parts.replication

    def slaves() -> Samples:
        master = replication.master
        for replica in master.replicas.connected if master is not None else ():
            yield (replica.address,), store.max_physical_offset - max(0, replica.position)

    def master() -> Samples:
        slave = replication.slave
        if slave is not None and slave.master_position >= 0:
            yield (), max(0, slave.master_position - store.max_physical_offset)

    text = "Bytes of the log that a connected slave does not have."
    yield Row("rocketmq_sdk_slave_behind_bytes", _GAUGE, text, ("slave",), slaves)
    text = "Bytes of its master's log that this slave does not have."
    yield Row("rocketmq_sdk_master_ahead_bytes", _GAUGE, text, (), master)


def _queues(source: Source) -> Iterator[Row]:
    def lag() -> Samples:
        for behind, group, topic, queue_id in source.lag.queues:
            yield (group, topic, str(queue_id)), behind

    text = "Messages of a queue that a group has not consumed; of those most behind."
    labels = ("consumer_group", "topic", "queue_id")
    yield Row("rocketmq_sdk_queue_lag_messages", _GAUGE, text, labels, lag)


def recovering(done: int, total: int) -> Iterator[Row]:
    """What there is to tell while the store is being opened."""
    yield from _rows(
        _GAUGE,
        ("taking_messages", "1 while messages are accepted, 0 while not.", lambda: 0),
        ("recovered_bytes", "Bytes of the log that the start has read.", lambda: done),
        ("recovery_bytes", "Bytes of the log that the start has to read.", lambda: total),
    )
    yield from process.rows()
