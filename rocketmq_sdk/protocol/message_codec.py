"""Message records: the bytes that the commit log holds and that answers to pulls carry.

The layout is that of `MessageExtEncoder` and `MessageDecoder` of Apache RocketMQ 5.4.0:
a head of fixed size (88 bytes with two IPv4 hosts, 12 more for each IPv6 host), body,
topic, properties. The head is read and written with one precompiled struct for each of
the four host combinations, picked by two bits of the system flag; decoding fills the
slots of a message straight from the struct's tuple and leaves the properties as bytes.

Unlike Apache's client, which keeps what it read before the first record that it cannot
read, a broken record fails the whole batch: dropping the rest in silence would let a
consumer's offset pass messages that nobody saw.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.compression import DEFAULT_LIMIT, decompress
from rocketmq_sdk.protocol.flags import SysFlag

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

# Positions inside a record, for the store, which reads and patches single fields.
POSITION_TOTAL_SIZE: Final = 0
POSITION_MAGIC: Final = 4
POSITION_BODY_CRC: Final = 8
POSITION_QUEUE_ID: Final = 12
POSITION_FLAG: Final = 16
POSITION_QUEUE_OFFSET: Final = 20
POSITION_PHYSICAL_OFFSET: Final = 28
POSITION_SYS_FLAG: Final = 36
POSITION_BORN_TIMESTAMP: Final = 40
POSITION_BORN_HOST: Final = 48
POSITION_STORE_TIMESTAMP_V4: Final = 56
"""With an IPv4 born host; 12 more with an IPv6 one."""
IPV6_HOST_EXTRA: Final = 12
HOST_BITS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
HEAD_SIZE_V4: Final = 88
"""Bytes in front of the body with two IPv4 hosts, the body's length included."""
RECORD_OVERHEAD_V1: Final = 91
"""Bytes of a V1 record with two IPv4 hosts without body, topic and properties."""
MAX_TOPIC_BYTES_V1: Final = 127
"""Java reads the length byte of a short topic as a signed number."""
MAX_PROPERTIES: Final = 32767
BODY_CRC_MASK: Final = 0x7FFFFFFF
INFLATED_TOTAL_LIMIT: Final = 1 << 30
"""How many bytes the bodies of one batch may inflate to together."""

_COMPRESSED: Final = SysFlag.COMPRESSED
_NEED_UNWRAP: Final = SysFlag.NEED_UNWRAP

