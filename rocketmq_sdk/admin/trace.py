"""The trace of one message: records of producers and consumers, and stored copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.admin.stored_copy import StoredCopy
from rocketmq_sdk.protocol.trace import (
    ConsumeEnded,
    ConsumeResult,
    ConsumeStarted,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


@attrs.frozen(kw_only=True)
class Consumption:
    """One call of a listener with the message. Times are epoch milliseconds.

    `result` and `ended` are None while no record of its end has come: it still runs,
    its consumer died, or the record was lost. `cost` is milliseconds for each message
    of the call.
    """

    group: str
    request_id: str
    retries: int | None = None
    started: int | None = None
    ended: int | None = None
    cost: int | None = None
    result: ConsumeResult | None = None

    @property
    def success(self) -> bool:
        """Whether the listener is known to have taken the message."""
        return self.result is ConsumeResult.SUCCESS


@attrs.frozen(kw_only=True)
class MessageTrace:
    """What is known of one message, each part in order of time.

    `published` are sends by producers that trace, `transactions` how transactions
    ended, `consumptions` the calls of listeners of consumers that trace, `recalls`
    timers taken back, `copies` the copies that brokers keep.
    """

    message_id: str
    topic: str | None = None
    published: tuple[Published, ...] = ()
    transactions: tuple[TransactionEnded, ...] = ()
    consumptions: tuple[Consumption, ...] = ()
    recalls: tuple[Recalled, ...] = ()
    copies: tuple[StoredCopy, ...] = ()

    def groups(self) -> dict[str, bool]:
        """The groups that had the message, and whether one of their calls succeeded."""
        found: dict[str, bool] = {}
        for consumption in self.consumptions:
            found[consumption.group] = found.get(consumption.group, False) or consumption.success
        return found


def trace_of(message_id: str, records: Iterable[TraceRecord]) -> MessageTrace:
    """The trace of a message out of trace records.

    Records of other messages are left out, and so are doubled ones.
    """
    mine = list(
        dict.fromkeys(record for record in records if message_id in record.message_id.split(","))
    )
    published = sorted(
        (record for record in mine if isinstance(record, Published)), key=lambda record: record.time
    )
    transactions = sorted(
        (record for record in mine if isinstance(record, TransactionEnded)),
        key=lambda record: record.time,
    )
    recalls = sorted(
        (record for record in mine if isinstance(record, Recalled)), key=lambda record: record.time
    )
    topics = [record.topic for part in (published, transactions, recalls) for record in part]
    return MessageTrace(
        message_id=message_id,
        topic=topics[0] if topics else None,
        published=tuple(published),
        transactions=tuple(transactions),
        consumptions=_consumptions(mine),
        recalls=tuple(recalls),
    )


def _consumptions(records: list[TraceRecord]) -> tuple[Consumption, ...]:
    """Beginnings and ends joined by their request ids.

    One may have come without the other.
    """
    starts = {record.request_id: record for record in records if isinstance(record, ConsumeStarted)}
    ends = {record.request_id: record for record in records if isinstance(record, ConsumeEnded)}
    found = [
        _consumption(request_id, starts.get(request_id), ends.get(request_id))
        for request_id in dict.fromkeys((*starts, *ends))
    ]
    return tuple(sorted(found, key=lambda each: each.started or each.ended or 0))


def _consumption(
    request_id: str, start: ConsumeStarted | None, end: ConsumeEnded | None
) -> Consumption:
    group = start.group if start is not None else (end.group if end is not None else None)
    return Consumption(
        group=group or "",
        request_id=request_id,
        retries=None if start is None else start.retries,
        started=None if start is None else start.time,
        ended=None if end is None else end.time,
        cost=None if end is None else end.cost,
        result=None if end is None else end.result,
    )
