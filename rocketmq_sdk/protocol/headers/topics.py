"""Topics: creation, deletion, configuration."""

from __future__ import annotations

import attrs

from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.protocol.header import Header, RpcRequestHeader, TopicRequestHeader
from rocketmq_sdk.protocol.limits import COUNT, PERMISSION, QUEUES, Length, limited


@attrs.define(kw_only=True)
class CreateTopicRequestHeader(TopicRequestHeader):
    """UPDATE_AND_CREATE_TOPIC (17): `attributes` is a text `+key=value,-key`.

    A missing topic is answered like a blank one.
    """

    topic: str = ""
    default_topic: str
    read_queue_nums: int = limited(QUEUES)
    write_queue_nums: int = limited(QUEUES)
    perm: int = limited(PERMISSION)
    topic_filter_type: str
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = limited(Length(32 * 1024), None)
    force: bool = False

    def check(self) -> None:
        """Refuse a filter type that does not exist."""
        if self.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
            raise FieldError(
                "CreateTopicRequestHeader: the field topicFilterType is "
                f"{self.topic_filter_type!r}, not SINGLE_TAG or MULTI_TAG"
            )


@attrs.define(kw_only=True)
class CreateTopicListRequestHeader(RpcRequestHeader):
    """UPDATE_AND_CREATE_TOPIC_LIST (18): the body names the topics."""


@attrs.define(kw_only=True)
class DeleteTopicRequestHeader(TopicRequestHeader):
    """DELETE_TOPIC_IN_BROKER (215). A missing topic is answered like a blank one."""

    topic: str = ""


@attrs.define(kw_only=True)
class GetAllTopicConfigRequestHeader(Header):
    """GET_ALL_TOPIC_CONFIG (21), a page of the table.

    Old peers send no header and want all of it.
    """

    topic_seq: int | None = limited(COUNT, None)
    data_version: str | None = None
    max_topic_num: int | None = None


@attrs.define(kw_only=True)
class GetAllTopicConfigResponseHeader(Header):
    """Answer to a page of GET_ALL_TOPIC_CONFIG."""

    total_topic_num: int


@attrs.define(kw_only=True)
class GetTopicConfigRequestHeader(TopicRequestHeader):
    """GET_TOPIC_CONFIG (351)."""

    topic: str
