"""Timed messages: recalling them before they are due."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import (
    Header,
    TopicRequestHeader,
)


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
