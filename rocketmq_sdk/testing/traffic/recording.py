"""Requests as a broker under test saw them."""

from __future__ import annotations

from collections import Counter, deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import attrs

from rocketmq_sdk.codes import request_name, response_name
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.testing.traffic.request_kinds import codes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.protocol.command import Command

KEPT: Final = 10_000
"""Requests that are remembered; older ones are only counted."""
BODY_KEPT: Final = 64 * 1024
"""Bytes above which the body of a remembered request is left out."""
TOPICS: Final = ("topic", "origin_topic")
GROUPS: Final = ("consumer_group", "producer_group", "group", "group_name")
QUEUE: Final = ("queue_id",)
_LISTS: Final = {
    TOPICS: ("mq_set", "acks", "topic_config_list", "consumer_data_set", "subscription_data_set"),
    GROUPS: ("producer_data_set", "consumer_data_set", "acks", "group_config_list"),
    QUEUE: ("mq_set", "acks"),
}
"""Members of bodies whose entries name them."""


class Seen:
    """One request, and how it was answered."""

    __slots__ = (
        "_row",
        "answer",
        "body",
        "client_id",
        "code",
        "fields",
        "host",
        "time",
        "where",
    )

    def __init__(
        self,
        command: Command,
        *,
        row: Request | None,
        host: str,
        client_id: str | None,
        where: str,
        time: int,
    ) -> None:
        self.code = command.code
        self.fields = command.ext_fields
        """The ext fields as they came, under the names of the wire."""
        self.body = command.body if len(command.body) <= BODY_KEPT else b""
        """The body; empty when it had more than 64 KiB."""
        self.host = host
        """The host at the other end of the connection, or the name of a party."""
        self.client_id = client_id
        """The client's id, once it has sent a heartbeat."""
        self.where = where
        """`broker` or `name server`."""
        self.time = time
        """When it came; epoch milliseconds of the broker's clock."""
        self.answer: int | None = None
        """The code of the answer; None while there is none."""
        self._row = row

    @property
    def name(self) -> str:
        """The request's name, as in `RequestCode`."""
        return request_name(self.code)

    def is_of(self, client: str) -> bool:
        """Whether a client of this id, host or party asked; `*` stands for anything."""
        return fnmatchcase(self.host, client) or fnmatchcase(self.client_id or "", client)

    def _parts(self) -> Iterator[Any]:
        row = self._row
        if row is None:
            return
        try:
            if row.header is not None:
                yield row.header.from_ext(self.fields)
            if row.body is not None and self.body:
                yield row.body.decode(self.body)
        except RocketMQError:
            return  # the broker refuses it; it names nothing

    def _texts(self, names: tuple[str, ...]) -> frozenset[str]:
        return frozenset(
            value
            for part in self._parts()
            for value in _named(part, names)
            if isinstance(value, str)
        )

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it names."""
        return self._texts(TOPICS)

    @property
    def groups(self) -> frozenset[str]:
        """The groups that it names; of a heartbeat, all groups of the client."""
        return self._texts(GROUPS)

    @property
    def queue(self) -> int | None:
        """The queue that it names, or the first of several."""
        return next(self._queues(), None)

    @property
    def queues(self) -> frozenset[int]:
        """The queues that it names."""
        return frozenset(self._queues())

    def _queues(self) -> Iterator[int]:
        for part in self._parts():
            for value in _named(part, QUEUE):
                if isinstance(value, int):
                    yield value

    def __repr__(self) -> str:
        topics, groups = sorted(self.topics), sorted(self.groups)
        words = [self.name, "of", self.client_id or self.host]
        if topics:
            words += ["topic", ",".join(topics)]
        if groups:
            words += ["group", ",".join(groups)]
        told = "no answer" if self.answer is None else response_name(self.answer)
        return f"<{' '.join(words)}: {told}>"


class Recording:
    """The requests that a broker and its name server got."""

    def __init__(self, kept: int = KEPT) -> None:
        self._seen: deque[Seen] = deque(maxlen=kept)
        self.counts: Counter[str] = Counter()
        """How many requests of each name came."""
        self.on_add: Callable[[Seen], None] | None = None
        """If set: is told of each request when it comes."""

    def add(self, seen: Seen) -> None:
        """Remember one."""
        if self.on_add is not None:
            self.on_add(seen)
        self._seen.append(seen)
        self.counts[seen.name] += 1

    def clear(self) -> None:
        """Forget all."""
        self._seen.clear()
        self.counts.clear()

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._seen)

    def find(
        self,
        code: int | str | Sequence[int | str] | None = None,
        *,
        topic: str | None = None,
        group: str | None = None,
        client: str | None = None,
        when: Callable[[Seen], object] | None = None,
    ) -> list[Seen]:
        """Those of the last 10,000 that match, in order of arrival.

        The arguments are those of `faults.on`. Raises `ConfigurationError` for a code
        that does not exist.
        """
        codes = codes_of(code)
        return [
            seen
            for seen in self._seen
            if (codes is None or seen.code in codes)
            and (topic is None or any_matches(seen.topics, topic))
            and (group is None or any_matches(seen.groups, group))
            and (client is None or seen.is_of(client))
            and (when is None or when(seen))
        ]

    def topics(self) -> set[str]:
        """All topics that were named."""
        return {topic for seen in self._seen for topic in seen.topics}

    def groups(self) -> set[str]:
        """All groups that were named."""
        return {group for seen in self._seen for group in seen.groups}

    def summary(self) -> str:
        """How often each request came, in words."""
        if not self.counts:
            return "no requests"
        return ", ".join(f"{name} {count}" for name, count in self.counts.most_common())


def _named(part: object, names: tuple[str, ...]) -> Iterator[object]:
    """What a part of a request, and the entries of its lists, have under some names."""
    for name in names:
        yield getattr(part, name, None)
    for attribute in _LISTS[names]:
        for entry in getattr(part, attribute, None) or ():
            if isinstance(entry, str):
                yield entry
            else:
                yield from _named(entry, names)


def any_matches(names: frozenset[str], pattern: str) -> bool:
    """Whether one of the names is the pattern, in which `*` stands for anything."""
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def can_name(row: Request, names: tuple[str, ...]) -> bool:
    """Whether a request of this kind may name such a thing."""
    parts = [part for part in (row.header, row.body) if part is not None]
    return any(
        field.name in names or field.name in _LISTS[names]
        for part in parts
        if attrs.has(part)
        for field in attrs.fields(part)
    )
