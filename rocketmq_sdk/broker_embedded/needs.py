"""What a request needs of access control: resources, and actions on them.

Each row of a request (`Request.needs`) holds one of these rules. With access control
on, the caller must be allowed one of the actions on each resource that the rule finds
in the request. A request that names no resource where its rule expects one needs the
actions on the whole cluster: what is not said is not allowed.

Rules are made once in a process, whatever number of brokers it opens.

Follows `DefaultAuthorizationContextBuilder` and the annotations of request headers in
Apache RocketMQ 5.4.0; `docs/security.md` lists the differences.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rocketmq_sdk.model.properties import REAL_TOPIC, RETRY_TOPIC
from rocketmq_sdk.names import (
    DEFAULT_TOPIC,
    RETRY_PREFIX,
    origin_of_pop_retry,
    reply_topic,
    retry_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.body import Body
    from rocketmq_sdk.protocol.command import Command

_B = TypeVar("_B", bound="Body")
TOLERATED: Final = 64 * 1024
"""Most bytes of a body that is not strict JSON; the tolerant reader takes long."""


class Action(Flag):
    """What somebody does to a resource."""

    PUB = auto()
    SUB = auto()
    CREATE = auto()
    UPDATE = auto()
    DELETE = auto()
    GET = auto()
    LIST = auto()


class ResourceType(Enum):
    """What is protected; `ANY` stands for all types, in policies only."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Need(NamedTuple):
    """One resource, and the actions one of which must be allowed.

    A cluster without a name is the broker's own.
    """

    kind: ResourceType
    name: str
    actions: Action

    @property
    def resource(self) -> str:
        """The resource as Apache's policies and remarks write it."""
        return f"{self.kind.value}:{self.name}"


class Rule(NamedTuple):
    """How the needs of a request are found.

    `fields` are the header fields that they depend on, and `body` tells whether the
    body counts too. `find` raises a `RocketMQError` for a body that cannot be read.
    """

    text: str
    """For the page `docs/requests.md`."""
    find: Callable[[Command], Iterable[Need]]
    fields: tuple[str, ...] = ()
    body: bool = False


def _topic_or_group(topic: str, actions: Action) -> Need:
    """A retry topic counts as its group."""
    if topic.startswith(RETRY_PREFIX):
        return Need(ResourceType.GROUP, topic[len(RETRY_PREFIX) :], actions)
    return Need(ResourceType.TOPIC, topic, actions)


def _group(name: str, actions: Action) -> Need:
    return Need(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX), actions)


def _of_member(topic: str, group: str, actions: Action) -> Iterable[Need]:
    """A topic that a group reads.

    The retry topic of the group itself needs nothing more than the group does, its pop
    retry topic as much as the topic whose messages it holds. Another group's needs that
    group, where Apache asks for nothing.
    """
    if not topic.startswith(RETRY_PREFIX):
        yield Need(ResourceType.TOPIC, topic, actions)
    elif topic != retry_topic(group):
        origin = origin_of_pop_retry(topic, group)
        yield (
            _topic_or_group(topic, actions)
            if origin == topic
            else Need(ResourceType.TOPIC, origin, actions)
        )


def _words(actions: Action) -> str:
    return " or ".join(action.name.capitalize() for action in actions if action.name)


def is_of(topic: str | None, message: ReceivedMessage) -> bool:
    """Whether a stored message is one of a topic, or was put aside for it.

    Requests that name a message by its place in the log name its topic too; the caller
    may have permissions for another one only.
    """
    properties = message.properties
    return topic is not None and topic in (
        message.topic,
        properties.get(REAL_TOPIC),
        properties.get(RETRY_TOPIC),
    )


AUTHENTICATED: Final = Rule("any user", lambda _command: ())
"""The user must be known, and no more."""


@cache
def cluster(actions: Action, field: str | None = None) -> Rule:
    """The cluster that a field names, else the broker's own."""
    own = (Need(ResourceType.CLUSTER, "", actions),)
    if field is None:
        return Rule(f"Cluster: {_words(actions)}", lambda _command: own)
    named = field

    def find(command: Command) -> Iterable[Need]:
        name = command.ext_fields.get(named)
        return (Need(ResourceType.CLUSTER, name, actions),) if name else own

    return Rule(f"Cluster `{field}`: {_words(actions)}", find, (field,))


@cache
def topic(actions: Action, field: str = "topic", *, unnamed: bool = False) -> Rule:
    """The topic that a field names; with `unnamed` none needs to be named."""
    otherwise = () if unnamed else (Need(ResourceType.CLUSTER, "", actions),)

    def find(command: Command) -> Iterable[Need]:
        name = command.ext_fields.get(field)
        return (_topic_or_group(name, actions),) if name else otherwise

    return Rule(f"Topic `{field}`: {_words(actions)}", find, (field,))


