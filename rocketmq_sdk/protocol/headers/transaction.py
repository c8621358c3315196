"""Checking transactions, recalling delayed messages, pushed replies."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import (
    Header,
    Long,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
)


@attrs.define(kw_only=True)
class EndTransactionResponseHeader(Header):
    """Answer to END_TRANSACTION, without fields."""


@attrs.define(kw_only=True)
class CheckTransactionStateRequestHeader(RpcRequestHeader):
    """CHECK_TRANSACTION_STATE (39), broker to producer: what became of a half message?
    `topic` is the half topic.
    """

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@attrs.define(kw_only=True)
class CheckTransactionStateResponseHeader(Header):
    """Legacy answer to CHECK_TRANSACTION_STATE."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int


@attrs.define(kw_only=True)
class RecallMessageRequestHeader(TopicRequestHeader):
    """RECALL_MESSAGE (370): take back a delayed message."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@attrs.define(kw_only=True)
class RecallMessageResponseHeader(Header):
    """Answer to RECALL_MESSAGE: the unique id of the recalled message."""

    msg_id: str


@attrs.define(kw_only=True)
class ReplyMessageRequestHeader(TopicQueueRequestHeader):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), broker to requester: a reply; hosts are
    `ip:port`.
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
