"""Topics: their configuration, versions of tables, lists."""

from __future__ import annotations

from typing import Final

import attrs

from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long, parse_int
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json
from rocketmq_sdk.protocol.limits import LIMIT, MANY, PERMISSION, QUEUES, limited

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


@attrs.frozen
class DataVersion(Body):
    """The version of a table; equal only when all three members are.

    `timestamp` is epoch milliseconds.
    """

    state_version: Long = 0
    timestamp: Long = 0
    counter: Long = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """The version after a change at a time."""
        return DataVersion(state_version, now_ms, self.counter + 1)


@explained
@attrs.frozen
class TopicConfig(Body):
    """A topic as a broker keeps it.

    `perm` holds `Permission` bits, `attributes` texts such as `message.type`.
    """

    topic_name: str
    read_queue_nums: int = limited(QUEUES, 16)
    write_queue_nums: int = limited(QUEUES, 16)
    perm: int = limited(PERMISSION, 6)
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = attrs.field(factory=dict)

    def encode_text(self) -> str:
        """The one-line form of compressed registrations (`TopicConfig.encode`).

        `order` and `topic_sys_flag` are lost in it.
        """
        numbers = f"{self.read_queue_nums} {self.write_queue_nums} {self.perm}"
        return (
            f"{self.topic_name} {numbers} {self.topic_filter_type} "
            f"{encode_json(self.attributes).decode()}"
        )

    @classmethod
    def decode_text(cls, text: str) -> TopicConfig:
        """The topic out of the one-line form.

        Attributes that cannot be read are dropped, as Apache does it.

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
    """A table of topics with its version.

    The mapping members belong to static topics and are handed on as they came; 4.9
    peers leave them out.
    """

    topic_config_table: dict[str, TopicConfig] = attrs.field(factory=dict, metadata={LIMIT: MANY})
    data_version: DataVersion | None = None
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: object | None = limited(MANY, None)
    topic_queue_mapping_info_map: object | None = limited(MANY, None)


@attrs.frozen
class CreateTopicListRequestBody(Body):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: tuple[TopicConfig, ...] = ()


@attrs.frozen
class TopicList(Body):
    """A list of topic names.

    `broker_addr` is the address of a broker that knows more of them.
    """

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None
