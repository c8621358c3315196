"""Message filters of subscriptions (`ExpressionMessageFilter` of Apache 5.4.0).

Reads and held pulls ask them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError, FilterSyntaxError
from rocketmq_sdk.model.properties import RETRY_TOPIC
from rocketmq_sdk.names import retry_topic

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from rocketmq_sdk.broker_embedded.filter.consumer_filters import (
        ConsumerFilterData,
        ConsumerFilterManager,
    )
    from rocketmq_sdk.broker_embedded.filter.evaluate import CompiledExpression
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.messages import MessageFilter
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.subscription import SubscriptionData

_INT_MAX: Final = 0x7FFFFFFF


class TagFilter:
    """Accepts messages whose tag has one of some hash codes.

    The consumer compares the tags themselves.
    """

    __slots__ = ("_codes",)
    needs_properties = False

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes

    @property
    def what(self) -> Hashable:
        """The hash codes."""
        return self._codes

    def matches_tags_code(self, tags_code: int | None) -> bool:
        """Whether the hash of a tag is among the wanted ones; an unknown hash passes.

        Only its low 32 bits count.
        """
        if tags_code is None or tags_code in self._codes:
            return True
        low = tags_code & 0xFFFFFFFF
        return (low - 0x100000000 if low > _INT_MAX else low) in self._codes

    def work(self, _length: int) -> int:
        """Nothing: properties are not looked at."""
        return 0

    def matches_record(self, _properties: Mapping[str, str]) -> bool:
        """Tags are decided by their code alone."""
        return True


class SqlFilter:
    """Lets messages through whose properties make an expression TRUE."""

    __slots__ = ("_data", "_expression", "_filters")
    needs_properties = True

    def __init__(
        self,
        data: ConsumerFilterData | None,
        expression: CompiledExpression,
        filters: ConsumerFilterManager,
    ) -> None:
        self._data = data
        self._expression = expression
        self._filters = filters

    @property
    def what(self) -> Hashable:
        """The expression, and whether it goes by bit maps."""
        return self._expression.text, self._data is None

    def matches_tags_code(self, _tags_code: int | None) -> bool:
        """The code of a tag says nothing about an expression."""
        return True

    def may_match(self, bit_map: bytes, store_timestamp: int) -> bool:
        """Whether the message's bit map, if any, allows the expression to be TRUE."""
        data = self._data
        return data is None or self._filters.may_match(data, bit_map, store_timestamp)

    def work(self, length: int) -> int:
        """The estimated work for one message.

        It counts one look at properties and expression, and the text searches, which
        grow with the length of the expression.
        """
        return _work_of(self._expression, length)

    def matches_record(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is TRUE."""
        return self._expression.matches(properties)


class RetryFilter:
    """Accepts retries by their group's expression for the original topic.

    `ExpressionForRetryMessageFilter` of Apache.
    """

    __slots__ = ("_filters", "_group", "_longest")
    needs_properties = True

    def __init__(self, filters: ConsumerFilterManager, group: str) -> None:
        self._filters = filters
        self._group = group
        compiled = [
            data.compiled for data in filters if data.group == group and data.compiled is not None
        ]
        self._longest = max(compiled, key=lambda expression: len(expression.text), default=None)

    @property
    def what(self) -> Hashable:
        """The group whose expressions count."""
        return "retries of", self._group

    def matches_tags_code(self, _tags_code: int | None) -> bool:
        """Retry topics are subscribed to as a whole."""
        return True

    def work(self, length: int) -> int:
        """What the group's longest expression takes."""
        return length if self._longest is None else _work_of(self._longest, length)

    def matches_record(self, properties: Mapping[str, str]) -> bool:
        """Whether the original topic has no expression, or one that is TRUE."""
        data = self._filters.get(properties.get(RETRY_TOPIC, ""), self._group)
        return data is None or data.compiled is None or data.compiled.matches(properties)


def _work_of(expression: CompiledExpression, length: int) -> int:
    text = len(expression.text)
    return length + text + (length * text >> 8)


def tag_filter(subscription: SubscriptionData) -> TagFilter | None:
    """The filter of a tag subscription; None accepts all messages.

    An expression without any tag, such as blanks, accepts nothing.
    """
    if subscription.matches_all or subscription.class_filter_mode:
        return None
    return TagFilter(subscription.code_set)


class SubscriptionFilters:
    """Makes the filters of subscriptions.

    It uses the settings in force and the expressions of all groups.
    """

    __slots__ = ("_clock", "_config", "_filters")

    def __init__(self, filters: ConsumerFilterManager, config: LiveConfig, clock: Clock) -> None:
        self._filters = filters
        self._config = config
        self._clock = clock

    def check_supported(self, subscription: SubscriptionData) -> None:
        """Raises `BrokerError` (1) for an expression type that is not enabled."""
        if not subscription.is_tag_type and not self._config.current.enable_property_filter:
            remark = (
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}"
            )
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)

    def registered(
        self, group: str, subscription: SubscriptionData, client_version: int
    ) -> MessageFilter | None:
        """The filter of a subscription that a heartbeat brought, None for all messages.

        Raises `BrokerError`: 27 when its expression could not be compiled, 28 when the
        pull is of a newer one, 1 when the language is not served.
        """
        if subscription.is_tag_type:
            return self._tag_or_retry(group, subscription)
        data = self._filters.get(subscription.topic, group)
        if data is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise BrokerError(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if data.client_version < client_version:
            raise BrokerError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        self.check_supported(subscription)
        return self._sql(data)

    def of_request(self, group: str, subscription: SubscriptionData) -> MessageFilter | None:
        """The filter of a request's own subscription; None accepts all messages."""
        if subscription.is_tag_type:
            return self._tag_or_retry(group, subscription)
        self.check_supported(subscription)
        topic = subscription.topic
        try:
            data = self._filters.build(
                topic,
                group,
                subscription.sub_string,
                subscription.expression_type,
                subscription.sub_version,
            )
        except FilterSyntaxError as error:
            self._filters.complain(group, topic, error)
            return None
        return self._unregistered(data)

    def of_pop(self, group: str, subscription: SubscriptionData) -> MessageFilter | None:
        """The filter of a subscription that a pop brings, None for all messages.

        Pops are strict where pulls are not, and do not ask whether property filters are
        switched on, as with Apache. Raises `BrokerError` (23) with the reason when an
        expression cannot be compiled.
        """
        if subscription.is_tag_type:
            return tag_filter(subscription)
        text, kind = subscription.sub_string, subscription.expression_type
        try:
            return self._unregistered(
                self._filters.build(subscription.topic, group, text, kind, self._clock.now_ms()),
            )
        except FilterSyntaxError as error:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from error

    def _tag_or_retry(self, group: str, subscription: SubscriptionData) -> MessageFilter | None:
        if self._config.current.filter_support_retry and subscription.topic == retry_topic(group):
            return RetryFilter(self._filters, group)
        return tag_filter(subscription)

    def _unregistered(self, data: ConsumerFilterData) -> SqlFilter | None:
        """The filter of an expression that no heartbeat brought."""
        return None if data.compiled is None else SqlFilter(None, data.compiled, self._filters)

    def _sql(self, data: ConsumerFilterData) -> SqlFilter | None:
        """The filter of an expression, None when it was not compiled."""
        return None if data.compiled is None else SqlFilter(data, data.compiled, self._filters)
