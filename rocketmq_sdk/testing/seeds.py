"""Topics, groups, messages and offsets that a broker under test begins with."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import attrs

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.testing.observation import Observation

QUEUES: Final = 4
"""Queues of a topic for which no number is given."""
PRODUCER_GROUP: Final = "seed"
_MEMBERS: Final = frozenset(("topics", "groups", "messages", "offsets"))
_NAMES: Final = "topics and groups of a seed are lists of names"
_OF_A_MESSAGE: Final = frozenset(
    ("body", "delay", "delay_level", "keys", "priority", "properties", "queue", "sharding_key"),
) | {"tags"}


@attrs.frozen
class Seed:
    """What is to be made; `TestBroker.seed` describes the members."""

    topics: Mapping[str, int] = {}
    groups: tuple[str, ...] = ()
    messages: Mapping[str, Sequence[Any]] = {}
    offsets: Mapping[str, Mapping[str, int | Sequence[int]]] = {}

    @classmethod
    def of(cls, given: Seed | str | os.PathLike[str] | Mapping[str, Any] | None) -> Seed:
        """A seed from a file or a mapping.

        Raises `ConfigurationError` for a file that cannot be read and for members that
        do not exist.
        """
        if given is None:
            return cls()
        if isinstance(given, Seed):
            return given
        if isinstance(given, (str, os.PathLike)):
            given = _read(Path(given))
        if not isinstance(given, Mapping):
            raise WrongTypeError(f"the seed is {given!r:.100}; give a file, or a mapping")
        unknown = sorted(given.keys() - _MEMBERS)
        if unknown:
            raise ConfigurationError(
                f"a seed has no member {unknown[0]!r}; there are {', '.join(sorted(_MEMBERS))}"
            )
        return cls().with_more(
            given.get("topics", ()),
            given.get("groups", ()),
            given.get("messages", {}),
            given.get("offsets", {}),
        )

    def with_more(
        self,
        topics: Mapping[str, int] | Sequence[str],
        groups: Sequence[str],
        messages: Mapping[str, Sequence[Any]],
        offsets: Mapping[str, Mapping[str, int | Sequence[int]]],
    ) -> Seed:
        """This seed and more. Raises `ConfigurationError` for what is no seed."""
        more = dict(topics) if isinstance(topics, Mapping) else _queues_of(topics)
        _check_topics(more)
        _check_messages(messages)
        _check_offsets(offsets)
        if not _is_list_of_names(groups):
            raise ConfigurationError(_NAMES)
        return Seed(
            {**self.topics, **more},
            (*self.groups, *groups),
            {**self.messages, **messages},
            {**self.offsets, **offsets},
        )


def _queues_of(topics: Sequence[str]) -> dict[str, int]:
    if not _is_list_of_names(topics):
        raise ConfigurationError(_NAMES)
    return dict.fromkeys(topics, QUEUES)


def _check_topics(topics: Mapping[str, Any]) -> None:
    for topic, queues in topics.items():
        if not isinstance(queues, int) or isinstance(queues, bool) or queues < 1:
            raise ConfigurationError(
                f"topic {topic!r} of a seed has {queues!r} queues; give a whole number from 1 on"
            )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text("utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the seed {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"the seed {path} holds no object")
    return found


def _is_list(given: object) -> TypeGuard[Sequence[object]]:
    return isinstance(given, Sequence) and not isinstance(given, (str, bytes))


def _is_list_of_names(given: object) -> bool:
    return _is_list(given) and all(isinstance(one, str) for one in given)


def _check_messages(messages: object) -> None:
    if not isinstance(messages, Mapping) or not all(map(_is_list, messages.values())):
        raise ConfigurationError("messages of a seed are lists by topic")


def _check_offsets(offsets: object) -> None:
    groups = offsets.values() if isinstance(offsets, Mapping) else [None]
    for by_topic in groups:
        numbers = by_topic.values() if isinstance(by_topic, Mapping) else [None]
        for given in numbers:
            if not all(type(one) is int for one in (given if _is_list(given) else [given])):
                raise ConfigurationError(
                    "offsets of a seed are whole numbers, or lists of them, by group and topic"
                )


def _message(topic: str, given: Any) -> tuple[Message, int | None]:
    if isinstance(given, Message):
        return given, None
    if not isinstance(given, Mapping) or "body" not in given:
        return Message(topic, _body(given)), None
    unknown = sorted(given.keys() - _OF_A_MESSAGE)
    if unknown:
        raise ConfigurationError(
            f"a message of a seed has no member {unknown[0]!r}; there are "
            f"{', '.join(sorted(_OF_A_MESSAGE))}"
        )
    options = {name: given[name] for name in given if name not in ("body", "queue")}
    return Message(topic, _body(given["body"]), **options), given.get("queue")


def _body(given: Any) -> bytes:
    if isinstance(given, bytes):
        return given
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # half of a character of UTF-16
        raise ConfigurationError(f"the body of a message of a seed: {error}") from error


async def plant_messages(namesrv: NamesrvSource, seed: Seed, *, change: bool = True) -> None:
    """Make topics, groups and messages, by requests as any client sends them.

    A queue that a message names is that of the first master of its topic. Without
    `change`, topics and groups that are there already keep their settings.
    """
    async with (
        Client(namesrv) as client,
        Producer(PRODUCER_GROUP, client=client) as producer,
        Admin(client=client) as admin,
    ):
        for topic, queues in seed.topics.items():
            if change or not await admin.topics.exists(topic):
                await admin.topics.create(topic, queues=queues)
        for topic in seed.messages.keys() - seed.topics.keys():
            if not await admin.topics.exists(topic):
                await admin.topics.create(topic, queues=QUEUES)
        kept = () if change else await admin.groups.names(system=True)
        for group in dict.fromkeys((*seed.groups, *seed.offsets)):
            if group not in kept:
                await admin.groups.create(group)
        for topic, given in seed.messages.items():
            there: Collection[MessageQueue] = ()
            for one in given:
                message, queue = _message(topic, one)
                if queue is not None:
                    there = there or await admin.topics.offsets(topic)
                await producer.send(message, queue=_queue(topic, there, queue))


def _queue(topic: str, queues: Collection[MessageQueue], number: int | None) -> MessageQueue | None:
    if number is None:
        return None
    for queue in queues:
        if queue.queue_id == number:
            return queue
    raise ConfigurationError(f"the topic {topic!r} has no queue {number}")


def plant_offsets(broker: EmbeddedBroker, seen: Observation, seed: Seed) -> None:
    """Commit the offsets of a seed in one broker."""
    for group, by_topic in seed.offsets.items():
        for topic, offsets in by_topic.items():
            numbers = offsets_by_queue(topic, len(seen.queues(topic)), offsets)
            for queue, offset in enumerate(numbers):
                broker.core.offsets.commit(group, topic, queue, offset)


def offsets_by_queue(topic: str, queues: int, offsets: int | Sequence[int]) -> Sequence[int]:
    """An offset for each queue of a topic.

    Raises `ConfigurationError` if there are none, or not as many as offsets.
    """
    if not queues:
        raise ConfigurationError(f"there is no topic {topic!r} to have offsets in")
    if isinstance(offsets, int):
        return [offsets] * queues
    if len(offsets) != queues:
        raise ConfigurationError(
            f"{len(offsets)} offsets were given for the {queues} queues of {topic!r}"
        )
    return offsets
