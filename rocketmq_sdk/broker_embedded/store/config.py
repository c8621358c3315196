"""Settings of the message store."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.delay_levels import DEFAULT_DELAY_LEVELS
from rocketmq_sdk.validators import at_least, between, member_of

if TYPE_CHECKING:
    from collections.abc import Callable

MEBIBYTE = 1024 * 1024
PAGE_SIZE = 4096
"""The unit of the settings that count pages, in bytes."""
QUEUE_UNIT_SIZE = 20
BATCH_UNIT_SIZE = 46


def _whole_units(unit_size: int) -> Callable[[object, attrs.Attribute[int], int], None]:
    def check(_instance: object, attribute: attrs.Attribute[int], value: int) -> None:
        if value < unit_size or value % unit_size:
            raise ConfigurationError(
                f"{attribute.name} must be a positive multiple of {unit_size}, not {value}"
            )

    return check


def _hours(_instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    parts = [part.strip() for part in value.split(";") if part.strip()]
    if not all(
        part.isascii() and part.isdecimal() and len(part) <= 2 and int(part) < 24 for part in parts
    ):
        raise ConfigurationError(f"{attribute.name} must be hours like 04;16, not {value!r}")


def _precision(_instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value not in (100, 200, 500, 1000):
        raise ConfigurationError(f"{attribute.name} must be 100, 200, 500 or 1000, not {value}")


class FlushDiskType(Enum):
    """When an append counts as done: in the page cache, or synced to the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class MemoryFullPolicy(Enum):
    """What happens in memory when only messages are left that are not consumed."""

    REMOVE_OLDEST = "REMOVE_OLDEST"
    REFUSE_SENDS = "REFUSE_SENDS"


