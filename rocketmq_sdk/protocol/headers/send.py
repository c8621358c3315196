"""Sending messages, sending them back, pushing replies.

The request of SEND_MESSAGE_V2 and the answer are the hottest headers of producers and
brokers, so their codecs are straight code; whatever is not as usual (signs, base
fields, missing fields) goes through the table of the declaration, which also words the
errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

from rocketmq_sdk.protocol.header import (
    INT_MAX,
    LONG_MAX,
    WIRE,
    Header,
    Long,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    write_bool,
)
from rocketmq_sdk.protocol.limits import PROPERTIES, limited

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.define(kw_only=True)
class SendMessageRequestHeader(TopicQueueRequestHeader):
    """SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324), with long field names.

    A negative queue id lets the broker choose; `born_timestamp` is the sender's clock
    in milliseconds.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = limited(PROPERTIES, None)
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: int | None = None


@attrs.define(kw_only=True)
class SendMessageRequestHeaderV2(TopicQueueRequestHeader):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325).

    They have the fields of V1 under one-letter names.

    The attributes have V1's names; `bname` travels as `n`, the base field of that name
    is `base_bname`.
    """

    producer_group: str = attrs.field(metadata={WIRE: "a"})
    topic: str = attrs.field(metadata={WIRE: "b"})
    default_topic: str = attrs.field(metadata={WIRE: "c"})
    default_topic_queue_nums: int = attrs.field(metadata={WIRE: "d"})
    queue_id: int = attrs.field(metadata={WIRE: "e"})
    sys_flag: int = attrs.field(metadata={WIRE: "f"})
    born_timestamp: Long = attrs.field(metadata={WIRE: "g"})
    flag: int = attrs.field(metadata={WIRE: "h"})
    properties: str | None = limited(PROPERTIES, None, wire="i")
    reconsume_times: int | None = attrs.field(default=None, metadata={WIRE: "j"})
    unit_mode: bool | None = attrs.field(default=None, metadata={WIRE: "k"})
    max_reconsume_times: int | None = attrs.field(default=None, metadata={WIRE: "l"})
    batch: bool | None = attrs.field(default=None, metadata={WIRE: "m"})
    bname: str | None = attrs.field(default=None, metadata={WIRE: "n"})
    base_bname: str | None = attrs.field(default=None, metadata={WIRE: "bname"})

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        ext = {
            "a": self.producer_group,
            "b": self.topic,
            "c": self.default_topic,
            "d": str(self.default_topic_queue_nums),
            "e": str(self.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_timestamp),
            "h": str(self.flag),
        }
        if self.properties is not None:
            ext["i"] = self.properties
        if self.reconsume_times is not None:
            ext["j"] = str(self.reconsume_times)
        if self.unit_mode is not None:
            ext["k"] = "true" if self.unit_mode else "false"
        if self.max_reconsume_times is not None:
            ext["l"] = str(self.max_reconsume_times)
        if self.batch is not None:
            ext["m"] = "true" if self.batch else "false"
        if self.bname is not None:
            ext["n"] = self.bname
        if (
            self.ns is not None
            or self.nsd is not None
            or self.base_bname is not None
            or self.oway is not None
            or self.lo is not None
        ):
            self._add_base_fields(ext)
        return ext

    def _add_base_fields(self, ext: dict[str, str]) -> None:
        if self.ns is not None:
            ext["ns"] = self.ns
        if self.base_bname is not None:
            ext["bname"] = self.base_bname
        for name, value in (("nsd", self.nsd), ("oway", self.oway), ("lo", self.lo)):
            if value is not None:
                ext[name] = write_bool(value)

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold.

        Raises `FieldError` as `Header.from_ext` does.
        """
        get = ext.get
        try:
            queue_nums, queue_id, sys_flag, born, flag = (
                ext["d"],
                ext["e"],
                ext["f"],
                ext["g"],
                ext["h"],
            )
            reconsume, most, unit_mode, batch = get("j"), get("l"), get("k"), get("m")
            if (
                not (
                    queue_nums
                    + queue_id
                    + sys_flag
                    + born
                    + flag
                    + (reconsume or "")
                    + (most or "")
                ).isdecimal()
                or "nsd" in ext
                or "ns" in ext
            ):
                return super().from_ext(ext)
            new = cls.__new__(cls)
            new.producer_group, new.topic, new.default_topic = ext["a"], ext["b"], ext["c"]
            new.default_topic_queue_nums = int(queue_nums)
            new.queue_id = int(queue_id)
            new.sys_flag = int(sys_flag)
            new.born_timestamp = int(born)
            new.flag = int(flag)
            new.reconsume_times = None if reconsume is None else int(reconsume)
            new.max_reconsume_times = None if most is None else int(most)
        except (KeyError, ValueError):
            return super().from_ext(ext)
        numbers = (
            new.default_topic_queue_nums
            | new.queue_id
            | new.sys_flag
            | new.flag
            | (new.reconsume_times or 0)
            | (new.max_reconsume_times or 0)
        )
        if numbers > INT_MAX or new.born_timestamp > LONG_MAX or "oway" in ext or "lo" in ext:
            return super().from_ext(ext)
        new.properties = get("i")
        new.unit_mode = (
            None if unit_mode is None else unit_mode == "true" or unit_mode.lower() == "true"
        )
        new.batch = None if batch is None else batch == "true" or batch.lower() == "true"
        new.bname = get("n")
        new.base_bname = get("bname")
        new.ns = new.nsd = new.oway = new.lo = None
        return new


@attrs.define(kw_only=True)
class SendMessageResponseHeader(Header):
    """Answer to all sends.

    Offset message id (for a batch a list with commas), queue, queue offset of the first
    message.

    `transaction_id` is the message's unique key, `batch_uniq_id` stands for an inner
    batch, `recall_handle` for a delayed message.
    """

    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        ext = {
            "msgId": self.msg_id,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
        }
        if self.transaction_id is not None:
            ext["transactionId"] = self.transaction_id
        if self.batch_uniq_id is not None:
            ext["batchUniqId"] = self.batch_uniq_id
        if self.recall_handle is not None:
            ext["recallHandle"] = self.recall_handle
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold.

        Raises `FieldError` as `Header.from_ext` does.
        """
        new = cls.__new__(cls)
        try:
            queue_id, queue_offset = ext["queueId"], ext["queueOffset"]
            if not (queue_id + queue_offset).isdecimal():
                return super().from_ext(ext)
            new.msg_id = ext["msgId"]
            new.queue_id = int(queue_id)
            new.queue_offset = int(queue_offset)
        except (KeyError, ValueError):
            return super().from_ext(ext)
        if new.queue_id > INT_MAX or new.queue_offset > LONG_MAX:
            return super().from_ext(ext)
        get = ext.get
        new.transaction_id = get("transactionId")
        new.batch_uniq_id = get("batchUniqId")
        new.recall_handle = get("recallHandle")
        return new


@attrs.define(kw_only=True)
class ConsumerSendMsgBackRequestHeader(RpcRequestHeader):
    """CONSUMER_SEND_MSG_BACK (36): deliver a consumed message again later.

    `offset` is its commit log offset.

    A delay level below 0 means the dead letter topic, 0 lets the broker choose.
    """

    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


@attrs.define(kw_only=True)
class ReplyMessageRequestHeader(TopicQueueRequestHeader):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), broker to requester: a reply.

    Hosts are `ip:port`.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long = 0
