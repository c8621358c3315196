"""Holes in what unfiltered pulls bring.

A broker passes over messages that it can no longer read, and answers with those behind
them. So the rows of an unfiltered read are counted, which costs nothing, and only where
some are missing the offsets are looked at.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from rocketmq_sdk.client.api.topics import topic_config
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.view import broker_address
from rocketmq_sdk.spark.plan.loss import DataLossError
from rocketmq_sdk.spark.rows.records import Record, read_records, record_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.spark.plan.offsets import QueueKey
    from rocketmq_sdk.spark.read.pulls import Piece, PullPlan

logger = logging.getLogger("rocketmq_sdk.spark")
_OFFSET: Final = Record._fields.index("queue_offset")
_CLEANUP: Final = "cleanup.policy"
_COMPACTION: Final = "COMPACTION"


def first_gap(piece: Piece) -> DataLossError | None:
    """The first hole in the offsets that a piece covers, None without any."""
    rows = read_records(
        piece.records, record_starts(piece.records), offset_delta=piece.offset_delta
    )
    expected, end = piece.covers
    offsets = cast("set[int]", {row[_OFFSET] for row in rows})
    present = sorted(offset for offset in offsets if expected <= offset < end)
    for offset in (*present, end):
        if offset != expected:
            return DataLossError(piece.queue, expected, offset)
        expected += 1
    return None


async def report_gaps(plan: PullPlan, pieces: Sequence[Piece]) -> None:
    """Raise `DataLossError` for the first hole, unless `failOnDataLoss` is false.

    Then all holes are logged. Topics that the broker compacts have holes by nature
    (attribute `cleanup.policy`, Apache 5.0).
    """
    for piece in pieces:
        gap = first_gap(piece)
        if gap is None or await _is_compacted(plan, piece.queue):
            continue
        if plan.fail_on_data_loss:
            raise gap
        logger.warning("failOnDataLoss is false: %s", gap)


async def _is_compacted(plan: PullPlan, queue: QueueKey) -> bool:
    async with bridge.client(plan.connection) as client:
        topic = client.namespace.wrap(queue.topic)
        try:
            address = await broker_address(client, queue.broker, topic)
            if address is None:
                return False
            config = await topic_config(client, address, topic)
        except RocketMQError as error:  # brokers before 5.0 do not know the request
            logger.debug("the attributes of %s cannot be asked for: %s", queue.topic, error)
            return False
    return config.attributes.get(_CLEANUP, "").upper() == _COMPACTION
