"""Pulls: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

`PullMessageProcessor` and `DefaultPullMessageResultHandler` of Apache. The checks come
in Apache's order. A pull that finds nothing is held if it asks for that, and run again
at most once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded.core import FAQ
from rocketmq_sdk.broker_embedded.pull.long_polling import LONGEST_HOLD_MS, HeldPull
from rocketmq_sdk.broker_embedded.store.messages import GetResult, GetStatus, QueueRead
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError, RocketMQError
from rocketmq_sdk.model.enums import ConsumeType, Permission, RequestSource
from rocketmq_sdk.names import is_system_group
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE, PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader
from rocketmq_sdk.protocol.subscription import TAG, SubscriptionData, build_subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.message_filters import SubscriptionFilters
    from rocketmq_sdk.broker_embedded.members.consumers import ConsumerGroup, ConsumerManager
    from rocketmq_sdk.broker_embedded.pull.broadcast_offsets import BroadcastOffsetManager
    from rocketmq_sdk.broker_embedded.pull.long_polling import PullHolder
    from rocketmq_sdk.broker_embedded.replication.part import ReplicationPart
    from rocketmq_sdk.broker_embedded.store.messages import MessageFilter
    from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Channel

    Answer = Command | Callable[[], Awaitable[Command | None]] | None

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}
_NOTHING: Final = frozenset({GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE})
_INT_MAX: Final = 0x7FFFFFFF
_CACHED_LENGTH: Final = 1024
_LONGEST: Final = 65536


class _Forbidden:
    """The values of the field forbiddenType: why reading is forbidden."""

    BROKER: Final = 1
    GROUP: Final = 2
    TOPIC: Final = 3
    BROADCASTING: Final = 4
    SUBSCRIPTION: Final = 5


def _code(status: GetStatus, offset: int) -> int:
    if status not in _NOTHING:
        return _CODES[status]
    return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND


class PlainRead(NamedTuple):
    """What pulls that are checked have in common, beside where they read."""

    header: PullMessageRequestHeader
    topic: TopicConfig
    group: SubscriptionGroupConfig
    message_filter: MessageFilter | None


class PullProcessor:
    """Reads queues for consumers."""

    held: PullHolder
    """Where pulls wait; it runs them again by this processor's `rerun`."""

    def __init__(
        self,
        core: Core,
        filters: SubscriptionFilters,
        consumers: ConsumerManager,
        broadcast_offsets: BroadcastOffsetManager,
        replication: ReplicationPart,
    ) -> None:
        self._core = core
        self._offsets = core.offsets
        self._store = core.store
        self._filters = filters
        self._consumers = consumers
        self._broadcast_offsets = broadcast_offsets
        self._replication = replication
        self.suggested = replication.suggested

    def pull(self, channel: Channel, request: Command) -> Answer:
        """A pull that may be held."""
        if self.held.closing:
            return _answer(
                ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, the broker is closing"
            )
        refusal = self._replication.why_not_read()
        if refusal is not None:
            return _answer(ResponseCode.SYSTEM_BUSY, refusal)
        try:
            header = PullMessageRequestHeader.from_ext(request.ext_fields)
            if len(header.proxy_froward_client_id or "") > _CACHED_LENGTH:
                return _answer(
                    ResponseCode.INVALID_PARAMETER,
                    f"proxyFrowardClientId is longer than {_CACHED_LENGTH} characters",
                )
            return self._pull(channel, request, header, None)
        except _Refused as refused:
            return _answer(ResponseCode.NO_PERMISSION, refused.remark, refused.forbidden)

    def rerun(self, held: HeldPull) -> Answer:
        """Check and read a held pull again; always gives its final answer."""
        header = held.header
        assert isinstance(header, PullMessageRequestHeader)
        try:
            return self._pull(held.channel, held.request, header, held)
        except _Refused as refused:
            return _answer(ResponseCode.NO_PERMISSION, refused.remark, refused.forbidden)

    def plain_read(self, channel: Channel, request: Command) -> PlainRead | None:
        """What a pull reads, after all checks.

        None for one that is refused, or that needs more than a read; nothing was
        changed then.
        """
        core, config = self._core, self._core.config.current
        if self.held.closing or self._replication.is_slave:
            return None
        try:
            header = PullMessageRequestHeader.from_ext(request.ext_fields)
            if (
                header.proxy_froward_client_id is not None
                or header.request_source is not None
                or header.expression_type not in (None, "", TAG)
                or core.groups.find_existing(header.consumer_group) is None
            ):
                return None
            group = self._check_group(request, header)
            topic = self._check_topic(channel, header)
            message_filter = self._filter_of(header, group)
        except RocketMQError:
            return None  # served alone, it is told why
        if (
            core.unwritten.touched  # its answer waits until that is written
            or (config.use_server_side_reset_offset and self._offsets.has_resets)
            or self._broadcast_client(channel, header) is not None
        ):
            return None
        return PlainRead(header, topic, group, message_filter)

    def _pull(
        self,
        channel: Channel,
        request: Command,
        header: PullMessageRequestHeader,
        held: HeldPull | None,
    ) -> Answer:
        first = held is None
        group = self._check_group(request, header)
        topic = self._check_topic(channel, header)
        if held is not None and header.sys_flag & PullSysFlag.SUBSCRIPTION:
            message_filter = held.message_filter
        else:
            message_filter = self._filter_of(header, group)
        name, queue_id = header.topic, header.queue_id
        resets = self._core.config.current.use_server_side_reset_offset
        reset = self._offsets.take_reset(header.consumer_group, name, queue_id) if resets else None
        if reset is None:
            reset = self._broadcast_start(channel, header)
        if reset is not None:
            result = GetResult(
                GetStatus.OFFSET_RESET,
                reset,
                self._store.min_offset(name, queue_id),
                self._store.max_offset(name, queue_id),
            )
        else:
            wanted = QueueRead(
                name, queue_id, header.queue_offset, header.max_msg_nums, message_filter
            )
            found = self._store.read_nowait(wanted)
            if found is None:
                return self._pull_cold(channel, request, header, topic, group, wanted, first)
            result = found
        return self._finish(channel, request, header, topic, group, message_filter, result, first)

    def _filter_of(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> MessageFilter | None:
        """The filter of a pull's own subscription, else of what heartbeats brought."""
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            return self._requested_filter(header)
        subscription = self._check_registered(header, group)
        return self._filters.registered(header.consumer_group, subscription, header.sub_version)

    def _requested_filter(self, header: PullMessageRequestHeader) -> MessageFilter | None:
        """The filter of the subscription in a pull's own header."""
        subscription = parse_subscription(header.topic, header.subscription, header.expression_type)
        if subscription is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            )
        return self._filters.of_request(header.consumer_group, subscription)

    def _pull_cold(
        self,
        channel: Channel,
        request: Command,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        wanted: QueueRead,
        first: bool,
    ) -> Callable[[], Awaitable[Command | None]]:
        """What is not in memory is read in a thread."""

        times, began = self._core.put_times, self._core.clock.monotonic()

        async def read() -> Command | None:
            result = await self._store.read_cold(wanted)
            times.get_over(began)
            return self._finish(
                channel, request, header, topic, group, wanted.message_filter, result, first
            )

        return read

    def _finish(
        self,
        channel: Channel,
        request: Command,
        header: PullMessageRequestHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        message_filter: MessageFilter | None,
        result: GetResult,
        first: bool,
    ) -> Command | None:
        status = result.status
        code = _code(status, header.queue_offset)
        if (
            first
            and header.sys_flag & PullSysFlag.COMMIT_OFFSET
            and header.commit_offset >= 0
            and status is not GetStatus.OFFSET_RESET  # else it is from before the reset
        ):
            self._offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        self._note_broadcast(
            channel,
            header,
            result.next_begin_offset
            if code == ResponseCode.PULL_OFFSET_MOVED
            else header.queue_offset,
        )
        code, next_offset, suggested = self._replication.directed(
            group, result, code, header.queue_offset
        )
        if (
            code == ResponseCode.PULL_NOT_FOUND
            and first
            and header.sys_flag & PullSysFlag.SUSPEND
            and status is not GetStatus.OFFSET_FOUND_NULL  # the next offset is known
        ):
            return self._hold(channel, request, header, message_filter)
        if code == ResponseCode.SUCCESS:
            stats, count, size = self._core.stats, result.count, result.size
            stats.got(header.topic, header.consumer_group, header.queue_id, count, size)
            if stats.figures is not None:
                stats.figures.pulled(header.topic, header.consumer_group, count, size)
        else:
            self._core.stats.pull_missed += 1
        self._offsets.note_pulled(header.consumer_group, header.topic, header.queue_id, next_offset)
        fields = {
            "suggestWhichBrokerId": str(suggested),
            "nextBeginOffset": str(next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": str(topic.topic_sys_flag),
            "groupSysFlag": str(group.group_sys_flag),
        }
        return Command(
            code, flag=FLAG_RESPONSE, remark=status.name, ext_fields=fields, body=result.body
        )

    def _hold(
        self,
        channel: Channel,
        request: Command,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter | None,
    ) -> Command | None:
        """Let a pull wait for messages; a refusal when too many wait."""
        if self.held.full:
            return _answer(
                ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"
            )
        # Its filter stands for the expression, which may be long.
        header.subscription = header.bname = header.ns = None
        self.held.hold(
            HeldPull(
                channel,
                request,
                header.topic,
                header.queue_id,
                header.queue_offset,
                message_filter,
                self._deadline(header),
                header,
            )
        )
        return None

    def _broadcast_client(
        self, channel: Channel, header: PullMessageRequestHeader
    ) -> tuple[str, bool] | None:
        """The broadcasting client of a pull, and whether it comes through a proxy.

        None for all other pulls.
        """
        if not self._core.config.current.enable_broadcast_offset_store:
            return None
        if header.request_source == RequestSource.PROXY_FOR_BROADCAST:
            return (
                None
                if header.proxy_froward_client_id is None
                else (header.proxy_froward_client_id, True)
            )
        group = self._consumers.group(header.consumer_group)
        if (
            group is None
            or not group.broadcasting
            or group.consume_type is not ConsumeType.CONSUME_PASSIVELY
        ):
            return None
        client = group.channels.get(channel)
        return None if client is None else (client.client_id, False)

    def _broadcast_start(self, channel: Channel, header: PullMessageRequestHeader) -> int | None:
        """Where a broadcasting client has to begin, unless its own offset is right."""
        found = self._broadcast_client(channel, header)
        if found is None:
            return None
        client_id, from_proxy = found
        offsets, asked = self._broadcast_offsets, header.queue_offset
        return offsets.start(
            header.topic,
            header.consumer_group,
            header.queue_id,
            asked,
            client_id,
            from_proxy=from_proxy,
        )

    def _note_broadcast(
        self, channel: Channel, header: PullMessageRequestHeader, offset: int
    ) -> None:
        found = self._broadcast_client(channel, header)
        if found is not None:
            client_id, from_proxy = found
            offsets = self._broadcast_offsets
            offsets.note_pull(
                header.topic,
                header.consumer_group,
                header.queue_id,
                offset,
                client_id,
                from_proxy=from_proxy,
            )

    def _deadline(self, header: PullMessageRequestHeader) -> float:
        config = self._core.config.current
        wait_ms = (
            header.suspend_timeout_millis
            if config.long_polling_enable
            else config.short_polling_time_mills
        )
        return self._core.clock.monotonic() + min(max(0, wait_ms), LONGEST_HOLD_MS) / 1000

    def _check_group(
        self, request: Command, header: PullMessageRequestHeader
    ) -> SubscriptionGroupConfig:
        config = self._core.config.current
        if not config.broker_permission & Permission.READ:
            raise _Refused(
                f"the broker[{self._core.address()}] pulling message is forbidden",
                _Forbidden.BROKER,
            )
        if request.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise _Refused(
                f"the broker[{self._core.address()}] for lite pull consumer is forbidden",
                _Forbidden.BROKER,
            )
        group = self._core.groups.get(header.consumer_group)
        if group is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _Refused(
                f"subscription group no permission, {header.consumer_group}", _Forbidden.GROUP
            )
        return group

    def _check_topic(self, channel: Channel, header: PullMessageRequestHeader) -> TopicConfig:
        topic = self._core.topics.get(header.topic)
        if topic is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! {FAQ}",
            )
        if not topic.perm & Permission.READ:
            raise _Refused(
                f"the topic[{header.topic}] pulling message is forbidden", _Forbidden.TOPIC
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[/{channel.remote_address}]",
            )
        return topic

    def _check_registered(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """The subscription that the group's heartbeats brought."""
        group = self._consumers.group(header.consumer_group)
        if group is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}"
            )
        if group.broadcasting and not config.consume_broadcast_enable:
            raise _Refused(
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                _Forbidden.BROADCASTING,
            )
        if self._core.groups.is_forbidden(header.consumer_group, header.topic):
            raise _Refused(
                f"the consumer group[{header.consumer_group}] is forbidden for "
                f"topic[{header.topic}]",
                _Forbidden.SUBSCRIPTION,
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}"
            )
        if subscription.sub_version < header.sub_version:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        self._check_pull_type(group)
        return subscription

    def _check_pull_type(self, group: ConsumerGroup) -> None:
        rejects = self._core.config.current.reject_pull_consumer_enable
        if (
            rejects
            and group.consume_type is ConsumeType.CONSUME_ACTIVELY
            and not is_system_group(group.name)
        ):
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}"
            )


