"""A client's batch on its way into the log: one pass over its bytes, one join.

Each message becomes a record of its own (`MessageExtBatchEncoder` of Apache RocketMQ
5.4.0). A record has what a batch has of a message (flag, body, properties), and a head
of which most is the same for all of them. So there is no object for a message: what
differs stands in lists, a list for each field.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from itertools import accumulate, chain, repeat
from itertools import count as count_from
from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.columns import rising_columns, set_columns
from rocketmq_sdk.errors import LocalProtocolError
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.message_codec import (
    BODY_CRC_MASK,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES_V1,
    POSITION_BODY_CRC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_OFFSET,
    record_form,
)
from rocketmq_sdk.protocol.property_crc import fill_property_crc, reserve_property_crc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.store.columns import Columns
    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes

_FRAME: Final = Struct(">iIIii")
_SHORT: Final = Struct(">h")
_LONGEST: Final = 0x7FFF
"""Bytes of the longest properties."""
_SHARED: Final = tuple(Struct(f">iq{born}sq{store}siq") for store in (8, 20) for born in (8, 20))
"""System flag to prepared offset, by the two host bits: the same in all records."""
_HEADS: Final = tuple(Struct(f">iIIiiqq{shared.size}si") for shared in _SHARED)
_WITHOUT_SIGN: Final = bytes(byte & 0x7F for byte in range(256))
_LEAST_ALIKE: Final = 16
"""So many messages are worth to be put together by columns."""
_MOST_ALIKE: Final = 4096
_FORMS: Final = 8
"""How many forms are remembered; the batches of a producer mostly have one."""


class ClientBatch:
    """The messages of a batch, in order; their number is its length.

    `sizes` and `positions` of their records are there once `encode` has run.
    """

    __slots__ = (
        "_bodies",
        "_flags",
        "_lengths",
        "_with_crc",
        "alike",
        "positions",
        "properties",
        "sizes",
    )

    def __init__(self, data: bytes, *, with_crc: bool = False) -> None:
        """Raises `RemoteProtocolError` as `decode_batch`.

        `with_crc`: the properties of the records end with the CRC of the record.
        """
        self._bodies: Sequence[bytes] = []
        self._flags: list[int] = []
        self._lengths: Sequence[bytes] = []
        """Lengths of the properties, as they stand in batch and record."""
        self._with_crc = with_crc
        self.properties: Sequence[bytes] = []
        """The stored properties of each message."""
        self.sizes: list[int] = []
        self.positions: Sequence[int] = []
        if not (same := self._split_alike(data)):
            self._split(data)
        self.alike = same and len(self) >= _LEAST_ALIKE
        """Whether many messages have the same lengths and flag."""
        if with_crc:
            self.properties = [
                reserve_property_crc(text, from_batch=True) for text in self.properties
            ]
            self._lengths = [_length(text) for text in self.properties]
            self.alike = False

    def _split_alike(self, data: bytes) -> bool:
        """`_split` of messages with the same lengths and flag, without a look at each.

        False, and nothing is done, where they are not alike.
        """
        start, size = _FRAME.size, len(data)
        if size < start:
            return False
        total, _magic, _crc, flag, length = _FRAME.unpack_from(data)
        rest = total - start - length - _SHORT.size
        if length < 0 or not 0 <= rest <= _LONGEST or size % total:
            return False
        count = size // total
        if count > _MOST_ALIKE:
            return False
        parts: tuple[bytes, ...] = _form(length, rest, count).unpack(data)
        heads, lengths = parts[::4], parts[2::4]
        if heads.count(heads[0]) != count or lengths.count(_SHORT.pack(rest)) != count:
            return False
        self._bodies, self._lengths, self.properties = parts[1::4], lengths, parts[3::4]
        self._flags = [flag] * count
        return True

    def _split(self, data: bytes) -> None:
        bodies, lengths = list[bytes](), list[bytes]()
        properties = list[bytes]()
        note_flag = self._flags.append
        unpack, unpack_short, head_size = _FRAME.unpack_from, _SHORT.unpack_from, _FRAME.size
        at, size = 0, len(data)
        self._bodies, self._lengths, self.properties = bodies, lengths, properties
        try:
            while at < size:
                total, _magic, _crc, flag, length = unpack(data, at)
                start = at + head_size
                body_end = start + length
                at += total
                text_start = body_end + 2
                (properties_length,) = unpack_short(data, body_end)
                if (
                    text_start + properties_length != at
                    or length < 0
                    or properties_length < 0
                    or at > size
                ):
                    break
                bodies.append(data[start:body_end])
                lengths.append(data[body_end:text_start])
                properties.append(data[text_start:at])
                note_flag(flag)
            else:
                return
        except struct.error:
            pass
        decode_batch(data)  # says what is wrong
        raise AssertionError("a batch is broken, and its codec can read it")

    def __len__(self) -> int:
        return len(self._flags)

    def encode(
        self,
        topic: bytes,
        position: int,
        *,
        queue_id: int,
        queue_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
    ) -> Bytes:
        """The records for the log from `position` on, the rest as in `encode_record`.

        Raises `LocalProtocolError` when a part does not fit its field.
        """
        bits = record_form(born_host, store_host)[1]
        kind = bits >> 4 & 3
        head = _HEADS[kind]
        magic, size_bytes = (MAGIC_V1, 1) if len(topic) <= MAX_TOPIC_BYTES_V1 else (MAGIC_V2, 2)
        middle = len(topic).to_bytes(size_bytes, "big") + topic
        self._place(position, head.size + len(middle) + _SHORT.size)
        try:
            shared = _SHARED[kind].pack(
                sys_flag & ~HOST_BITS | bits,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                0,
            )
            if self.alike:
                return self._join_alike(head, magic, queue_id, queue_offset, shared, middle)
            records = self._join_each(head, magic, queue_id, queue_offset, shared, middle)
        except struct.error as error:
            raise LocalProtocolError(
                f"a field of a record for topic {topic!r} does not fit: {error}"
            ) from error
        return self._filled(records) if self._with_crc else records

    def _join_alike(
        self,
        head: Struct,
        magic: int,
        queue_id: int,
        queue_offset: int,
        shared: bytes,
        middle: bytes,
    ) -> bytearray:
        """The records of messages that are alike.

        The head of the first one goes in front of all of them; then the numbers are set
        in which the heads differ. `middle` stands between body and length of the
        properties. Raises `struct.error`.
        """
        bodies, positions = self._bodies, self.positions
        count, size, body_size = len(bodies), self.sizes[0], len(bodies[0])
        first = head.pack(
            size, magic, 0, queue_id, self._flags[0], queue_offset, positions[0], shared, body_size
        )
        pieces = [first, b"", middle + self._lengths[0], b""] * count
        pieces[1::4] = bodies
        pieces[3::4] = self.properties
        records = bytearray().join(pieces)
        offsets = range(queue_offset, queue_offset + count)
        set_columns(records, size, POSITION_QUEUE_OFFSET, rising_columns(offsets))
        set_columns(records, size, POSITION_PHYSICAL_OFFSET, rising_columns(positions))
        set_columns(records, size, POSITION_BODY_CRC, _check_columns(bodies))
        return records

    def _join_each(
        self,
        head: Struct,
        magic: int,
        queue_id: int,
        queue_offset: int,
        shared: bytes,
        middle: bytes,
    ) -> bytes:
        """`_join_alike` for messages that are not."""
        crc32 = zlib.crc32
        heads = map(
            head.pack,
            self.sizes,
            repeat(magic),
            [crc32(body) & BODY_CRC_MASK for body in self._bodies],
            repeat(queue_id),
            self._flags,
            count_from(queue_offset),
            self.positions,
            repeat(shared),
            map(len, self._bodies),
        )
        middles = map(middle.__add__, self._lengths)
        return b"".join(
            chain.from_iterable(zip(heads, self._bodies, middles, self.properties, strict=False))
        )

    def _place(self, position: int, fixed: int) -> None:
        """Note where the records are that take so many bytes besides what differs."""
        bodies, properties = self._bodies, self.properties
        if self.alike:
            count, size = len(bodies), fixed + len(bodies[0]) + len(properties[0])
            self.sizes = [size] * count
            self.positions = range(position, position + count * size, size)
            return
        self.sizes = [
            fixed + len(body) + len(text) for body, text in zip(bodies, properties, strict=True)
        ]
        self.positions = list(accumulate(self.sizes, initial=position))[:-1]

    def _filled(self, records: bytes) -> bytes:
        """The records with the CRC in its place."""
        ends, view = accumulate(self.sizes), memoryview(records)
        return b"".join(
            [
                fill_property_crc(view[end - size : end])
                for size, end in zip(self.sizes, ends, strict=True)
            ]
        )


@lru_cache(_FORMS)
def _form(body_size: int, properties_size: int, count: int) -> Struct:
    """What takes apart messages that are alike, each into its numbers, its body, the
    length of its properties, and these.
    """
    return Struct(f"{_FRAME.size}s{body_size}s{_SHORT.size}s{properties_size}s" * count)


def _check_columns(bodies: Sequence[bytes]) -> Columns:
    """The CRCs of bodies, as records have them."""
    raw = struct.pack(f">{len(bodies)}I", *map(zlib.crc32, bodies))
    return ((0, raw[::4].translate(_WITHOUT_SIGN)), (1, raw[1::4]), (2, raw[2::4]), (3, raw[3::4]))


def _length(properties: bytes) -> bytes:
    """The length of properties. Raises `LocalProtocolError` for too long ones."""
    try:
        return _SHORT.pack(len(properties))
    except struct.error:
        raise LocalProtocolError(
            f"the properties of a message take {len(properties)} bytes with their CRC"
        ) from None