# total, magic, crc, queue id, flag, queue offset, physical offset, sys flag, born time,
# born host, store time, store host, reconsume times, prepared transaction offset, body
# length; index = the two host bits of the sys flag.
_HEADS: Final = tuple(
    Struct(f">iIIiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20)
)
HEAD_V4: Final = _HEADS[0]
_SHORT: Final = Struct(">h")
_TOTAL_AND_MAGIC: Final = Struct(">iI")
_MOST_READERS: Final = 256


def head_size(sys_flag: int) -> int:
    """Bytes of a record in front of its body."""
    return _HEADS[sys_flag >> 4 & 3].size


def body_crc(body: bytes) -> int:
    """The CRC of a stored body: CRC-32 without the highest bit, 0 for an empty body."""
    return zlib.crc32(body) & BODY_CRC_MASK


def record_size(
    topic_length: int, body_length: int, properties_length: int, *, host_bytes: int = 16
) -> int:
    """Bytes of the record for parts of these sizes.

    `host_bytes` is the size of both packed hosts together.
    """
    extra = 1 if topic_length > MAX_TOPIC_BYTES_V1 else 0
    return (
        RECORD_OVERHEAD_V1
        - 16
        + host_bytes
        + extra
        + body_length
        + topic_length
        + properties_length
    )


def _host_bits(born_host: bytes, store_host: bytes) -> int:
    bits = 0
    for host, bit in ((born_host, SysFlag.BORN_HOST_V6), (store_host, SysFlag.STORE_HOST_V6)):
        if len(host) == 20:
            bits |= bit
        elif len(host) != 8:
            raise LocalProtocolError(f"a packed host has 8 or 20 bytes, not {len(host)}")
    return bits


def record_form(born_host: bytes, store_host: bytes) -> tuple[Struct, int]:
    """The head of records with these packed hosts, and the host bits of their flags."""
    bits = _host_bits(born_host, store_host)
    return _HEADS[bits >> 4 & 3], bits


def encode_record(
    topic: bytes,
    body: bytes,
    properties: bytes,
    *,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
    body_crc: int | None = None,
) -> bytes:
    """The record of one message.

    Hosts are packed IP and port (8 or 20 bytes); the two host bits of `sys_flag` are
    set from them. `body_crc` saves computing the CRC again. A topic of more than 127
    bytes makes a V2 record. Raises `LocalProtocolError` when a part does not fit its
    field.
    """
    if len(born_host) == 8 and len(store_host) == 8:
        head = HEAD_V4
        sys_flag &= ~HOST_BITS
    else:
        sys_flag = sys_flag & ~HOST_BITS | _host_bits(born_host, store_host)
        head = _HEADS[sys_flag >> 4 & 3]
    body_length, topic_length, properties_length = len(body), len(topic), len(properties)
    if properties_length > MAX_PROPERTIES:
        raise LocalProtocolError(
            f"the properties take {properties_length} bytes, more than {MAX_PROPERTIES}"
        )
    magic, size_bytes = (MAGIC_V1, 1) if topic_length <= MAX_TOPIC_BYTES_V1 else (MAGIC_V2, 2)
    try:
        packed = head.pack(
            head.size + size_bytes + topic_length + 2 + body_length + properties_length,
            magic,
            zlib.crc32(body) & BODY_CRC_MASK if body_crc is None else body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_offset,
            body_length,
        )
    except struct.error as error:
        raise _misfit(topic, error) from error
    size = topic_length.to_bytes(size_bytes, "big")
    return b"".join((packed, body, size, topic, properties_length.to_bytes(2, "big"), properties))


def _misfit(topic: bytes, error: struct.error) -> LocalProtocolError:
    return LocalProtocolError(f"a field of a record for topic {topic!r} does not fit: {error}")


def decode_messages(
    data: bytes | bytearray | memoryview,
    *,
    broker_name: str = "",
    inflate: bool = True,
    unwrap: bool = True,
    kind: type[ReceivedMessage] = ReceivedMessage,
) -> list[ReceivedMessage]:
    """All messages of a body of records, as objects of the class `kind`.

    With `inflate` compressed bodies are inflated and lose their compressed flag; with
    `unwrap` inner batches are taken apart, else they stay one message each. Raises
    `RemoteProtocolError` naming position and reason for a broken record,
    `CodecMissingError` when a body needs a library that is not installed; either way no
    message is given out.
    """
    special = (_COMPRESSED if inflate else 0) | (_NEED_UNWRAP if unwrap else 0)
    whole = data if type(data) is bytes else bytes(data)
    return _decode_all(whole, broker_name, special, kind)


# One loop, because a call for each record would slow down every pull.
def _decode_all(
    data: bytes, broker_name: str, special: int, kind: type[ReceivedMessage]
) -> list[ReceivedMessage]:
    size, position, before, budget = len(data), 0, 0, INFLATED_TOTAL_LIMIT
    messages, topic, topic_raw, new = list[ReceivedMessage](), "", b"", object.__new__
    append, unpack_v4, unpack_short = messages.append, HEAD_V4.unpack_from, _SHORT.unpack_from
    try:
        while position < size:
            message = new(kind)
            (
                total,
                magic,
                message.body_crc,
                message.queue_id,
                message.flag,
                message.offset,
                message.commit_log_offset,
                sys_flag,
                message.born_timestamp,
                message.born_host,
                message.store_timestamp,
                message.store_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                body_length,
            ) = unpack_v4(data, position)
            body_start = position + HEAD_SIZE_V4
            if sys_flag & HOST_BITS:
                body_start, body_length = _read_wide_head(message, data, position, sys_flag)
            body_end = body_start + body_length
            if magic == MAGIC_V1:
                topic_start = body_end + 1  # behind a length that is a signed byte
                topic_end = topic_start + (data[body_end] ^ 0x80) - 0x80
            elif magic == MAGIC_V2:
                topic_start = body_end + 2
                topic_end = topic_start + unpack_short(data, body_end)[0]
            else:
                raise _broken(data, position)
            text_start, end = topic_end + 2, position + total
            if text_start + unpack_short(data, topic_end)[0] != end or body_length < 0:
                raise _broken(data, position)
            if not topic_start <= topic_end < text_start <= end <= size:
                raise _broken(data, position)
            raw = data[topic_start:topic_end]
            if raw != topic_raw:
                topic, topic_raw = raw.decode("utf-8", "replace"), raw
            message.topic, message.broker_name, message.sys_flag = topic, broker_name, sys_flag
            message.body, message.store_size = data[body_start:body_end], total
            message._properties_raw, message._properties = data[text_start:end], None
            if sys_flag & special:
                budget = _append_special(messages, message, sys_flag & special, budget, position)
            else:
                append(message)
            position = end
            if total == before and not sys_flag & special:
                position = _append_alike(messages, raw, data, end, special | HOST_BITS)
            before = total
    except (struct.error, IndexError):
        raise _broken(data, position) from None
    return messages


_Reader = Callable[[bytes, int], tuple[Any, ...]]
_readers: Final[dict[tuple[int, int, int], tuple[_Reader, int]]] = {}


def _reader(body_length: int, topic_length: int, properties_length: int) -> tuple[_Reader, int]:
    """What reads a whole V1 record with parts of these lengths, and its size."""
    lengths = (body_length, topic_length, properties_length)
    found = _readers.get(lengths)
    if found is None:
        if len(_readers) >= _MOST_READERS:
            _readers.clear()
        form = Struct(f"{HEAD_V4.format}{body_length}sB{topic_length}sh{properties_length}s")
        found = _readers[lengths] = (form.unpack_from, form.size)
    return found


# Most topics have messages of the same size. Read in one go with their parts, they take
# less than three quarters of the time.
def _append_alike(
    messages: list[ReceivedMessage], topic_raw: bytes, data: bytes, position: int, odd: int
) -> int:
    """Read the records at a position that have parts as long as the last message's.

    They have its topic too, and none of the system flags `odd`. Returns where the first
    other one begins, of which nothing is known.
    """
    model, new, append = messages[-1], object.__new__, messages.append
    kind, topic, broker_name = type(model), model.topic, model.broker_name
    lengths = len(model.body), len(topic_raw), len(model._properties_raw)
    unpack, size = _reader(*lengths)
    for _ in range((len(data) - position) // size):
        message = new(kind)
        (
            total,
            magic,
            message.body_crc,
            message.queue_id,
            message.flag,
            message.offset,
            message.commit_log_offset,
            sys_flag,
            message.born_timestamp,
            message.born_host,
            message.store_timestamp,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body_length,
            message.body,
            topic_length,
            raw,
            properties_length,
            message._properties_raw,
        ) = unpack(data, position)
        if (
            total != size
            or magic != MAGIC_V1
            or sys_flag & odd
            or (body_length, topic_length, properties_length) != lengths
            or raw != topic_raw
        ):
            break
        message.topic, message.broker_name, message.sys_flag = topic, broker_name, sys_flag
        message.store_size, message._properties = total, None
        append(message)
        position += size
    return position


def decode_message(
    data: bytes | bytearray | memoryview,
    offset: int = 0,
    *,
    broker_name: str = "",
    inflate: bool = True,
) -> ReceivedMessage:
    """The message of the record that starts at `offset`.

    What follows the record is not looked at; an inner batch stays one message.

    Raises like `decode_messages`.
    """
    available = len(data) - offset
    if offset < 0 or available < _TOTAL_AND_MAGIC.size:
        raise RemoteProtocolError(
            f"no record starts at {offset}: {max(available, 0)} bytes are left"
        )
    total, _magic = _TOTAL_AND_MAGIC.unpack_from(data, offset)
    if not 0 < total <= available:
        raise RemoteProtocolError(
            f"the record at {offset} claims {total} bytes; {available} are left"
        )
    return decode_messages(
        data[offset : offset + total], broker_name=broker_name, inflate=inflate, unwrap=False
    )[0]


def _read_wide_head(
    message: ReceivedMessage, data: bytes, position: int, sys_flag: int
) -> tuple[int, int]:
    """Read the head of a record with an IPv6 host again.

    Returns start and length of the body.
    """
    head = _HEADS[sys_flag >> 4 & 3]
    fields = head.unpack_from(data, position)
    (
        message.born_host,
        message.store_timestamp,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    ) = fields[9:14]
    return position + head.size, fields[14]


def _append_special(
    messages: list[ReceivedMessage], message: ReceivedMessage, bits: int, budget: int, position: int
) -> int:
    """Inflate a body, or take an inner batch apart.

    Returns how many bytes the call may still inflate to.
    """
    if bits & _COMPRESSED:
        try:
            message.body = decompress(
                message.body, message.sys_flag, limit=min(budget, DEFAULT_LIMIT)
            )
        except RemoteProtocolError as error:
            raise RemoteProtocolError(
                f"the body of the record at {position} cannot be inflated: {error}"
            ) from error
        message.sys_flag &= ~_COMPRESSED
        budget -= len(message.body)
    if bits & _NEED_UNWRAP and message.sys_flag & SysFlag.INNER_BATCH:
        try:
            messages.extend(unwrap_inner_batch(message))
        except RemoteProtocolError as error:
            raise RemoteProtocolError(
                f"the record at {position} holds a broken inner batch: {error}"
            ) from error
    else:
        messages.append(message)
    return budget


def unwrap_inner_batch(container: ReceivedMessage) -> list[ReceivedMessage]:
    """The messages inside an inner batch.

    Element k has the container's queue offset plus k and its own flag, body and
    properties.

    All else is the container's, save the flag that asks for unwrapping. Raises
    `RemoteProtocolError` when the body is no batch.
    """
    messages: list[ReceivedMessage] = []
    for index, (flag, body, properties) in enumerate(decode_batch(container.body)):
        message = object.__new__(type(container))
        message.topic = container.topic
        message.broker_name = container.broker_name
        message.queue_id = container.queue_id
        message.offset = container.offset + index
        message.commit_log_offset = container.commit_log_offset
        message.body = body
        message.body_crc = body_crc(body)
        message.flag = flag
        message.sys_flag = container.sys_flag & ~_NEED_UNWRAP
        message.born_timestamp = container.born_timestamp
        message.born_host = container.born_host
        message.store_timestamp = container.store_timestamp
        message.store_host = container.store_host
        message.reconsume_times = container.reconsume_times
        message.prepared_transaction_offset = container.prepared_transaction_offset
        message.store_size = container.store_size
        message._properties_raw = properties
        message._properties = None
        messages.append(message)
    return messages


def _broken(data: bytes, position: int) -> RemoteProtocolError:
    """Why the record at a position cannot be read."""
    left = len(data) - position
    where = f"the record at {position}"
    if left < RECORD_OVERHEAD_V1:
        return RemoteProtocolError(
            f"{where} is cut off: {left} bytes are left, a record takes at least "
            f"{RECORD_OVERHEAD_V1}"
        )
    total, magic = _TOTAL_AND_MAGIC.unpack_from(data, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return RemoteProtocolError(f"{where} has the magic {magic:08x}, which no message has")
    if not RECORD_OVERHEAD_V1 <= total <= left:
        return RemoteProtocolError(f"{where} claims {total} bytes; {left} are left")
    return RemoteProtocolError(
        f"{where} claims {total} bytes, but the lengths of its body, topic and properties do not "
        "add up to them"
    )