@cache
def route() -> Rule:
    """Pub, Sub or Get of the topic whose route is asked for.

    Producers ask for the default topic's before they make a topic by a send; that send
    needs a permission of its own.
    """
    asked = Action.PUB | Action.SUB | Action.GET

    def find(command: Command) -> Iterable[Need]:
        name = command.ext_fields.get("topic")
        if name == DEFAULT_TOPIC:
            return ()
        return (_topic_or_group(name, asked) if name else Need(ResourceType.CLUSTER, "", asked),)

    return Rule(f"Topic `topic`: {_words(asked)} (any user: `{DEFAULT_TOPIC}`)", find, ("topic",))


@cache
def group(actions: Action, field: str = "consumerGroup", *, unnamed: bool = False) -> Rule:
    """The same for a group."""
    otherwise = () if unnamed else (Need(ResourceType.CLUSTER, "", actions),)

    def find(command: Command) -> Iterable[Need]:
        name = command.ext_fields.get(field)
        return (_group(name, actions),) if name else otherwise

    return Rule(f"Group `{field}`: {_words(actions)}", find, (field,))


@cache
def topic_and_group(
    actions: Action,
    group_field: str = "consumerGroup",
    topic_field: str = "topic",
    *,
    topics: tuple[str, str] | None = None,
    groups: tuple[str, str] | None = None,
) -> Rule:
    """The group that a field names, and the topic that another one names, if any.

    `topics` and `groups` are fields with lists and what separates them.
    """
    fields = [topic_field, group_field, *(listed[0] for listed in (topics, groups) if listed)]

    def find(command: Command) -> Iterable[Need]:
        texts = command.ext_fields
        group = texts.get(group_field)
        yield _group(group, actions) if group else Need(ResourceType.CLUSTER, "", actions)
        for name in (texts.get(topic_field), *_listed(texts, topics)):
            if name:
                yield from _of_member(name, group or "", actions)
        for name in _listed(texts, groups):
            if name:
                yield _group(name, actions)

    words = ", ".join(
        [
            f"Group `{group_field}`",
            *([f"Groups `{groups[0]}`"] if groups else []),
            f"Topic `{topic_field}`",
            *([f"Topics `{topics[0]}`"] if topics else []),
        ]
    )
    return Rule(f"{words}: {_words(actions)}", find, tuple(fields))


def _listed(texts: dict[str, str], listed: tuple[str, str] | None) -> Iterable[str]:
    return (texts.get(listed[0]) or "").split(listed[1]) if listed else ()


@cache
def sending(field: str) -> Rule:
    """Pub of the topic that a field names; a retry topic needs Sub of its group."""

    def find(command: Command) -> Iterable[Need]:
        name = command.ext_fields.get(field)
        if not name:
            return (Need(ResourceType.CLUSTER, "", Action.PUB),)
        retried = name.startswith(RETRY_PREFIX)
        return (_topic_or_group(name, Action.SUB if retried else Action.PUB),)

    return Rule(f"Topic `{field}`: Pub (a retry topic: its Group: Sub)", find, (field,))


@cache
def replying(topic_field: str, cluster_name: str) -> Rule:
    """Any user may send to the topic of replies; Pub of another topic."""
    replies = reply_topic(cluster_name)

    def find(command: Command) -> Iterable[Need]:
        name = command.ext_fields.get(topic_field) or ""
        return () if name == replies else (_topic_or_group(name, Action.PUB),)

    return Rule(f"any user for the reply topic; Topic `{topic_field}`: Pub", find, (topic_field,))


def in_body(text: str, kind: type[_B], find: Callable[[_B], Iterable[Need]]) -> Rule:
    """What a body names."""

    def find_in(command: Command) -> Iterable[Need]:
        return find(kind.decode(command.body, tolerated=TOLERATED))

    return Rule(text, find_in, (), body=True)


@cache
def topics_in(text: str, kind: type[_B], names: Callable[[_B], Iterable[str | None]]) -> Rule:
    """Create of each topic that a body names, one at least."""

    def find(body: _B) -> Iterable[Need]:
        found = [_topic_or_group(name or "", Action.CREATE) for name in names(body)]
        return found or [Need(ResourceType.CLUSTER, "", Action.CREATE)]

    return in_body(text, kind, find)


@cache
def groups_in(text: str, kind: type[_B], names: Callable[[_B], Iterable[str | None]]) -> Rule:
    """Create of each group that a body names, one at least."""

    def find(body: _B) -> Iterable[Need]:
        found = [_group(name or "", Action.CREATE) for name in names(body)]
        return found or [Need(ResourceType.CLUSTER, "", Action.CREATE)]

    return in_body(text, kind, find)


@cache
def members_in(
    kind: type[_B],
    read: Callable[[_B], Iterable[tuple[str | None, Iterable[str | None]]]],
    text: str = "each Group and Topic of the body: Sub",
    actions: Action = Action.SUB,
) -> Rule:
    """Groups that a body names, each with topics that it reads; there may be none."""

    def find(body: _B) -> Iterable[Need]:
        found: dict[Need, None] = {}
        for group, topics in read(body):
            found[_group(group or "", actions)] = None
            for name in topics:
                found.update(dict.fromkeys(_of_member(name or "", group or "", actions)))
        return found

    return in_body(text, kind, find)