class _Refused(BrokerError):  # noqa: N818 - an answer, not a failure
    """NO_PERMISSION with the kind of what forbids reading."""

    def __init__(self, remark: str, forbidden: int) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.remark: str = remark
        self.forbidden = forbidden


def parse_subscription(
    topic: str, expression: str | None, expression_type: str | None
) -> SubscriptionData | None:
    """The subscription in a pull's own header; None when it cannot be parsed.

    Long expressions are not cached, because a peer may send any length.
    """
    length = len(expression or "") + len(expression_type or "")
    if length > _LONGEST:
        return None  # its hash codes would take long, and nobody else would be served meanwhile
    if length > _CACHED_LENGTH:
        return _parse_now(topic, expression, expression_type)
    return _parse_cached(topic, expression, expression_type)


def _parse_now(
    topic: str, expression: str | None, expression_type: str | None
) -> SubscriptionData | None:
    try:
        return build_subscription(topic, expression, expression_type, sub_version=0)
    except ConfigurationError:
        return None


_parse_cached = lru_cache(maxsize=4096)(_parse_now)


def _answer(code: int, remark: str, forbidden: int | None = None) -> Command:
    fields = None if forbidden is None else {"forbiddenType": str(forbidden)}
    return Command(code, flag=FLAG_RESPONSE, remark=remark, ext_fields=fields)
