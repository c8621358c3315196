"""Where reads begin and end in each queue: by time, by offsets, or at an edge."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.view import ClusterView, NoSuchTopicError, shown
from rocketmq_sdk.spark.options.values import Edge
from rocketmq_sdk.spark.plan.conditions import ANYTHING
from rocketmq_sdk.spark.plan.loss import DataLossError, GoneError
from rocketmq_sdk.spark.plan.offsets import EARLIEST, LATEST, MOST_OFFSET, QueueKey
from rocketmq_sdk.spark.plan.ranges import Range, ranges_between

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.plan.conditions import Conditions, Times
    from rocketmq_sdk.spark.plan.queue_state import Bounds

logger = logging.getLogger("rocketmq_sdk.spark")
CLOCK_STEP: Final = 60_000
"""Milliseconds by which a broker's clock may step back between two messages."""


class NoMatchError(ConfigurationError):
    """No message of a queue is as late as a starting time asks for."""


async def starts(
    cluster: ClusterView,
    settings: SparkOptions,
    bounds: Mapping[QueueKey, Bounds],
    *,
    default: Edge,
) -> dict[QueueKey, int]:
    """Where a new query begins in each queue: by time, by offsets, else at an edge.

    Queues that offsets leave out begin at the earliest message.

    Raises `NoMatchError` where no message is late enough and the strategy is `error`,
    `DataLossError` for offsets that are gone.
    """
    times = _times(settings.starting_timestamp, settings.starting_offsets_by_timestamp, bounds)
    if times is not None:
        found = {queue: place.begin for queue, place in bounds.items()} | await cluster.at_times(
            times
        )
        for queue in times:
            if (
                found[queue] >= bounds[queue].end
                and settings.starting_offsets_by_timestamp_strategy == "error"
            ):
                raise NoMatchError(
                    f"the queue {queue} has no message stored at or after {times[queue]} (epoch "
                    "milliseconds); with "
                    "startingOffsetsByTimestampStrategy=latest it begins at its end"
                )
        return {
            queue: min(max(found[queue], bounds[queue].begin), bounds[queue].end)
            for queue in bounds
        }
    given = settings.starting_offsets or default
    if isinstance(given, Edge):
        return {
            queue: place.begin if given is Edge.EARLIEST else place.end
            for queue, place in bounds.items()
        }
    return _by_queue(settings, "startingOffsets", given, bounds, unnamed=EARLIEST)


async def ends(
    cluster: ClusterView, settings: SparkOptions, bounds: Mapping[QueueKey, Bounds]
) -> dict[QueueKey, int]:
    """Where a batch ends in each queue.

    Queues that offsets or times leave out end at their end now.
    """
    times = _times(settings.ending_timestamp, settings.ending_offsets_by_timestamp, bounds)
    if times is not None:
        found = {queue: place.end for queue, place in bounds.items()} | await cluster.at_times(
            times
        )
        return {
            queue: min(max(found[queue], bounds[queue].begin), bounds[queue].end)
            for queue in bounds
        }
    given = settings.ending_offsets
    if given is None or isinstance(given, Edge):
        return {queue: place.end for queue, place in bounds.items()}
    return _by_queue(settings, "endingOffsets", given, bounds, unnamed=LATEST)


def _times(
    everywhere: int | None,
    by_queue: Mapping[QueueKey, int] | None,
    bounds: Mapping[QueueKey, Bounds],
) -> dict[QueueKey, int] | None:
    if everywhere is not None:
        return dict.fromkeys(bounds, everywhere)
    if by_queue is None:
        return None
    _refuse_foreign(by_queue, bounds)
    return dict(by_queue)


