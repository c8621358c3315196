"""Progress of topics and groups, and rates."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, TopicRequestHeader
from rocketmq_sdk.protocol.limits import LISTED, limited


@attrs.define(kw_only=True)
class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


@attrs.define(kw_only=True)
class GetConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool = False


@attrs.define(kw_only=True)
class GetConsumeStatsRequestHeader(TopicRequestHeader):
    """GET_CONSUME_STATS (208): `topic_list` is a list with semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = limited(LISTED, None)


@attrs.define(kw_only=True)
class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


@attrs.define(kw_only=True)
class GetTopicStatsInfoRequestHeader(TopicRequestHeader):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str
