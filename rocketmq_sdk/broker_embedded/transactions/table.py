"""Open transactions: half messages neither committed nor rolled back.

`TransactionalMessageBridge` of Apache RocketMQ 5.4.0. A half message lies in the half
topic; a record of the op topic says that it is finished, with a body that lists half
offsets, `12,13,`, of all that ended together. The progress of both queues is kept as
offsets of the group CID_RMQ_SYS_TRANS: below them everything is finished. Apache reads
both queues in each round of checks; here they are read once, at the start, and open
half messages are kept in memory.

A transaction can have several copies in the half queue: the broker appends one with
each check, and a producer that got no answer sends the half message again. Copies have
the same unique id, group, topic and body; the last one stands for all of them, and what
ends it ends them all.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict, deque
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.following.unreadable import Place
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.broker_embedded.transactions.half_messages import destination
from rocketmq_sdk.broker_embedded.transactions.ready import ReadyTable
from rocketmq_sdk.errors import ProtocolError, StoreError
from rocketmq_sdk.model.properties import (
    PGROUP,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    property_in_text,
)
from rocketmq_sdk.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import PutResult
    from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
    from rocketmq_sdk.broker_embedded.transactions.ready import Ready
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger(__name__)

GROUP: Final = "CID_RMQ_SYS_TRANS"
QUEUE_ID: Final = 0
_OP_TAG: Final = "d"
_OP_PROPERTIES: Final = "WAIT\x01true\x02TAGS\x01d\x02"
_OP_CODE: Final = tags_code(_OP_TAG)
_MAX_OP_DIGITS: Final = 19
_LOAD_TRIES: Final = 3
"""How often a message is read in vain at the start before it is passed over."""
_LONGEST: Final = 256
_REMEMBERED: Final = 10_000
"""So many transactions that ended last keep their outcome, until the broker stops."""
RESUMED: Final = "0"
"""Number of checks in the copy of a given-up half message that was resumed.

