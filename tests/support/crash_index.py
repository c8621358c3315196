"""The index of a store that was closed cleanly, entry for entry."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.index.file import HEADER_SIZE, SLOT_SIZE
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.protocol.message_codec import decode_message

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

Entry = tuple[int, int]
"""Position of a record, and the hash of what it is found by."""
_ENTRY = Struct(">iqii")
_COUNT_AT = HEADER_SIZE - 4


def entries_of(record: bytes) -> list[int]:
    """The hashes of what a message is found by, in the order of its entries."""
    found = decode_message(record, inflate=False)
    properties = found.properties
    texts = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
    if tags := properties.get("TAGS"):
        texts.append(f"T#{tags}")
    return [abs(java_hash(f"{found.topic}#{text}")) % (1 << 31) for text in texts if text]


def read_entries(files: FileSystem, config: StoreConfig) -> list[Entry]:
    """All entries, in the order in which they were made."""
    found: list[Entry] = []
    base = HEADER_SIZE + config.max_hash_slot_num * SLOT_SIZE
    for name, size in sorted(files.file_sizes("index")):
        file = files.open(f"index/{name}")
        try:
            data = file.pread(size, 0)
        finally:
            file.close()
        count = int.from_bytes(data[_COUNT_AT:HEADER_SIZE])
        for number in range(1, count):
            value, position, _, _ = _ENTRY.unpack_from(data, base + number * _ENTRY.size)
            found.append((position, value))
    return found


def check_entries(
    files: FileSystem, config: StoreConfig, log: Mapping[int, bytes], damaged: Collection[int]
) -> None:
    """Each message of the log has its entries once, in order, and there are no others.

    From the first message of the index on, of which some may be gone with the file
    before it. `damaged` are records that are not what they were when it was made.
    """
    begin = min(log, default=0)
    entries = [entry for entry in read_entries(files, config) if entry[0] >= begin]
    if not entries:
        return
    first, last = entries[0][0], entries[-1][0]
    left_out = {first, *damaged}
    wanted = [
        (position, value)
        for position in sorted(log)
        if first < position <= last and position not in left_out
        for value in entries_of(log[position])
    ]
    found = [entry for entry in entries if entry[0] not in left_out]
    for one, other in zip(found, wanted, strict=False):
        assert one == other, f"the index has {one} where {other} belongs"
    assert len(found) == len(wanted), f"the index has {len(found)} entries of {len(wanted)}"
