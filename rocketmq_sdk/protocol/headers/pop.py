"""Pop consumption: codes above 32767, so JSON headers only.

The codecs of pops and acks are straight code; what is not as usual goes through the
table of the declaration, as in `send`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

from rocketmq_sdk.protocol.header import (
    INT_MAX,
    LONG_MAX,
    Header,
    Long,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    write_bool,
)
from rocketmq_sdk.protocol.limits import EXPRESSION, limited

if TYPE_CHECKING:
    from collections.abc import Mapping


def _unusual(ext: Mapping[str, str]) -> bool:
    """Whether a request has fields that only proxies and static topics write."""
    return "ns" in ext or "nsd" in ext or "oway" in ext or "lo" in ext


def _is_plain(header: RpcRequestHeader) -> bool:
    return (
        header.ns is None
        and header.nsd is None
        and header.oway is None
        and getattr(header, "lo", None) is None
    )


@attrs.define(kw_only=True)
class PopMessageRequestHeader(TopicQueueRequestHeader):
    """POP_MESSAGE (200050): queue id -1 means any queue, times in milliseconds."""

    consumer_group: str
    topic: str
    queue_id: int = 0
    max_msg_nums: int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: int = 0
    exp_type: str | None = None
    exp: str | None = limited(EXPRESSION, None)
    order: bool = False
    attempt_id: str | None = None

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        if not _is_plain(self):
            return super().to_ext()
        ext = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "maxMsgNums": str(self.max_msg_nums),
            "invisibleTime": str(self.invisible_time),
            "pollTime": str(self.poll_time),
            "bornTime": str(self.born_time),
            "initMode": str(self.init_mode),
            "order": write_bool(self.order),
        }
        if self.bname is not None:
            ext["bname"] = self.bname
        if self.exp_type is not None:
            ext["expType"] = self.exp_type
        if self.exp is not None:
            ext["exp"] = self.exp
        if self.attempt_id is not None:
            ext["attemptId"] = self.attempt_id
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold.

        Raises `FieldError` as `Header.from_ext` does.
        """
        get = ext.get
        queue_id, order = get("queueId", "0"), get("order")
        texts = (
            get("maxMsgNums", "0"),
            get("initMode", "0"),
            get("invisibleTime", "0"),
            get("pollTime", "0"),
            get("bornTime", "0"),
        )
        if not (
            "".join(texts).isdecimal() and (queue_id == "-1" or queue_id.isdecimal())
        ) or _unusual(ext):
            return super().from_ext(ext)
        new = cls.__new__(cls)
        try:
            new.consumer_group, new.topic = ext["consumerGroup"], ext["topic"]
            new.queue_id = int(queue_id)
            new.max_msg_nums, new.init_mode, new.invisible_time, new.poll_time, new.born_time = map(
                int, texts
            )
        except (KeyError, ValueError):
            return super().from_ext(ext)
        if (
            max(new.queue_id, new.max_msg_nums, new.init_mode) > INT_MAX
            or new.invisible_time | new.poll_time | new.born_time > LONG_MAX
        ):
            return super().from_ext(ext)
        new.exp_type, new.exp, new.attempt_id = get("expType"), get("exp"), get("attemptId")
        new.order = order is not None and (order == "true" or order.lower() == "true")
        new.bname = get("bname")
        new.ns = new.nsd = new.oway = new.lo = None
        return new


