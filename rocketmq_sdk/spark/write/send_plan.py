"""What the tasks of a write are told; no Spark, trio or pyarrow is needed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.spark.cluster.access import ClusterAccess

if TYPE_CHECKING:
    from rocketmq_sdk.spark.options.settings import SparkOptions


@attrs.frozen
class SendPlan:
    """What a task needs to know to send; pickles."""

    connection: ClusterAccess
    group: str
    batch_size: int
    batch_bytes: int
    linger: float
    retry_timeout: float
    max_body: int
    skip_bad: bool

    @classmethod
    def of(cls, settings: SparkOptions, connection: ClusterAccess) -> SendPlan:
        """The part of the options that sends need."""
        largest = settings.max_message_size
        batch_bytes, skip_bad = min(settings.batch_bytes, largest), settings.on_bad_row == "skip"
        return cls(
            connection,
            settings.producer_group,
            settings.batch_size,
            batch_bytes,
            settings.linger,
            settings.retry_timeout,
            largest,
            skip_bad,
        )
