"""Pulling messages.

The codecs are straight code; what is not as usual goes through the table of the
declaration, as in `send`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

from rocketmq_sdk.protocol.header import (
    INT_MAX,
    LONG_MAX,
    Header,
    Long,
    TopicQueueRequestHeader,
    write_bool,
)
from rocketmq_sdk.protocol.limits import EXPRESSION, limited

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.define(kw_only=True)
class PullMessageRequestHeader(TopicQueueRequestHeader):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

    `sys_flag` holds `PullSysFlag` bits, `suspend_timeout_millis` how long the broker
    may hold the request, `sub_version` the version of the subscription.
    (`proxy_froward_client_id` is spelled as on the wire.)
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = limited(EXPRESSION, None)
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        ext = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "maxMsgNums": str(self.max_msg_nums),
            "sysFlag": str(self.sys_flag),
            "commitOffset": str(self.commit_offset),
            "suspendTimeoutMillis": str(self.suspend_timeout_millis),
            "subVersion": str(self.sub_version),
        }
        if self.subscription is not None:
            ext["subscription"] = self.subscription
        if self.expression_type is not None:
            ext["expressionType"] = self.expression_type
        if self.max_msg_bytes is not None:
            ext["maxMsgBytes"] = str(self.max_msg_bytes)
        if self.request_source is not None:
            ext["requestSource"] = str(self.request_source)
        if self.proxy_froward_client_id is not None:
            ext["proxyFrowardClientId"] = self.proxy_froward_client_id
        if self.bname is not None:
            ext["bname"] = self.bname
        if self.ns is not None:
            ext["ns"] = self.ns
        for name, value in (("nsd", self.nsd), ("oway", self.oway), ("lo", self.lo)):
            if value is not None:
                ext[name] = write_bool(value)
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold.

        Raises `FieldError` as `Header.from_ext` does.
        """
        get = ext.get
        try:
            queue_id, offset, most, sys_flag = (
                ext["queueId"],
                ext["queueOffset"],
                ext["maxMsgNums"],
                ext["sysFlag"],
            )
            commit, suspend, version = (
                ext["commitOffset"],
                ext["suspendTimeoutMillis"],
                ext["subVersion"],
            )
            most_bytes, source = get("maxMsgBytes"), get("requestSource")
            if (
                not (
                    queue_id
                    + offset
                    + most
                    + sys_flag
                    + commit
                    + suspend
                    + version
                    + (most_bytes or "")
                ).isdecimal()
                or source is not None
            ):
                return super().from_ext(ext)
            new = cls.__new__(cls)
            new.consumer_group, new.topic = ext["consumerGroup"], ext["topic"]
            new.queue_id, new.queue_offset = int(queue_id), int(offset)
            new.max_msg_nums, new.sys_flag = int(most), int(sys_flag)
            new.commit_offset, new.sub_version = int(commit), int(version)
            new.suspend_timeout_millis = int(suspend)
            new.max_msg_bytes = None if most_bytes is None else int(most_bytes)
        except (KeyError, ValueError):
            return super().from_ext(ext)
        if (
            new.queue_id | new.max_msg_nums | new.sys_flag | (new.max_msg_bytes or 0) > INT_MAX
            or new.queue_offset | new.commit_offset | new.suspend_timeout_millis | new.sub_version
            > LONG_MAX
            or "nsd" in ext
            or "oway" in ext
            or "lo" in ext
        ):
            return super().from_ext(ext)
        new.subscription = get("subscription")
        new.expression_type = get("expressionType")
        new.request_source = None
        new.proxy_froward_client_id = get("proxyFrowardClientId")
        new.ns, new.bname = get("ns"), get("bname")
        new.nsd = new.oway = new.lo = None
        return new


@attrs.define(kw_only=True)
class PullMessageResponseHeader(Header):
    """Answer to pulls.

    It names the broker id to ask next, the next offset, and the ends of the queue.

    `offset_delta` is added to each queue offset of static topics; `forbidden_type` says
    what forbids reading.
    """

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        ext = {
            "suggestWhichBrokerId": str(self.suggest_which_broker_id),
            "nextBeginOffset": str(self.next_begin_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
        }
        if self.offset_delta is not None:
            ext["offsetDelta"] = str(self.offset_delta)
        if self.topic_sys_flag is not None:
            ext["topicSysFlag"] = str(self.topic_sys_flag)
        if self.group_sys_flag is not None:
            ext["groupSysFlag"] = str(self.group_sys_flag)
        if self.forbidden_type is not None:
            ext["forbiddenType"] = str(self.forbidden_type)
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold.

        Raises `FieldError` as `Header.from_ext` does.
        """
        get = ext.get
        try:
            broker_id, following = ext["suggestWhichBrokerId"], ext["nextBeginOffset"]
            low, high = ext["minOffset"], ext["maxOffset"]
            delta, topic_flag, group_flag = (
                get("offsetDelta", "0"),
                get("topicSysFlag", "0"),
                get("groupSysFlag", "0"),
            )
            if (
                not (
                    broker_id + following + low + high + delta + topic_flag + group_flag
                ).isdecimal()
                or "forbiddenType" in ext
            ):
                return super().from_ext(ext)
            new = cls.__new__(cls)
            new.suggest_which_broker_id, new.next_begin_offset = int(broker_id), int(following)
            new.min_offset, new.max_offset = int(low), int(high)
            new.offset_delta = int(delta) if "offsetDelta" in ext else None
            new.topic_sys_flag = int(topic_flag) if "topicSysFlag" in ext else None
            new.group_sys_flag = int(group_flag) if "groupSysFlag" in ext else None
        except (KeyError, ValueError):
            return super().from_ext(ext)
        if (
            new.suggest_which_broker_id
            | new.next_begin_offset
            | new.min_offset
            | new.max_offset
            | (new.offset_delta or 0)
            > LONG_MAX
            or (new.topic_sys_flag or 0) | (new.group_sys_flag or 0) > INT_MAX
        ):
            return super().from_ext(ext)
        new.forbidden_type = None
        return new