An administrator resumes it.
"""


class Half:
    """An open half message: its transaction, and the place of its last copy.

    `unwritten_checks` counts checks that no copy holds.
    """

    __slots__ = ("key", "offset", "physical_offset", "size", "unwritten_checks")

    def __init__(self, key: str, offset: int, physical_offset: int, size: int) -> None:
        self.key = key
        self.offset = offset
        self.physical_offset = physical_offset
        self.size = size
        self.unwritten_checks = 0


def place_of(half: Half) -> Place:
    """Where the last copy of a half message is."""
    return Place(TRANSACTION_HALF_TOPIC, QUEUE_ID, half.offset, half.physical_offset, half.size)


def transaction_key(properties: str, body_crc: int, physical_offset: int) -> str:
    """The key that all copies of one half message share.

    A half message without a unique id, which no client sends, has no copies.
    """
    unique, group, topic = (
        property_in_text(properties, name) or "" for name in (UNIQ_KEY, PGROUP, REAL_TOPIC)
    )
    return joined_key(unique or f"at {physical_offset}", group, topic, body_crc)


def joined_key(unique: str, group: str, topic: str, body_crc: int) -> str:
    """`transaction_key` of a half message with these properties."""
    if len(unique) > _LONGEST:  # thousands of keys are remembered
        unique = sha256(unique.encode("utf-8", "replace")).hexdigest()
    return f"{unique}\x02{group}\x02{topic}\x02{body_crc}"


def body_crc_of(body: bytes) -> int:
    """The check sum as records hold it."""
    return zlib.crc32(body) & 0x7FFFFFFF


def op_message(*offsets: int, now_ms: int, host: bytes) -> MessageToStore:
    """The op message that says that the half messages at some offsets are finished."""
    return MessageToStore(
        TRANSACTION_OP_TOPIC,
        QUEUE_ID,
        b"".join([b"%d," % offset for offset in offsets]),
        _OP_PROPERTIES,
        born_timestamp=now_ms,
        born_host=host,
        tags_code=_OP_CODE,
    )


def _key_of(message: ReceivedMessage) -> str:
    text = message.properties_bytes.decode("utf-8", "replace")
    return transaction_key(text, message.body_crc, message.commit_log_offset)


def _is_torn(message: ReceivedMessage, text: str) -> bool:
    """Whether a half message seems to lack some of its properties."""
    if "\0" in text:
        return True
    try:
        destination(message)
    except ValueError:
        return True
    return False


def op_offsets(body: bytes) -> list[int]:
    """The half offsets in the body of an op message.

    Parts that are no number are left out. 4.x wrote a single one without a comma.
    """
    parts = (part.strip() for part in body.split(b","))
    return [int(part) for part in parts if part.isdigit() and len(part) <= _MAX_OP_DIGITS]


class TransactionTable:
    """Which half messages are open.

    Synchronous; belongs to the thread of the event loop once it is loaded.
    """

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetManager) -> None:
        self._store = store
        self._offsets = offsets
        # Plain dicts keep the places of what was deleted: to find the first one again
        # and again would take longer and longer.
        self._halves: OrderedDict[int, Half] = OrderedDict()
        self._by_key: dict[str, Half] = {}
        self._ops: deque[tuple[int, int]] = deque()
        self._op_end = 0
        self._noted: tuple[int, int, int] | None = None
        """A log position, and the progress to commit once it is durable up to there."""
        self._half_end = 0
        self._outcomes: OrderedDict[str, bool] = OrderedDict()
        self._ready = ReadyTable()
        self.ready = self._ready.get
        """What is kept of the open half message at an offset: see `Ready`."""
        self.unended: list[Half] = []
        """After `load`: half messages that are ended, but without an op record yet."""
        self.unread: list[tuple[Place, str]] = []
        """After `load`: what could not be read, and why."""

    def __len__(self) -> int:
        return len(self._halves)

    # --- the state

    def places(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Positions and sizes of open half messages, between two positions."""
        for half in self._halves.values():
            if low <= half.physical_offset < high:
                yield half.physical_offset, half.size

    def add(
        self, key: str, offset: int, physical_offset: int, size: int, ready: Ready | None = None
    ) -> Half:
        """A copy of a half message was appended; it takes the place of earlier ones."""
        half = Half(key, offset, physical_offset, size)
        older = self._by_key.get(key)
        if older is not None:
            self._halves.pop(older.offset, None)
            self._ready.drop(older.offset)
        self._by_key[key] = half
        self._halves[offset] = half
        if ready is not None:
            self._ready.keep(offset, ready)
        if offset >= self._half_end:
            self._half_end = offset + 1
        return half

    def added(self, half: MessageToStore, result: PutResult, shown: Ready | None = None) -> Half:
        """A half message was stored; `shown` is what its commit stores."""
        key = transaction_key(half.properties, body_crc_of(half.body), result.physical_offset)
        return self.add(key, result.queue_offset, result.physical_offset, result.size, shown)

    def open_half(self, message: ReceivedMessage) -> Half | None:
        """The last copy of a half message's transaction; None when it is finished."""
        return self._by_key.get(_key_of(message))

    def was_committed(self, message: ReceivedMessage) -> bool | None:
        """Whether a transaction that is over was committed; None when that is not known
        any more.
        """
        return self._outcomes.get(_key_of(message))

    def get(self, offset: int) -> Half | None:
        """The open half message at an offset of the half queue."""
        return self._halves.get(offset)

    def open_topics(self) -> list[str]:
        """The topic that each open half message is for."""
        return [half.key.split("\x02", 3)[2] for half in self._halves.values()]

    def open_offsets(self) -> list[int]:
        """The offsets of all open half messages, oldest first."""
        return list(self._halves)

    def finished(self, half: Half, op: PutResult, *, is_committed: bool | None) -> None:
        """The op record of a half message was appended; None: outcome unknown."""
        self.finished_together([(half, is_committed)], op.queue_offset)

    def finished_together(self, ended: Sequence[tuple[Half, bool | None]], op_offset: int) -> None:
        """The op record of several half messages was appended, with their outcomes."""
        outcomes = self._outcomes
        for half, is_committed in ended:
            outcomes.pop(half.key, None)
            if is_committed is not None:
                outcomes[half.key] = is_committed
                if len(outcomes) > _REMEMBERED:
                    outcomes.popitem(last=False)
            self.forget(half)
        self._ops.append((op_offset, max([half.offset for half, _outcome in ended])))
        self._op_end = max(self._op_end, op_offset + 1)

    def forget(self, half: Half) -> None:
        """A half message is finished or gone."""
        if self._halves.get(half.offset) is half:
            del self._halves[half.offset]
            self._ready.drop(half.offset)
        if self._by_key.get(half.key) is half:
            del self._by_key[half.key]

    # --- progress

    def note_progress(self) -> None:
        """Commit the progress of both queues once the log is durable up to there.

        The file of the offsets is written later. Offsets ahead of a log that lost its
        end in a power cut would skip half messages whose ends were lost with it.
        """
        if self._noted is None:
            self._noted = (self._store.max_physical_offset, *self._progress())
        position, half_offset, op_offset = self._noted
        if not self._store.is_secure(position):
            return
        self._noted = None
        if half_offset or self._offsets.query(GROUP, TRANSACTION_HALF_TOPIC, QUEUE_ID) >= 0:
            self._offsets.commit(GROUP, TRANSACTION_HALF_TOPIC, QUEUE_ID, half_offset)
            self._offsets.commit(GROUP, TRANSACTION_OP_TOPIC, QUEUE_ID, op_offset)

    def _progress(self) -> tuple[int, int]:
        """End of the finished half messages, and the first op record still needed.

        A later start needs that record.
        """
        half_offset = next(iter(self._halves), self._half_end)
        ops = self._ops
        while ops and ops[0][1] < half_offset:
            ops.popleft()
        return half_offset, ops[0][0] if ops else self._op_end

    # --- the start

    def load(self) -> None:
        """Read the open half messages. Raises `StoreError`.

        They are read from both queues, and from the log behind them where needed. A
        crash can end the log between the record that ends a transaction and its op
        record, and Apache's broker writes the latter seconds later. Such a half message
        is taken as finished and put into `unended`.
        """
        ended = self._load_ops()
        copies = self._load_halves(ended)
        if not copies:
            return
        marked = self._ended_halves(min(places[0][0] for places in copies.values()))
        for key, places in copies.items():
            if not marked.isdisjoint(places):
                half = self._by_key[key]
                self.unended.append(half)
                self.forget(half)

    def _bounds(self, topic: str) -> tuple[int, int]:
        """From where to where a queue is to be read."""
        least, most = (
            self._store.min_offset(topic, QUEUE_ID),
            self._store.max_offset(topic, QUEUE_ID),
        )
        return min(max(self._offsets.query(GROUP, topic, QUEUE_ID), least), most), most

    def _read(self, topic: str, offset: int) -> ReceivedMessage | None:
        """One message of either queue; None when it cannot be read, which is noted."""
        place, problem = Place(topic, QUEUE_ID, offset), "the log does not have it"
        for _ in range(_LOAD_TRIES):
            try:
                unit = self._store.queue_unit(topic, QUEUE_ID, offset)
                if unit is not None:
                    place = Place(topic, QUEUE_ID, offset, unit[0], unit[1])
                record = None if unit is None else self._store.record_at(unit[0], unit[1])
            except StoreError as error:
                problem = str(error)
                continue
            try:
                if record is not None:
                    return decode_message(record, inflate=False)
            except ProtocolError as error:
                problem = str(error)
            break
        self.unread.append((place, problem))
        return None

    def _ended_halves(self, start: int) -> set[tuple[int, int]]:
        """The half messages ended by the log behind a position, if it can be read."""
        for _ in range(_LOAD_TRIES):
            try:
                return self._store.ended_halves(start)
            except StoreError as error:
                problem = error
        logger.error(
            "which transactions were ended without an op record is not known, as the log cannot "
            "be read; their producers are asked: %s",
            problem,
        )
        return set()

    def _load_ops(self) -> set[int]:
        ended: set[int] = set()
        offset, self._op_end = self._bounds(TRANSACTION_OP_TOPIC)
        for op_offset in range(offset, self._op_end):
            message = self._read(TRANSACTION_OP_TOPIC, op_offset)
            if message is not None and message.tags == _OP_TAG:
                listed = op_offsets(message.body)
                ended.update(listed)
                self._ops.append((op_offset, max(listed, default=-1)))
        return ended

    def _load_halves(self, ended: set[int]) -> dict[str, list[tuple[int, int]]]:
        """Read the open half messages.

        Returns, by transaction, the positions of all copies and the CRC of their
        bodies. A copy that was written when the power was cut may have lost some of its
        properties, which no CRC covers.
        """
        finished, whole = set[str](), set[str]()
        copies: dict[str, list[tuple[int, int]]] = {}
        offset, self._half_end = self._bounds(TRANSACTION_HALF_TOPIC)
        for half_offset in range(offset, self._half_end):
            message = self._read(TRANSACTION_HALF_TOPIC, half_offset)
            if message is None:
                continue
            text = message.properties_bytes.decode("utf-8", "replace")
            key = transaction_key(text, message.body_crc, message.commit_log_offset)
            if half_offset in ended:
                finished.add(key)
                known = self._by_key.get(key)
                if known is not None:
                    self.forget(known)
                copies.pop(key, None)
                continue
            if property_in_text(text, TRANSACTION_CHECK_TIMES) == RESUMED:
                finished.discard(key)
            if not _is_torn(message, text):
                whole.add(key)
            elif key in whole:
                continue  # the copy before it stands for the transaction
            if key not in finished:
                self.add(key, half_offset, message.commit_log_offset, message.store_size)
                copies.setdefault(key, []).append((message.commit_log_offset, message.body_crc))
        return copies
