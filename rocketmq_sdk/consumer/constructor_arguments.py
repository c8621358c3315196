"""Arguments of the constructors of all consumers: subscriptions, settings, client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rocketmq_sdk.client.config import CLIENT_OPTIONS, NamesrvSource
from rocketmq_sdk.client.runtime import Client, check_client
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.enums import ExpressionType
from rocketmq_sdk.names import check_group, topic_problem
from rocketmq_sdk.protocol.subscription import check_subscription, split_tags
from rocketmq_sdk.validators import refuse_unknown

Subscription = str | tuple[str, ExpressionType | str] | None
"""What a user gives as a subscription.

A tag expression (`"a || b"`, `"*"` or None for all), or an expression with its type.
"""
Expression = tuple[str | None, str]
"""An expression and the name of its type."""
_KINDS: Final = frozenset(kind.value for kind in ExpressionType)
_FORMS: Final = (
    "give tags as a text ('paid || refunded', '*' for all), or (expression, ExpressionType.SQL92)"
)


class ConstructorArguments:
    """The arguments of one consumer, split into settings of its own and its client.

    `own` are the settings of the consumer's kind. `client` is shared, or with
    `own_client` opened for this consumer alone. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        known: frozenset[str],
        options: Mapping[str, Any],
        namesrv: NamesrvSource | None,
        client: Client | None,
    ) -> None:
        check_group(group)
        refuse_unknown(options, known | CLIENT_OPTIONS, kind)
        self.own: dict[str, Any] = {name: value for name, value in options.items() if name in known}
        client_options = {name: value for name, value in options.items() if name in CLIENT_OPTIONS}
        if client is not None and (namesrv is not None or client_options):
            raise ConfigurationError("give either client= or the settings of a client of its own")
        check_client(client)
        self.own_client = client is None
        self.client = client or Client(namesrv, **client_options)
        self.group = self.client.namespace.wrap(group)
        """The group as brokers know it."""


def checked_expression(topic: str, wanted: Subscription) -> Expression:
    """An expression with its type, checked as far as a client can.

    Raises `ConfigurationError`.
    """
    if problem := topic_problem(topic):
        raise ConfigurationError(problem)
    expression, kind = _parts(topic, wanted)
    check_subscription(topic, expression, kind)
    return expression, kind


def _parts(topic: str, wanted: object) -> Expression:
    """An expression and the name of its type, both strings."""
    if wanted is None or isinstance(wanted, str):
        _refuse_odd_tags(topic, wanted)
        return wanted, ExpressionType.TAG.value
    if not isinstance(wanted, tuple) or len(wanted) != 2:
        raise WrongTypeError(f"the subscription of topic {topic!r} is {wanted!r:.200}; {_FORMS}")
    expression, kind = wanted
    if isinstance(kind, ExpressionType):
        kind = kind.value
    if kind not in _KINDS:
        turned = isinstance(expression, ExpressionType) or expression in _KINDS
        why = (
            "the expression comes first, its type behind it"
            if turned
            else f"{kind!r} is no type of expressions"
        )
        raise ConfigurationError(
            f"the subscription of topic {topic!r} is {wanted!r}: {why}; {_FORMS}"
        )
    if expression is not None and not isinstance(expression, str):
        raise WrongTypeError(
            f"the expression for topic {topic!r} is {expression!r:.200}, no text; {_FORMS}"
        )
    return expression, kind


def _refuse_odd_tags(topic: str, expression: str | None) -> None:
    """Refuse tags that no message of ours has, as lists with commas or single bars.

    `FilterAPI.build` takes those for one tag, blanks for none, and a star that is not
    alone for a tag as well. Apache's producers may send such a tag; it is subscribed to
    by naming the type.
    """
    if not expression or expression == "*":
        return
    tags = split_tags(expression)
    if tags is None:
        return  # refused with all kinds of expressions
    odd = [tag for tag in tags if "," in tag or "|" in tag or tag == "*"]
    if odd or not tags:
        what = f"the one tag {odd[0]!r}" if odd else "no tag"
        raise ConfigurationError(
            f"the subscription of topic {topic!r} is {expression!r}, which names {what}; write "
            "several tags as 'a || b' and all messages as '*'. If messages have this very tag, "
            f"write ({expression!r}, ExpressionType.TAG)"
        )


def checked_subscriptions(subscriptions: Mapping[str, Subscription]) -> dict[str, Expression]:
    """The expressions of topics, at least one.

    Raises `ConfigurationError`.
    """
    if not isinstance(subscriptions, Mapping):
        raise WrongTypeError(
            f"subscriptions is {subscriptions!r:.200}; give topics with their expressions, as in "
            f"{{'orders': '*'}}"
        )
    if not subscriptions:
        raise ConfigurationError("subscriptions is empty; name at least one topic")
    return {topic: checked_expression(topic, wanted) for topic, wanted in subscriptions.items()}
