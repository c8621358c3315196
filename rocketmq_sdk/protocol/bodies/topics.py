"""Topics: their configuration, versions of tables, lists, positions of their queues,
and their registration at the name server.
"""

from __future__ import annotations

import zlib
from struct import Struct, error
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.codes import CLIENT_VERSION, VERSION_COMPRESSED_REGISTRATION_MAPPING
from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long, parse_int
from rocketmq_sdk.protocol.json_dialect import decode_json, encode_json
from rocketmq_sdk.protocol.text import encode_text

if TYPE_CHECKING:
    from collections.abc import Mapping

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_INT = Struct(">i")
INFLATED_MAX: Final = 256 * 1024 * 1024
_LEVEL: Final = 9


@attrs.frozen
class DataVersion(Body):
    """The version of a table; equal only when all three members are. `timestamp` is
    epoch milliseconds.
    """

    state_version: Long = 0
    timestamp: Long = 0
    counter: Long = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """The version after a change at a time."""
        return DataVersion(state_version, now_ms, self.counter + 1)


@attrs.frozen
class TopicConfig(Body):
    """A topic as a broker keeps it. `perm` holds `Permission` bits, `attributes` texts
    such as `message.type`.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = attrs.field(factory=dict)

    def encode_text(self) -> str:
        """The one-line form of compressed registrations (`TopicConfig.encode`); `order`
        and `topic_sys_flag` are lost in it.
        """
        numbers = f"{self.read_queue_nums} {self.write_queue_nums} {self.perm}"
        return (
            f"{self.topic_name} {numbers} {self.topic_filter_type} "
            f"{encode_json(self.attributes).decode()}"
        )

    @classmethod
    def decode_text(cls, text: str) -> TopicConfig:
        """The topic out of the one-line form; attributes that cannot be read are
        dropped, as Apache does it.

        Raises `FieldError` when less than five words are there or a number is none.
        """
        words = text.split(" ")
        if len(words) < 5 or words[4] not in FILTER_TYPES:
            raise FieldError(f"{text[:80]!r} is not a topic")
        try:
            reading, writing, perm = (parse_int(word) for word in words[1:4])
        except ValueError:
            raise FieldError(f"{text[:80]!r} is not a topic") from None
        attributes: dict[str, str] = {}
        if len(words) > 5:
            try:
                decoded = decode_json(words[5].encode())
            except RemoteProtocolError:
                decoded = None
            if isinstance(decoded, dict):
                attributes = {str(name): str(value) for name, value in decoded.items()}
        return cls(words[0], reading, writing, perm, words[4], attributes=attributes)


@attrs.frozen
class TopicConfigSerializeWrapper(Body):
    """A table of topics with its version. The mapping members belong to static topics
    and are handed on as they came; 4.9 peers leave them out.
    """

    topic_config_table: dict[str, TopicConfig] = attrs.field(factory=dict)
    data_version: DataVersion | None = None
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: object | None = None
    topic_queue_mapping_info_map: object | None = None


@attrs.frozen
class CreateTopicListRequestBody(Body):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: tuple[TopicConfig, ...] = ()


@attrs.frozen
class TopicList(Body):
    """A list of topic names, and the address of a broker where more can be asked
    for.
    """

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


@attrs.frozen
class KVTable(Body):
    """Names and texts."""

    table: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, object]) -> KVTable:
        """A table with each value as its text."""
        return cls({name: str(value) for name, value in table.items()})


@attrs.frozen
class TopicOffset(Body):
    """The ends of a queue and the time of its last message."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


@attrs.frozen
class TopicStatsTable(Body):
    """Answer to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = attrs.field(factory=dict)
    topic_put_tps: float = 0.0


@attrs.frozen
class RegisterBrokerBody(Body):
    """Body of REGISTER_BROKER (103)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = attrs.field(
        factory=TopicConfigSerializeWrapper
    )
    filter_server_list: tuple[str, ...] = ()

    def encode_compressed(self, version: int = CLIENT_VERSION) -> bytes:
        """The compressed form as peers of a version write it."""
        wrapper = self.topic_config_serialize_wrapper
        parts = [
            _chunk((wrapper.data_version or DataVersion()).encode()),
            _INT.pack(len(wrapper.topic_config_table)),
        ]
        parts += [
            _chunk(encode_text(config.encode_text()))
            for config in wrapper.topic_config_table.values()
        ]
        parts.append(_chunk(encode_json(list(self.filter_server_list))))
        if version >= VERSION_COMPRESSED_REGISTRATION_MAPPING:
            mappings = wrapper.topic_queue_mapping_info_map
            infos = list(mappings.values()) if isinstance(mappings, dict) else []
            parts.append(_INT.pack(len(infos)))
            parts += [_chunk(encode_json(info)) for info in infos]
        return zlib.compress(b"".join(parts), _LEVEL)

    @classmethod
    def decode_compressed(cls, data: bytes, version: int = CLIENT_VERSION) -> RegisterBrokerBody:
        """The registration out of the compressed form that a peer of a version wrote.

        Raises `RemoteProtocolError` when it is broken or inflates to more than 256 MiB.
        """
        reader = _Chunks(_inflate(data))
        data_version = DataVersion.decode(reader.chunk())
        table: dict[str, TopicConfig] = {}
        for _ in range(reader.count()):
            config = TopicConfig.decode_text(str(reader.chunk(), "utf-8", "replace"))
            table[config.topic_name] = config
        filter_servers = decode_json(reader.chunk())
        if not isinstance(filter_servers, list):
            raise FieldError("RegisterBrokerBody: the filter servers are not an array")
        mappings: dict[str, object] = {}
        if version >= VERSION_COMPRESSED_REGISTRATION_MAPPING:
            for _ in range(reader.count()):
                info = decode_json(reader.chunk())
                if isinstance(info, dict):
                    mappings[str(info.get("topic"))] = info
        wrapper = TopicConfigSerializeWrapper(
            table, data_version, topic_queue_mapping_info_map=mappings
        )
        return cls(wrapper, tuple(str(server) for server in filter_servers))


def _chunk(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, INFLATED_MAX)
    except zlib.error as broken:
        raise RemoteProtocolError(f"a compressed registration is broken: {broken}") from None
    if not inflater.eof:
        raise RemoteProtocolError("a compressed registration is cut off or too long")
    return inflated


class _Chunks:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        try:
            (number,) = _INT.unpack_from(self._data, self._at)
        except error:
            raise RemoteProtocolError("a compressed registration ends too early") from None
        self._at += 4
        if not 0 <= number <= len(self._data) - self._at:
            raise RemoteProtocolError(
                f"a compressed registration announces {number} where {len(self._data) - self._at} "
                "bytes are left"
            )
        return int(number)

    def chunk(self) -> bytes:
        length = self.count()
        self._at += length
        return self._data[self._at - length : self._at]
