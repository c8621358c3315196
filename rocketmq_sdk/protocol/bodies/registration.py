"""Brokers that register at name servers."""

from __future__ import annotations

import zlib
from struct import Struct, error
from typing import Final

import attrs

from rocketmq_sdk.codes import CLIENT_VERSION, VERSION_COMPRESSED_REGISTRATION_MAPPING
from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json
from rocketmq_sdk.protocol.limits import MANY
from rocketmq_sdk.protocol.text import encode_text


@attrs.frozen
class BrokerMemberGroup(Body):
    """The addresses of the brokers that share a name."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Long, str] = attrs.field(factory=dict)


@attrs.frozen
class GetBrokerMemberGroupResponseBody(Body):
    """Answer to GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup | None = None


_INT = Struct(">i")
INFLATED_MAX: Final = 16 * 1024 * 1024
"""Bytes that a compressed registration may inflate to."""
_LEVEL: Final = 9


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

        Raises `RemoteProtocolError` when it is broken, inflates to more than 16 MiB or
        has more topics than `MANY` allows.
        """
        reader = _Chunks(_inflate(data))
        data_version = DataVersion.decode(reader.chunk())
        table: dict[str, TopicConfig] = {}
        for _ in range(reader.entries()):
            config = TopicConfig.decode_text(str(reader.chunk(), "utf-8", "replace"))
            table[config.topic_name] = config
        filter_servers = decode_json(reader.chunk())
        if not isinstance(filter_servers, list):
            raise FieldError("RegisterBrokerBody: the filter servers are not an array")
        mappings: dict[str, object] = {}
        if version >= VERSION_COMPRESSED_REGISTRATION_MAPPING:
            for _ in range(reader.entries()):
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

    def entries(self) -> int:
        number = self.count()
        if number > MANY.most:
            raise RemoteProtocolError(
                f"a compressed registration has {number} topics, the limit is {MANY.most}"
            )
        return number

    def chunk(self) -> bytes:
        length = self.count()
        self._at += length
        return self._data[self._at - length : self._at]
