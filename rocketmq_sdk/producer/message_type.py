"""Checks of message types against topic types, for producers that ask for it.

Follows `TopicMessageType` of Apache RocketMQ 5.4.0.

Brokers keep a topic's type as the attribute `message.type` and do not look at it when
they store; only clients that want to can hold to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api.topics import topic_config
from rocketmq_sdk.client.side_by_side import first_answer
from rocketmq_sdk.errors import ConfigurationError, RocketMQError, TopicNotFoundError

if TYPE_CHECKING:
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.producer.targets import TopicTargets

ATTRIBUTE: Final = "message.type"
TRANSACTION: Final = "TRANSACTION"
_ANY: Final = frozenset({"MIXED", "UNSPECIFIED"})


def message_type(message: Message) -> str:
    """NORMAL, FIFO, DELAY or PRIORITY, by the message's properties.

    They do not say whether a message is sent in a transaction.
    """
    if message.is_delayed:
        return "DELAY"
    if message.sharding_key:
        return "FIFO"
    return "NORMAL" if message.priority is None else "PRIORITY"


class TypeCheck:
    """The types of topics as their brokers tell them, each asked for once."""

    __slots__ = ("_client", "_types")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._types: dict[str, str | None] = {}

    async def learn(self, topic: TopicTargets) -> None:
        """Ask for the type of a topic whose route is known.

        A broker that does not answer soon is not waited for alone. Raises the error of
        the first one when none tells.
        """
        if topic.topic in self._types or not topic.current():
            return
        failure: RocketMQError | None = None

        async def ask(address: str) -> tuple[str | None] | None:
            nonlocal failure
            try:
                config = await topic_config(self._client, address, topic.topic)
            except TopicNotFoundError:  # the first send creates it, without a type
                return (None,)
            except RocketMQError as error:
                failure = failure or error
                return None
            return (config.attributes.get(ATTRIBUTE),)

        addresses = dict.fromkeys(target.address for target in topic.targets)
        answer = await first_answer(addresses, ask)
        if answer is not None:
            [self._types[topic.topic]] = answer
        elif failure is not None:
            raise failure

    def check(self, topic: TopicTargets, message: Message, kind: str | None = None) -> None:
        """Reject a message whose type differs from the topic's.

        Topics without a type, and MIXED ones, take all.

        Raises `ConfigurationError`, also when the topic's type was not asked for yet.
        """
        self.check_named(topic.topic, message, kind)

    def check_named(self, topic: str, message: Message, kind: str | None = None) -> None:
        """`check`, by the full name of the topic; in any thread."""
        if topic not in self._types:
            raise ConfigurationError(
                f"the type of topic {topic!r} is not known yet; await "
                f"`producer.learn_topic_type({topic!r})` first"
            )
        wanted, found = self._types[topic], kind or message_type(message)
        if wanted is not None and wanted not in _ANY and wanted != found:
            raise ConfigurationError(
                f"topic {topic!r} is for messages of type {wanted}; {message!r} is of type {found}"
            )
