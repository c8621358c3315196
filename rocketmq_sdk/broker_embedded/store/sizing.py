"""File sizes that fit the place where a store lies.

Apache's sizes (log files of 1 GiB, index files of 420 MB) are for big disks. Only whole
files are removed, and the last one always stays, so on a small disk, or in memory, they
would leave nothing to remove. A new store on a disk below 8 GiB therefore gets smaller
files, and says so in `fileSizes.properties`, in the words of Apache's `broker.conf`:
the next start reads the file, and Apache's broker needs its lines. A setting that does
not have its default value is taken as it is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.config import (
    BATCH_UNIT_SIZE,
    MEBIBYTE,
    QUEUE_UNIT_SIZE,
    StoreConfig,
)
from rocketmq_sdk.broker_embedded.store.files.reserve import write_small
from rocketmq_sdk.broker_embedded.store.log.commit_log import DIRECTORY as LOG
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import DIRECTORY as QUEUES
from rocketmq_sdk.validators import with_values

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

PATH: Final = "fileSizes.properties"
BIG_ENOUGH: Final = 8 * 1024 * MEBIBYTE
"""Disks of this size get Apache's file sizes."""
_NAMES: Final = {
    "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
    "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
    "mapper_file_size_batch_consume_queue": "mapperFileSizeBatchConsumeQueue",
    "max_hash_slot_num": "maxHashSlotNum",
    "max_index_num": "maxIndexNum",
    "mapped_file_size_timer_log": "mappedFileSizeTimerLog",
}
_DEFAULTS: Final = StoreConfig()
_NO_LIMIT: Final = (1 << 31) - 1
_RECORD_EXTRA: Final = 128 * 1024
_LARGEST_FRAME: Final = 16 * MEBIBYTE
_INDEX_BYTES_PER_SLOT: Final = 4 + 4 * 20
_HEAD: Final = (
    "# The sizes of the files in this directory, chosen for its disk of %d MiB.\n"
    "# Apache's broker needs these lines in its broker.conf.\n"
)


@lru_cache(maxsize=8)
def fitted_in_memory(config: StoreConfig) -> StoreConfig:
    """Settings of a store in memory, with files of which `memory_limit` holds many.

    One log file has room for the largest message, also after `maxMessageSize` was
    raised while the broker runs, but takes no more than a quarter.
    """
    limit = config.memory_limit
    largest = max(config.max_message_size, _LARGEST_FRAME) + _RECORD_EXTRA
    return _smaller(
        config,
        {
            "mapped_file_size_commit_log": min(
                max(limit // 64, largest), max(limit // 4, 64 * 1024)
            ),
            "mapped_file_size_consume_queue": _units(limit // 16_384, QUEUE_UNIT_SIZE),
            "mapper_file_size_batch_consume_queue": _units(limit // 8192, BATCH_UNIT_SIZE),
            "mapped_file_size_timer_log": max(limit // 256, 16 * 1024),
        },
    )


@lru_cache(maxsize=8)
def without_size_limit(config: StoreConfig) -> StoreConfig:
    """Settings without the store's own limit of sizes, for the store of a broker.

    What clients send is checked before it gets there, against the limit in force. What
    was acknowledged under a higher limit and is due now is stored whatever its size.
    """
    return with_values(config, max_message_size=_NO_LIMIT)


def fitted_on_disk(config: StoreConfig, files: FileSystem, *, choose: bool) -> StoreConfig:
    """Settings of a store on a disk, as its directory says.

    With `choose`, those of a new store are as the disk is big. Raises `StoreError` when
    the directory cannot be read.
    """
    noted = _noted(files)
    if noted:
        return _in_place_of_defaults(config, noted)
    if not choose or files.file_sizes(LOG) or files.directory_names(QUEUES):
        return config
    capacity = files.capacity_bytes()
    if not 0 < capacity < BIG_ENOUGH:
        return config
    slots = max(1000, capacity // 16 // _INDEX_BYTES_PER_SLOT)
    return _smaller(
        config,
        {
            "mapped_file_size_commit_log": 1 << max(16, (capacity // 8).bit_length() - 1),
            "mapped_file_size_consume_queue": _units(capacity // 256, QUEUE_UNIT_SIZE),
            "mapper_file_size_batch_consume_queue": _units(capacity // 128, BATCH_UNIT_SIZE),
            "max_hash_slot_num": slots,
            "max_index_num": 4 * slots,
            "mapped_file_size_timer_log": max(capacity // 64, 64 * 1024),
        },
    )


def note_sizes(files: FileSystem, config: StoreConfig) -> None:
    """Write the sizes of a directory beside its files, unless they are Apache's.

    Raises `StoreError`. The store is open and nothing was appended yet.
    """
    if files.exists(PATH):
        return
    chosen = {
        name: getattr(config, attribute)
        for attribute, name in _NAMES.items()
        if getattr(config, attribute) != getattr(_DEFAULTS, attribute)
    }
    lines = "".join(f"{name}={size}\n" for name, size in chosen.items())
    head = _HEAD % (files.capacity_bytes() // MEBIBYTE)
    write_small(files, PATH, (head + lines).encode())
    files.sync_directory(".")


def _units(size: int, unit: int) -> int:
    return max(500, size // unit) * unit


def _smaller(config: StoreConfig, sizes: dict[str, int]) -> StoreConfig:
    return _in_place_of_defaults(
        config, {name: size for name, size in sizes.items() if size < getattr(_DEFAULTS, name)}
    )


def _in_place_of_defaults(config: StoreConfig, sizes: dict[str, int]) -> StoreConfig:
    changes = {
        name: size
        for name, size in sizes.items()
        if getattr(config, name) == getattr(_DEFAULTS, name)
    }
    return with_values(config, **changes) if changes else config


def _noted(files: FileSystem) -> dict[str, int]:
    text = (files.read(PATH) or b"").decode("utf-8", "replace")
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {
        attribute: int(found[name])
        for attribute, name in _NAMES.items()
        if found.get(name, "").isascii() and found.get(name, "").isdecimal()
    }