@explained
@attrs.frozen(kw_only=True)
class StoreConfig:
    """Settings of the store, with the names of Apache's `MessageStoreConfig`.

    Names are in snake case and defaults are Apache's; sizes are in bytes and times in
    milliseconds, as there. The last five settings are this store's own. Raises
    `ConfigurationError` for a value out of range.
    """

    mapped_file_size_commit_log: int = attrs.field(
        default=1024 * MEBIBYTE, validator=at_least(1024)
    )
    """Size of one log file.

    A directory can only be opened with the size that it was written with.
    """
    mapped_file_size_consume_queue: int = attrs.field(
        default=300_000 * QUEUE_UNIT_SIZE, validator=_whole_units(QUEUE_UNIT_SIZE)
    )
    """Size of one queue file; a multiple of 20."""
    mapped_file_size_consume_queue_ext: int = attrs.field(
        default=48 * MEBIBYTE, validator=at_least(1024)
    )
    """Size of one file of the extensions of queue units."""
    enable_consume_queue_ext: bool = False
    """Whether queue units point to the bit maps of filters.

    The bit maps exist with `enableCalcFilterBitMap`.
    """
    mapper_file_size_batch_consume_queue: int = attrs.field(
        default=300_000 * BATCH_UNIT_SIZE, validator=_whole_units(BATCH_UNIT_SIZE)
    )
    """Size of one file of a batch consume queue; a multiple of 46."""
    flush_disk_type: FlushDiskType = attrs.field(
        default=FlushDiskType.ASYNC_FLUSH, validator=member_of(FlushDiskType)
    )
    flush_interval_commit_log: int = attrs.field(default=500, validator=at_least(1))
    flush_commit_log_least_pages: int = attrs.field(default=4, validator=at_least(0))
    flush_commit_log_thorough_interval: int = attrs.field(default=10_000, validator=at_least(0))
    flush_interval_consume_queue: int = attrs.field(default=1000, validator=at_least(1))
    flush_consume_queue_least_pages: int = attrs.field(default=2, validator=at_least(0))
    flush_consume_queue_thorough_interval: int = attrs.field(default=60_000, validator=at_least(0))
    sync_flush_timeout: int = attrs.field(default=5000, validator=at_least(1))
    """How long a put waits for its sync before it ends with FLUSH_DISK_TIMEOUT."""
    max_message_size: int = attrs.field(default=4 * MEBIBYTE, validator=at_least(1))
    """Largest body; a record may be 65,536 bytes larger."""
    check_crc_on_recover: bool = True
    enabled_append_prop_crc: bool = False
    """Whether each record ends in a property with a CRC of all that comes before it."""
    force_verify_prop_crc: bool = False
    """Whether recovery checks that CRC instead of the body's.

    The log then ends at the first record without it.
    """
    warm_maped_file_enable: bool = False
    """Whether a new log file is filled with zeros before it is needed.

    If not, space is allocated in steps.
    """
    max_transfer_bytes_on_message_in_memory: int = attrs.field(
        default=262_144, validator=at_least(1)
    )
    max_transfer_count_on_message_in_memory: int = attrs.field(default=32, validator=at_least(1))
    max_transfer_bytes_on_message_in_disk: int = attrs.field(default=65_536, validator=at_least(1))
    max_transfer_count_on_message_in_disk: int = attrs.field(default=8, validator=at_least(1))
    access_message_in_memory_max_ratio: int = attrs.field(default=40, validator=between(0, 100))
    """Percent of the machine's memory in which the end of the log counts as cached."""
    max_filter_message_size: int = attrs.field(default=16_000, validator=at_least(QUEUE_UNIT_SIZE))
    """How many bytes of queue units (20 bytes each) one read looks at."""
    message_index_enable: bool = True
    """Whether messages can be found by their keys."""
    max_hash_slot_num: int = attrs.field(default=5_000_000, validator=between(1, 500_000_000))
    """Slots of an index file.

    A directory can only be opened with the numbers of slots and entries that it was
    written with.
    """
    max_index_num: int = attrs.field(default=20_000_000, validator=between(2, 100_000_000))
    """Entries of an index file; the number in use is one less."""
    max_msgs_num_batch: int = attrs.field(default=64, validator=at_least(1))
    default_query_max_num: int = attrs.field(default=32, validator=at_least(1))
    """The maximum number of messages that one lookup by key finds."""
    delete_when: str = attrs.field(default="04", validator=_hours)
    """Local hours at which old log files are deleted, separated by semicolons."""
    file_reserved_time: int = attrs.field(default=72, validator=at_least(0))
    """Hours that a log file is kept after the last write to it."""
    disk_max_used_space_ratio: int = attrs.field(default=75, validator=between(0, 100))
    """Percent of disk usage above which old files are deleted at any hour.

    Apache's bounds, 10 to 95, apply.
    """
    disk_space_clean_forcibly_ratio: int = attrs.field(default=85, validator=between(0, 100))
    """Percent of disk usage above which the oldest files are deleted at any age.

    Apache's bounds, 30 to 85, apply.
    """
    disk_space_warning_level_ratio: int = attrs.field(default=90, validator=between(0, 100))
    """Percent of disk usage above which messages are refused; 35 to 90 apply."""
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = attrs.field(default=10_000, validator=at_least(1))
    delete_file_batch_max: int = attrs.field(default=10, validator=at_least(1))
    delete_commit_log_files_interval: int = attrs.field(default=100, validator=at_least(0))
    destroy_maped_file_interval_forcibly: int = attrs.field(default=120_000, validator=at_least(0))
    """How long a file that is due for deletion is kept while somebody reads it."""
    total_replicas: int = attrs.field(default=1, validator=at_least(1))
    """How many brokers keep the log, including this one."""
    in_sync_replicas: int = attrs.field(default=1, validator=at_least(1))
    """How many of them must have a message before a SYNC_MASTER acknowledges it.

    Includes the master; with 1 it waits for no slave.
    """
    min_in_sync_replicas: int = attrs.field(default=1, validator=at_least(1))
    """A SYNC_MASTER with fewer copies in sync refuses messages."""
    all_ack_in_sync_state_set: bool = False
    """Whether a SYNC_MASTER waits for all slaves that are in sync."""
    enable_auto_in_sync_replicas: bool = False
    """Whether a SYNC_MASTER waits for fewer slaves while fewer are in sync.

    It never waits for fewer than `min_in_sync_replicas` asks for.
    """
    ha_max_gap_not_in_sync: int = attrs.field(default=256 * MEBIBYTE, validator=at_least(0))
    """How many bytes a slave may be behind and still count as in sync."""
    slave_timeout: int = attrs.field(default=3000, validator=at_least(1))
    """How long a put waits for slaves before it ends with FLUSH_SLAVE_TIMEOUT."""
    ha_send_heartbeat_interval: int = attrs.field(default=5000, validator=at_least(1))
    ha_housekeeping_interval: int = attrs.field(default=20_000, validator=at_least(1))
    """A connection between master and slave that is silent for this long is closed."""
    ha_transfer_batch_size: int = attrs.field(
        default=32_768, validator=between(1, 4 * MEBIBYTE - 12)
    )
    """The maximum number of bytes of the log in one frame to a slave."""
    offset_check_in_slave: bool = False
    """Whether a slave corrects offsets of consumers that lie outside a queue."""
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    mapped_file_size_timer_log: int = attrs.field(default=100 * MEBIBYTE, validator=at_least(68))
    """Size of one file of the timer log.

    A directory can only be opened with the size that it was written with.
    """
    timer_precision_ms: int = attrs.field(default=1000, validator=_precision)
    """Width of a slot of the timer wheel; a timer fires at most this late."""
    timer_roll_window_slot: int = attrs.field(default=172_800, validator=at_least(1))
    """How many slots ahead a timer may be.

    One that is further ahead goes through the wheel more than once.
    """
    timer_max_delay_sec: int = attrs.field(default=259_200, validator=at_least(0))
    """How far ahead a timer may be, in seconds; later ones are refused."""
    timer_flush_interval_ms: int = attrs.field(default=1000, validator=at_least(1))
    timer_congest_num_each_slot: int = attrs.field(default=(1 << 31) - 1, validator=at_least(0))
    """Timers in one slot above which more and more are refused."""
    timer_stop_enqueue: bool = False
    timer_stop_dequeue: bool = False
    memory_limit: int = attrs.field(default=256 * MEBIBYTE, validator=at_least(4096))
    """How many bytes log, queues and index of a store in memory may take in total.

    Above three quarters of it the oldest messages are removed, consumed ones first.
    """
    memory_full_policy: MemoryFullPolicy = attrs.field(
        default=MemoryFullPolicy.REMOVE_OLDEST, validator=member_of(MemoryFullPolicy)
    )
    """What goes in memory when no consumed messages are left to remove.

    The oldest messages; with REFUSE_SENDS nothing, and sends are refused.
    """
    reserve_bytes: int = attrs.field(default=MEBIBYTE, validator=at_least(0))
    """Disk space kept for tables, so that consumers can go on while the disk is full.

    At most a 32nd of the disk is kept; 0 keeps none.
    """
    hot_bytes: int = attrs.field(default=32 * MEBIBYTE, validator=at_least(0))
    """How many bytes of the end of the log a store on disk also keeps in memory.

    Reading them takes no system call.
    """
    allocation_step: int = attrs.field(default=16 * MEBIBYTE, validator=at_least(4096))
    """How much disk space is allocated for a log file at a time."""

    def check_replicas(self) -> None:
        """Check the numbers of replicas against each other.

        Raises `ConfigurationError` when they contradict each other.
        """
        if not self.total_replicas >= self.in_sync_replicas >= self.min_in_sync_replicas:
            numbers = (
                f"{self.total_replicas}, {self.in_sync_replicas} and {self.min_in_sync_replicas}"
            )
            problem = "none of them may be more than the one before it"
            raise ConfigurationError(
                f"totalReplicas, inSyncReplicas and minInSyncReplicas are {numbers}: {problem}"
            )
