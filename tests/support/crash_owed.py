"""What a store owes in the crash suite, and whether it has it after a recovery."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.testing.faulty_device import PowerCutError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import message

if TYPE_CHECKING:
    from random import Random

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

Key = tuple[str, int, int]
GONE = "Fleeting"
"""A topic that is deleted now and then."""
_OWN_KEY = re.compile(rb"UNIQ_KEY\x01[0-9A-F]{32}\x02")
"""A unique key that no other message has."""


class Wanted:
    """What the store owes."""

    def __init__(self) -> None:
        self.durable: dict[Key, tuple[int, bytes]] = {}
        self.accepted: dict[Key, tuple[int, bytes]] = {}
        self.written: dict[int, set[bytes]] = {}
        self.config: set[int] = {0}
        self.deleting = False
        self.deleted_below = 0
        self.expired_below = 0
        """Up to where retention has removed files."""
        self.damaged: set[int] = set()
        """Positions of records that Apache's checks accept although their properties
        lost bytes.
        """

    def copy(self) -> Wanted:
        """The same, which does not change with this one."""
        other = Wanted()
        other.__dict__ |= {
            name: value.copy() if hasattr(value, "copy") else value
            for name, value in vars(self).items()
        }
        other.written = {position: set(records) for position, records in self.written.items()}
        return other

    def note(self, key: Key, position: int, record: bytes) -> None:
        self.accepted[key] = (position, record)

    def saw_write(self, path: str, data: bytes, offset: int) -> None:
        """What may be found in the log: whatever the store tried to write there,
        whether it worked or not.
        """
        directory, _, name = path.rpartition("/")
        if directory != "commitlog":
            return
        at = 0
        while at + 8 <= len(data) and data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
            size = int.from_bytes(data[at : at + 4])
            self.written.setdefault(int(name) + offset + at, set()).add(data[at : at + size])
            at += size

    def owes(self, key: Key, position: int) -> bool:
        """Whether a message was accepted there, and not deleted since."""
        return key in self.accepted and self.accepted[key][0] == position

    def forget_topic(self, topic: str) -> None:
        for table in (self.durable, self.accepted):
            for key in [key for key in table if key[0] == topic]:
                del table[key]

    def survived(self, found: dict[Key, tuple[int, bytes]], log: dict[int, bytes]) -> None:
        """A recovery is complete: what it showed stays, what it did not show never
        comes back.
        """
        self.durable = dict(found)
        self.accepted = dict(found)
        self.written = {position: {record} for position, record in log.items()}
        self.deleting = False
        self.deleted_below = min(
            self.deleted_below,
            max((position + len(record) for position, record in log.items()), default=0),
        )


def properties_start(record: bytes) -> int:
    """Where the properties of a V1 record with IPv4 hosts begin."""
    body_end = 88 + int.from_bytes(record[84:88])
    return body_end + 1 + record[body_end] + 2


def lost_only_properties(found: bytes, written: set[bytes]) -> bool:
    """Whether a record is one that was written but for zeros in its properties, which
    no CRC covers: Apache serves it too.
    """
    for record in written:
        if len(record) == len(found):
            start = properties_start(record)
            if record[:start] == found[:start] and all(
                now in (0, then) for now, then in zip(found[start:], record[start:], strict=True)
            ):
                return True
    return False


def read_all(store: MessageStore) -> tuple[dict[Key, tuple[int, bytes]], dict[int, bytes]]:
    """Every message by queue, and every record of the log by position."""
    found: dict[Key, tuple[int, bytes]] = {}
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            for offset in range(
                store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            ):
                unit = store.queue_unit(topic, queue_id, offset)
                assert unit is not None, (topic, queue_id, offset)
                record = store.record_at(unit[0])
                assert record is not None, (topic, queue_id, offset, unit)
                assert len(record) == unit[1], (topic, queue_id, offset, unit, len(record))
                found[topic, queue_id, offset] = (unit[0], record)
    log: dict[int, bytes] = {}
    position = store.min_physical_offset
    size = store.config.mapped_file_size_commit_log
    while position < store.max_physical_offset:
        head = store._log.read(position, 8)
        assert head is not None, position
        if head[4:8] == b"\xcb\xd4\x31\x94":
            position += size - position % size
            continue
        record = store.record_at(position)
        assert record is not None, position
        log[position] = record
        position += len(record)
    assert position == store.max_physical_offset
    return found, log


def check(store: MessageStore, wanted: Wanted, *, killed: bool) -> None:
    """Compare what a store shows with what it owes; then what it shows is what it
    owes.
    """
    found, log = read_all(store)
    required = wanted.accepted if killed else wanted.durable
    for key, expected in required.items():
        if (key[0] == GONE and wanted.deleting) or expected[0] < wanted.expired_below:
            continue
        assert key in found, f"lost {key} at {expected[0]}"
        assert found[key] == expected, f"changed {key}: at {expected[0]}, found at {found[key][0]}"
    for position, record in log.items():
        candidates = wanted.written.get(position, set())
        if record not in candidates:
            assert lost_only_properties(record, candidates), (
                f"the record at {position} was never written: {record[:100].hex()}"
            )
            wanted.damaged.add(position)
    positions = {}
    for key, (position, record) in found.items():
        decoded = decode_message(record, inflate=False)
        assert (decoded.topic, decoded.queue_id, decoded.offset) == key, (
            f"{key} is {decoded.topic, decoded.queue_id, decoded.offset}"
        )
        assert log.get(position) == record, f"{key} at {position} is no record of the log"
        assert key[0] != GONE or position >= wanted.deleted_below, (
            f"{key} came back after its topic was deleted"
        )
        positions[position] = key
        if position not in wanted.damaged:
            unit = store.queue_unit(*key)
            assert unit is not None
            assert unit[2] == message(tag=decoded.tags).tags_code, (
                f"{key} has the tags code {unit[2]}"
            )
    for position, record in log.items():
        decoded = decode_message(record, inflate=False)
        if decoded.topic != GONE and position >= wanted.expired_below:
            assert position in positions, (
                f"the record at {position} ({decoded.topic} {decoded.queue_id} {decoded.offset}) "
                "is in no queue"
            )
    wanted.survived(found, log)


async def check_index(store: MessageStore, wanted: Wanted, generator: Random) -> None:
    """Some messages of what the store owes are found by their keys."""
    if not store.config.message_index_enable:
        return
    keyed: dict[str, list[tuple[Key, int]]] = {"KEYS": [], "UNIQ_KEY": []}
    for key, (position, record) in wanted.accepted.items():
        if position not in wanted.damaged:
            if b"KEYS\x01" in record:
                keyed["KEYS"].append((key, position))
            if _OWN_KEY.search(record):
                keyed["UNIQ_KEY"].append((key, position))
    chosen = [
        (name, key, position)
        for name, found in keyed.items()
        for key, position in generator.sample(found, min(3, len(found)))
    ]
    for name, key, position in chosen:
        if wanted.owes(key, position):
            text = decode_message(wanted.accepted[key][1], inflate=False).properties[name]
            await _find(store, wanted, key, position, text)


async def _find(store: MessageStore, wanted: Wanted, key: Key, position: int, text: str) -> None:
    """Wait until a message is found, or owed no more: a full disk made way for it, its
    topic was deleted, or the store is dead.
    """
    with trio.move_on_after(60):
        while wanted.owes(key, position) and position >= store.min_physical_offset:
            try:
                if position in (await store.query(key[0], text, 32)).physical_offsets:
                    return
            except PowerCutError:
                return
            if isinstance(store.files, FaultyFileSystem) and store.files.dead:
                return
            await trio.sleep(1)
        return
    raise AssertionError(f"{key} at {position} is not found by its key {text}")


def check_config(files: FaultyFileSystem, wanted: Wanted) -> None:
    """The file holds the value before or the value after."""
    loaded = ConfigFile(files, "topics.json").load()
    value = loaded["value"] if isinstance(loaded, dict) else 0
    assert value in wanted.config, f"the configuration is {value}, written were {wanted.config}"
    wanted.config = {value}
