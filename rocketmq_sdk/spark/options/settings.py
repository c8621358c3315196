"""The values of the options of one reader or writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.spark.options.table import OPTIONS, Use
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.plan.ranges import Partitioning

if TYPE_CHECKING:
    from rocketmq_sdk.spark.options.values import Edge

    Places = Edge | Mapping[QueueKey, int]


@attrs.frozen(kw_only=True, repr=False)
class SparkOptions:
    """The values of all options, under their Python names; None: not given.

    Times are seconds or epoch milliseconds, sizes are bytes. What they mean says the
    table (`OPTIONS`). Pickles, and its `repr` shows no secret.
    """

    use: Use
    namesrv_addr: str
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: tuple[QueueKey, ...] | None
    starting_offsets: Places | None
    ending_offsets: Places
    starting_timestamp: int | None
    starting_offsets_by_timestamp: Mapping[QueueKey, int] | None
    ending_timestamp: int | None
    ending_offsets_by_timestamp: Mapping[QueueKey, int] | None
    starting_offsets_by_timestamp_strategy: str
    sub_expression: str
    filter_type: str
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float
    num_partitions: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    include_properties: bool
    fail_on_data_loss: bool
    on_broker_away: str
    max_broker_away: float | None
    retry_timeout: float
    offset_refresh_interval: float
    pull_batch_size: int
    read_group: str
    consumer_group: str | None
    commit_offsets_to_broker: bool
    topic: str | None
    producer_group: str
    batch_size: int
    batch_bytes: int
    max_message_size: int
    linger: float
    on_bad_row: str
    dedup_scope: str | None
    dedup_batch: str | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    credentials_file: str | None
    credentials_env: str | None
    tls: bool
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_check_hostname: bool
    namespace: str | None

    def partitioning(self, default: int) -> Partitioning:
        """How many tasks a read has, `default` being the session's parallelism."""
        return Partitioning(
            self.num_partitions, default, self.min_partitions, self.max_records_per_partition
        )

    def __repr__(self) -> str:
        given = [
            (option, getattr(self, option.attribute)) for option in OPTIONS if option.use & self.use
        ]
        shown = (
            f"{option.name}={'***' if option.secret else repr(value)}"
            for option, value in given
            if value != option.default_value()
        )
        return f"SparkOptions({', '.join(shown)})"