def _by_queue(
    settings: SparkOptions,
    option: str,
    given: Mapping[QueueKey, int],
    bounds: Mapping[QueueKey, Bounds],
    *,
    unnamed: int,
) -> dict[QueueKey, int]:
    _refuse_foreign(given, bounds)
    result: dict[QueueKey, int] = {}
    for queue, place in bounds.items():
        wanted = given.get(queue, unnamed)
        offset = place.begin if wanted == EARLIEST else place.end if wanted == LATEST else wanted
        if not place.begin <= offset <= place.end:
            error = (
                DataLossError(queue, offset, place.begin)
                if offset < place.begin
                else GoneError(queue, offset, place.end, option=option)
            )
            if settings.fail_on_data_loss:
                raise error
            logger.warning("failOnDataLoss is false: %s", error)
        result[queue] = min(max(offset, place.begin), place.end)
    return result


def _refuse_foreign(given: Mapping[QueueKey, int], bounds: Mapping[QueueKey, Bounds]) -> None:
    foreign = sorted(set(given) - set(bounds))
    if foreign:
        read = shown(sorted(bounds))
        raise NoSuchTopicError(
            f"offsets or times are given for the queue {foreign[0]}, which does not exist or is "
            f"not read; read are {read}"
        )


async def batch_ranges(settings: SparkOptions, conditions: Conditions = ANYTHING) -> list[Range]:
    """What a batch reads, by the state of the cluster now.

    Conditions only narrow it down, so that errors are the same with them and without.
    Raises `ConfigurationError`, `DataLossError`, `UnreachableError`.
    """
    async with bridge.client(ClusterAccess.of(settings)) as client:
        cluster = ClusterView(client, settings)
        queues = await cluster.queues()
        await cluster.check_expression(queues)
        bounds = await cluster.bounds(queues)
        _tell_lags(bounds)
        begin = await starts(cluster, settings, bounds, default=Edge.EARLIEST)
        end = await ends(cluster, settings, bounds)
        _refuse_backward(begin, end)
        ranges = conditions.narrowed(ranges_between(begin, end))
        return await _in_time(cluster, conditions.times, ranges) if conditions.times else ranges


def _tell_lags(bounds: Mapping[QueueKey, Bounds]) -> None:
    """A batch ends where a slave says, and nothing reads on from there."""
    brokers = sorted({queue.broker for queue, place in bounds.items() if place.lags})
    if brokers:
        logger.warning(
            "no master of %s is there: slaves say where the queues end, and may not have the "
            "newest messages",
            ", ".join(brokers),
        )


async def _in_time(cluster: ClusterView, times: Times, ranges: list[Range]) -> list[Range]:
    """Ranges without what was certainly stored at other times.

    Brokers look for times in queues as if these were in order, and those before 5.1
    answer with the nearest message. So a little more is kept, and rows are compared.
    """
    queues = {item.queue for item in ranges}
    begins, ends = dict.fromkeys(queues, 0), dict.fromkeys(queues, MOST_OFFSET)
    try:
        if times.least is not None:
            least = max(0, times.least - CLOCK_STEP)
            begins = await cluster.at_times(dict.fromkeys(queues, least))
        if times.before is not None:
            before = max(0, times.before + CLOCK_STEP)
            found = await cluster.at_times(dict.fromkeys(queues, before))
            ends = {queue: offset + 1 for queue, offset in found.items()}
    except RocketMQError as error:
        logger.warning("all store times are read, as they cannot be looked up: %s", error)
        return ranges
    cut = (
        Range(item.queue, max(item.begin, begins[item.queue]), min(item.end, ends[item.queue]))
        for item in ranges
    )
    return [item for item in cut if item.begin < item.end]


def _refuse_backward(begin: Mapping[QueueKey, int], end: Mapping[QueueKey, int]) -> None:
    """Only what users give can end before it begins; reading nothing would hide it."""
    for queue, offset in sorted(begin.items()):
        if end[queue] < offset:
            raise ConfigurationError(
                f"the read of queue {queue} would end at offset {end[queue]}, before it begins "
                f"at {offset}; compare the ending... and the starting... options"
            )
