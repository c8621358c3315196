"""Pop consumption: codes above 32767, so JSON headers only."""

import attrs

from rocketmq_sdk.protocol.header import Header, Long, TopicQueueRequestHeader


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
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


@attrs.define(kw_only=True)
class PopMessageResponseHeader(Header):
    """Answer to POP_MESSAGE: times and the offset texts from which receipt handles are made."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: int = 0
    rest_num: Long = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@attrs.define(kw_only=True)
class AckMessageRequestHeader(TopicQueueRequestHeader):
    """ACK_MESSAGE (200051): `extra_info` is the whole receipt handle."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long


@attrs.define(kw_only=True)
class ChangeInvisibleTimeRequestHeader(TopicQueueRequestHeader):
    """CHANGE_MESSAGE_INVISIBLETIME (200053): new invisible duration in milliseconds from now."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    invisible_time: Long


@attrs.define(kw_only=True)
class ChangeInvisibleTimeResponseHeader(Header):
    """Answer to CHANGE_MESSAGE_INVISIBLETIME: what the new receipt handle is made of."""

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