@attrs.define(kw_only=True)
class PopMessageResponseHeader(Header):
    """Answer to POP_MESSAGE.

    It holds times, and the offset texts from which receipt handles are made.
    """

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: int = 0
    rest_num: Long = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        ext = {
            "popTime": str(self.pop_time),
            "invisibleTime": str(self.invisible_time),
            "reviveQid": str(self.revive_qid),
            "restNum": str(self.rest_num),
        }
        if self.start_offset_info is not None:
            ext["startOffsetInfo"] = self.start_offset_info
        if self.msg_offset_info is not None:
            ext["msgOffsetInfo"] = self.msg_offset_info
        if self.order_count_info is not None:
            ext["orderCountInfo"] = self.order_count_info
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold.

        Raises `FieldError` as `Header.from_ext` does.
        """
        get = ext.get
        texts = (
            get("popTime", "0"),
            get("invisibleTime", "0"),
            get("restNum", "0"),
            get("reviveQid", "0"),
        )
        if not "".join(texts).isdecimal():
            return super().from_ext(ext)
        try:
            pop_time, invisible_time, rest_num, revive_qid = map(int, texts)
        except ValueError:
            return super().from_ext(ext)
        if pop_time | invisible_time | rest_num > LONG_MAX or revive_qid > INT_MAX:
            return super().from_ext(ext)
        return cls(
            pop_time=pop_time,
            invisible_time=invisible_time,
            revive_qid=revive_qid,
            rest_num=rest_num,
            start_offset_info=get("startOffsetInfo"),
            msg_offset_info=get("msgOffsetInfo"),
            order_count_info=get("orderCountInfo"),
        )


@attrs.define(kw_only=True)
class AckMessageRequestHeader(TopicQueueRequestHeader):
    """ACK_MESSAGE (200051): `extra_info` is the whole receipt handle."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        if self.bname is None or not _is_plain(self):
            return super().to_ext()
        return {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "extraInfo": self.extra_info,
            "offset": str(self.offset),
            "bname": self.bname,
        }

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold.

        Raises `FieldError` as `Header.from_ext` does.
        """
        try:
            queue_id, offset = ext["queueId"], ext["offset"]
            if not (queue_id + offset).isdecimal() or _unusual(ext):
                return super().from_ext(ext)
            new = cls.__new__(cls)
            new.consumer_group, new.topic, new.extra_info = (
                ext["consumerGroup"],
                ext["topic"],
                ext["extraInfo"],
            )
            new.queue_id, new.offset = int(queue_id), int(offset)
        except (KeyError, ValueError):
            return super().from_ext(ext)
        if new.queue_id > INT_MAX or new.offset > LONG_MAX:
            return super().from_ext(ext)
        new.bname = ext.get("bname")
        new.ns = new.nsd = new.oway = new.lo = None
        return new


@attrs.define(kw_only=True)
class ChangeInvisibleTimeRequestHeader(TopicQueueRequestHeader):
    """CHANGE_MESSAGE_INVISIBLETIME (200053).

    The new invisible duration is milliseconds from now. With `suspend` (5.5) the
    delivery that ends by it is not counted.
    """

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    invisible_time: Long
    suspend: bool | None = None


@attrs.define(kw_only=True)
class ChangeInvisibleTimeResponseHeader(Header):
    """Answer to CHANGE_MESSAGE_INVISIBLETIME: the parts of the new receipt handle."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: int = 0


@attrs.define(kw_only=True)
class NotificationRequestHeader(TopicQueueRequestHeader):
    """NOTIFICATION (200054): tell when a queue has messages to pop."""

    consumer_group: str
    topic: str
    queue_id: int = 0
    poll_time: Long = 0
    born_time: Long = 0
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = limited(EXPRESSION, None)


@attrs.define(kw_only=True)
class NotificationResponseHeader(Header):
    """Answer to NOTIFICATION."""

    has_msg: bool = False
    polling_full: bool = False


@attrs.define(kw_only=True)
class PollingInfoRequestHeader(TopicQueueRequestHeader):
    """POLLING_INFO (200055): how many requests are held for a queue."""

    consumer_group: str
    topic: str
    queue_id: int = 0


@attrs.define(kw_only=True)
class PollingInfoResponseHeader(Header):
    """Answer to POLLING_INFO."""

    polling_num: int = 0


@attrs.define(kw_only=True)
class PeekMessageRequestHeader(TopicQueueRequestHeader):
    """PEEK_MESSAGE (200052): read from the pop position without moving it."""

    topic: str
    queue_id: int = 0
    max_msg_nums: int = 0
    consumer_group: str


@attrs.define(kw_only=True)
class StatisticsMessagesRequestHeader(TopicQueueRequestHeader):
    """Count of messages between two times, used by proxies."""

    consumer_group: str
    topic: str
    queue_id: int = 0
    from_time: Long = 0
    to_time: Long = 0
