"""What all kinds of consumers do with their arguments: check subscriptions, split settings, open or share a client."""

from collections.abc import Mapping
from typing import Any

from rocketmq_sdk.client.config import CLIENT_OPTIONS, NamesrvSource, refuse_unknown
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.enums import ExpressionType
from rocketmq_sdk.names import check_group, topic_problem
from rocketmq_sdk.protocol.subscription import check_subscription

Subscription = str | tuple[str, ExpressionType | str] | None
"""A tag expression (`"a || b"`, `"*"` or None for all), or an expression with its type."""
Expression = tuple[str | None, str]
"""An expression and its type."""


class Settings:
    """The arguments of one consumer: the settings of its kind, and its client, which may be shared."""

    def __init__(
        self, kind: str, group: str, known: frozenset[str], options: Mapping[str, Any], namesrv: NamesrvSource | None, client: Client | None
    ) -> None:
        check_group(group)
        refuse_unknown(options, known | CLIENT_OPTIONS, kind)
        self.own: dict[str, Any] = {name: value for name, value in options.items() if name in known}
        client_options = {name: value for name, value in options.items() if name in CLIENT_OPTIONS}
        if client is not None and (namesrv is not None or client_options):
            raise ConfigurationError("give either client= or the settings of a client of its own")
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
    expression, kind = wanted if isinstance(wanted, tuple) else (wanted, ExpressionType.TAG)
    checked = expression, kind.value if isinstance(kind, ExpressionType) else kind
    check_subscription(topic, *checked)
    return checked


def checked_subscriptions(subscriptions: Mapping[str, Subscription]) -> dict[str, Expression]:
    """The expressions of topics, at least one.

    Raises `ConfigurationError`.
    """
    if not isinstance(subscriptions, Mapping):
        raise ConfigurationError(f"subscriptions is {subscriptions!r}; give topics with their expressions, as in {{'orders': '*'}}")
    if not subscriptions:
        raise ConfigurationError("subscriptions is empty; name at least one topic")
    return {topic: checked_expression(topic, wanted) for topic, wanted in subscriptions.items()}
