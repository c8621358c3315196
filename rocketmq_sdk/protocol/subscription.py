"""Subscriptions of consumer groups, as heartbeats and pulls carry them.

The rules are those of `FilterAPI.build` and `SubscriptionData` of Apache RocketMQ
5.4.0. A TAG text is split at two vertical bars the way Java's `String.split` does it:
empty parts at the end vanish before anything is looked at, so a text of bars only
leaves no part and is refused, while blank parts between bars are dropped silently.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from rocketmq_sdk.errors import ConfigurationError, FieldError
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.protocol.header import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from rocketmq_sdk.protocol.limits import EXPRESSION, limited
from rocketmq_sdk.protocol.sql92.parser import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
_TAG_SEPARATOR: Final = "||"
# Java's `String.trim` takes away U+0000 to U+0020 and nothing else.
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_Element = TypeVar("_Element", str, int)


@attrs.frozen(slots=True)
class SubscriptionData:
    """One topic's subscription.

    `sub_string` is the expression as written, `tags_set` the tags of a TAG expression
    (empty for all), `code_set` their Java hash codes, by which the broker filters;
    `sub_version` is epoch milliseconds and must grow with every change, because the
    broker keeps the newest.
    """

    topic: str
    sub_string: str = limited(EXPRESSION, ALL)
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    @property
    def is_tag_type(self) -> bool:
        """Whether the broker filters by tag codes; an empty type means TAG too.

        Follows `ExpressionType.isTagType`.
        """
        return not self.expression_type or self.expression_type == TAG

    @property
    def matches_all(self) -> bool:
        """Whether every message of the topic is wanted."""
        return self.sub_string == ALL and self.is_tag_type

    def to_json(self) -> dict[str, object]:
        """The members under their wire names, in alphabetical order as in Apache."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, members: Mapping[str, object]) -> SubscriptionData:
        """The subscription that a decoded JSON object describes.

        Members that are missing or null take Apache's defaults.

        Raises `FieldError` naming the member that has the wrong type.
        """
        return cls(
            topic=_text(members, "topic", ""),
            sub_string=_text(members, "subString", ALL),
            tags_set=frozenset(_elements(members, "tagsSet", str)),
            code_set=frozenset(_elements(members, "codeSet", int)),
            sub_version=_number(members, "subVersion"),
            expression_type=_text(members, "expressionType", TAG),
            class_filter_mode=members.get("classFilterMode") is True,
        )


def _text(members: Mapping[str, object], name: str, default: str) -> str:
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise FieldError(f"SubscriptionData.{name} is {value!r}, not a text")
    return value


def _number(members: Mapping[str, object], name: str) -> int:
    value = members.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise FieldError(f"SubscriptionData.{name} is {value!r}, not a whole number")
    if not LONG_MIN <= value <= LONG_MAX:
        raise FieldError(f"SubscriptionData.{name} is not a 64-bit number")
    return value


def _elements(members: Mapping[str, object], name: str, kind: type[_Element]) -> list[_Element]:
    value = members.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(f"SubscriptionData.{name} is {value!r}, not a list")
    elements: list[_Element] = []
    for element in value:
        if not isinstance(element, kind) or isinstance(element, bool):
            raise FieldError(
                f"SubscriptionData.{name} holds {element!r}, which is not "
                f"{'a text' if kind is str else 'a whole number'}"
            )
        if isinstance(element, int) and not INT_MIN <= element <= INT_MAX:
            raise FieldError(f"SubscriptionData.{name} holds what is not a 32-bit number")
        elements.append(element)
    return elements


@lru_cache(maxsize=1024)
def tags_code(tags: str | None) -> int:
    """The tags code of a consume queue unit: Java's hash of the tags, 0 without."""
    return java_hash(tags) if tags else 0


def split_tags(expression: str) -> list[str] | None:
    """The tags of an expression in order, None when it holds nothing but bars."""
    parts = expression.split(_TAG_SEPARATOR)
    while parts and not parts[-1]:
        parts.pop()
    if not parts:
        return None
    return [tag for part in parts if (tag := part.strip(_TRIMMED))]


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = TAG, *, sub_version: int
) -> SubscriptionData:
    """The subscription for an expression (`FilterAPI.build`).

    With type TAG (or None) an empty or missing expression means all messages. Any other
    type keeps the text as it is; whether it compiles is the broker's matter. Raises
    `ConfigurationError` when a TAG text splits to nothing or another type has no text.
    """
    if expression_type is not None and expression_type != TAG:
        if not expression:
            raise ConfigurationError(
                f"a subscription of type {expression_type!r} for topic {topic!r} needs an "
                "expression"
            )
        return SubscriptionData(
            topic, expression, sub_version=sub_version, expression_type=expression_type
        )
    if not expression or expression == ALL:
        return SubscriptionData(topic, ALL, sub_version=sub_version)
    tags = split_tags(expression)
    if tags is None:
        raise ConfigurationError(
            f"the tag expression {expression!r} for topic {topic!r} names no tag; write tags "
            "separated by ||, or *"
        )
    return SubscriptionData(
        topic, expression, frozenset(tags), frozenset(map(java_hash, tags)), sub_version
    )


def check_subscription(
    topic: str, expression: str | None, expression_type: str | None = TAG
) -> None:
    """Refuse what no broker would serve, before any is asked.

    Raises `ConfigurationError`, for a SQL92 text with an error the `FilterSyntaxError`
    that tells where and why. Languages that are unknown here are left to the broker.
    """
    built = build_subscription(topic, expression, expression_type, sub_version=0)
    if built.expression_type == SQL92:
        parse(built.sub_string)
