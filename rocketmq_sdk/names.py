"""Names of topics and groups: legal, reserved and derived ones, and Java's string hash.

Both sides need these rules. They follow `TopicValidator`, `Validators`, `MixAll` and
`KeyBuilder` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from operator import mul
from typing import Final

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
DEFAULT_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TRANSACTION_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

BUILT_IN_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups that every broker has from its start (`SubscriptionGroupManager.init`)."""

NOT_SENDABLE_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
        TRANSACTION_CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_TOPIC,
    }
)
SYSTEM_TOPICS: Final = NOT_SENDABLE_TOPICS | {
    DEFAULT_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    "CHECKPOINT_TOPIC",
}

MAX_TOPIC_LENGTH: Final = 127
MAX_DERIVED_TOPIC_LENGTH: Final = 255
MAX_GROUP_LENGTH: Final = 120
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%|-_")
# Row n holds the weights of the characters of a text of n characters, for `java_hash`;
# index keys make it a per-message path.
_POWERS_UP_TO: Final = 128
_WEIGHTS: Final = [pow(31, exponent, 1 << 32) for exponent in reversed(range(_POWERS_UP_TO))]
_POWERS: Final = tuple(tuple(_WEIGHTS[_POWERS_UP_TO - length :]) for length in range(_POWERS_UP_TO))
_SHOWN: Final = 200
_RESERVED_GROUPS: Final = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})


def java_hash(text: str) -> int:
    """Java's `String.hashCode`.

    A polynomial of 31 over UTF-16 units, wrapped to a signed 32-bit number.
    """
    if len(text) < _POWERS_UP_TO and text.isascii():
        value: int = sum(map(mul, text.encode("ascii"), _POWERS[len(text)])) & 0xFFFFFFFF
    else:
        value = 0
        raw = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(raw), 2):
            value = value * 31 + (raw[index] << 8 | raw[index + 1]) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def illegal_characters(name: str) -> str:
    """The illegal characters of a topic or group name, each once, in order."""
    if _LEGAL.issuperset(name):
        return ""
    return "".join(dict.fromkeys(character for character in name if character not in _LEGAL))


def _check_text(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise WrongTypeError(f"the {what} is {name!r:.200}; give its name as a text")


def topic_problem(topic: str) -> str | None:
    """Why a topic name is not acceptable, or None."""
    _check_text("topic", topic)
    if not topic or topic.isspace():
        return "the topic is blank"
    if illegal := illegal_characters(topic):
        return f"the topic {topic!r} contains {illegal!r}; allowed are letters, digits and % | - _"
    limit = (
        MAX_DERIVED_TOPIC_LENGTH
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        else MAX_TOPIC_LENGTH
    )
    if len(topic) > limit:
        return f"the topic has {len(topic)} characters, more than {limit}"
    return None


def return_problem(topic: str) -> str | None:
    """Why no message that waited may come back into a topic, or None.

    It is a system topic that takes no sends, the timer topic, or not a legal name. Pop
    retry topics of the second form have a "+".
    """
    if topic in NOT_SENDABLE_TOPICS or topic == TIMER_TOPIC:
        return f"the topic {topic} takes no messages that waited"
    problem = topic_problem(topic.replace("+", "") if topic.startswith(RETRY_PREFIX) else topic)
    return problem if problem is None else problem[:_SHOWN]


def group_problem(group: str) -> str | None:
    """Why a group name is not acceptable, or None."""
    _check_text("group", group)
    if not group or group.isspace():
        return "the group is blank"
    if len(group) > MAX_GROUP_LENGTH:
        return f"the group has {len(group)} characters, more than {MAX_GROUP_LENGTH}"
    if illegal := illegal_characters(group):
        return f"the group {group!r} contains {illegal!r}; allowed are letters, digits and % | - _"
    return None


def check_send_topic(topic: str) -> None:
    """Refuse a topic that a producer cannot send to.

    Clients allow 127 characters for every topic; only brokers allow more, for the retry
    and dead letter topics that they make themselves. Raises `ConfigurationError`.
    """
    if problem := topic_problem(topic):
        raise ConfigurationError(problem)
    if len(topic) > MAX_TOPIC_LENGTH:
        raise ConfigurationError(
            f"the topic has {len(topic)} characters, more than {MAX_TOPIC_LENGTH}"
        )
    if topic in NOT_SENDABLE_TOPICS:
        raise ConfigurationError(
            f"the topic {topic!r} belongs to the broker; nobody may send to it"
        )


def check_group(group: str) -> None:
    """Refuse a producer or consumer group name that Apache's clients refuse.

    Raises `ConfigurationError`.
    """
    if problem := group_problem(group):
        raise ConfigurationError(problem)
    if group in _RESERVED_GROUPS:
        raise ConfigurationError(
            f"the group {group!r} is a placeholder of Apache's clients; choose a name of your own"
        )


def is_system_topic(topic: str) -> bool:
    """Whether users can neither create nor delete the topic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the group belongs to the broker itself."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    """The topic that holds a group's messages until they are delivered again."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic that holds a group's messages that were given up."""
    return DLQ_PREFIX + group


def pop_retry_topic_v1(topic: str, group: str) -> str:
    """The pop retry topic of a group, in the form that brokers write by default.

    It holds popped messages until they are popped again.
    """
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(topic: str, group: str) -> str:
    """The same in the form of `enableRetryTopicV2`, which can be taken apart again."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def origin_of_pop_retry(topic: str, group: str) -> str:
    """The topic that a group's pop retry topic belongs to, in either form.

    Any other topic is returned as it is.
    """
    prefix = RETRY_PREFIX + group
    if len(topic) > len(prefix) + 1 and topic.startswith(prefix) and topic[len(prefix)] in "_+":
        return topic[len(prefix) + 1 :]
    return topic


def revive_topic(cluster: str) -> str:
    """The topic in which a cluster's brokers keep what was popped and acknowledged."""
    return REVIVE_TOPIC_PREFIX + cluster


def reply_topic(cluster: str) -> str:
    """The topic that carries replies of a cluster."""
    return f"{cluster}_REPLY_TOPIC"
