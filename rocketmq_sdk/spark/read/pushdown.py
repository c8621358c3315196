"""Filters of Spark that a batch read applies itself.

Spark hands over what stands between the ANDs of a condition, where it compares a column
with constants, if `spark.sql.python.filterPushdown.enabled` is on. Whatever is taken
here, Spark does not look at again.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rocketmq_sdk.spark.plan.conditions import Conditions, Times, span, spans_of
from rocketmq_sdk.spark.plan.offsets import MOST_OFFSET
from rocketmq_sdk.spark.read.batch import BatchReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rocketmq_sdk.spark.plan.offsets import QueueKey


def _is_in(value: Any, values: Sequence[Any]) -> bool:
    return value in values


_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
MOST_VALUES: Final = 200
"""Offsets or tags of an IN that are taken; each offset may cost a pull."""
_OF_QUEUES: Final[Mapping[str, tuple[type, str]]] = {
    "topic": (str, "topic"),
    "brokerName": (str, "broker"),
    "queueId": (int, "queue_id"),
}
_MOST_TEXT: Final = 2_000
"""Characters of tags that are taken; a subscription has a longest length."""
_NEVER_NULL: Final = frozenset({*_OF_QUEUES, "queueOffset", "storeTimestamp"})
_TESTS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    In: _is_in,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: str.__contains__,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def are_pushed() -> bool:
    """Whether this process plans a read whose filters are pushed down.

    Spark refuses a reader that offers to take filters where the session does not push
    any, and tells nobody what the session does. So the process is looked at: Spark has
    another program for it (4.2, 4.3).
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(spec, "name", None) == _WORKER


def taken(filters: Iterable[Filter], *, tags: bool = True) -> tuple[Conditions, list[Filter]]:
    """The conditions that filters set, and the filters that Spark has to apply.

    `tags`: whether brokers can be asked for tags.
    """
    found, left, not_null = Conditions(), list[Filter](), list[Filter]()
    for each in filters:
        if isinstance(each, IsNotNull) and each.attribute == ("tags",):
            not_null.append(each)
            continue
        condition = _condition(each, tags=tags)
        if condition is None:
            left.append(each)
        else:
            found = found.both(condition)
    return found, left if found.tags is not None else left + not_null


def _condition(given: Filter, *, tags: bool) -> Conditions | None:
    """The condition that a filter sets; None where it is not one of ours."""
    negated = isinstance(given, Not)
    inner: Any = given.child if isinstance(given, Not) else given
    if len(inner.attribute) != 1:
        return None
    (column,) = inner.attribute
    if isinstance(inner, IsNotNull):
        return Conditions() if column in _NEVER_NULL and not negated else None
    test = _TESTS.get(type(inner))
    if test is None:
        return None
    values = list(inner.value) if isinstance(inner, In) else [inner.value]
    if column in _OF_QUEUES:
        return _of_queue(column, test, inner, values, negated=negated)
    if negated:
        return None
    if column == "queueOffset":
        return _of_offsets(inner, values)
    if column == "storeTimestamp":
        return _of_times(inner, values)
    if column == "tags" and tags:
        return _of_tags(inner, values)
    return None


@attrs.frozen
class QueueTest:
    """A comparison of an attribute of queues with a constant; pickles."""

    attribute: str
    test: Callable[[Any, Any], bool]
    wanted: Any
    negated: bool

    def __call__(self, queue: QueueKey) -> bool:
        """Whether a queue fits."""
        return self.test(getattr(queue, self.attribute), self.wanted) is not self.negated


def _of_queue(
    column: str, test: Callable[[Any, Any], bool], given: Any, values: list[Any], *, negated: bool
) -> Conditions | None:
    kind, attribute = _OF_QUEUES[column]
    if not all(type(value) is kind for value in values):
        return None
    wanted = tuple(values) if isinstance(given, In) else values[0]
    return Conditions(queues=(QueueTest(attribute, test, wanted, negated),))


def _of_offsets(given: Any, values: list[Any]) -> Conditions | None:
    if len(values) > MOST_VALUES or not all(type(value) is int for value in values):
        return None
    value = values[0] if values else 0
    if isinstance(given, In | EqualTo | EqualNullSafe):
        return Conditions(offsets=spans_of(values))
    begin, end = 0, MOST_OFFSET
    if isinstance(given, LessThan):
        end = value
    elif isinstance(given, LessThanOrEqual):
        end = value + 1
    elif isinstance(given, GreaterThan):
        begin = value + 1
    elif isinstance(given, GreaterThanOrEqual):
        begin = value
    else:
        return None
    return Conditions(offsets=span(begin, end))


def _of_times(given: Any, values: list[Any]) -> Conditions | None:
    """Rows have whole milliseconds, conditions microseconds."""
    (value, *more) = values or [None]
    if more or not isinstance(value, datetime) or value.tzinfo is None:
        return None
    microseconds = (value - _EPOCH) // timedelta(microseconds=1)
    not_before, after = -(-microseconds // 1000), microseconds // 1000 + 1
    if isinstance(given, GreaterThan):
        times = Times(after)
    elif isinstance(given, GreaterThanOrEqual):
        times = Times(not_before)
    elif isinstance(given, LessThan):
        times = Times(None, not_before)
    elif isinstance(given, LessThanOrEqual):
        times = Times(None, after)
    elif isinstance(given, EqualTo | EqualNullSafe):
        times = Times(not_before, after)
    else:
        return None
    return Conditions(times=times)


def _of_tags(given: Any, values: list[Any]) -> Conditions | None:
    """Only tags that a subscription can name; a null in an IN fits nothing."""
    if not isinstance(given, In | EqualTo | EqualNullSafe) or len(values) > MOST_VALUES:
        return None
    if isinstance(given, In):
        values = [value for value in values if value is not None]
    if not all(isinstance(value, str) and _can_be_asked_for(value) for value in values):
        return None
    if sum(map(len, values)) > _MOST_TEXT:
        return None
    return Conditions(tags=frozenset(values))


def _can_be_asked_for(tag: str) -> bool:
    return bool(tag) and tag.isascii() and tag.isprintable() and not set(tag) & set("|*, ")


class PushingReader(BatchReader):
    """The reader of a batch where the session pushes filters down."""

    # Spark's name.
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what can be taken; the filters that Spark has to apply."""
        conditions, left = taken(filters, tags=self.tags_can_be_asked_for)
        self.keep_to(conditions)
        return left
