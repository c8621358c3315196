"""The SQL92 expressions of consumer groups, kept in `consumerFilter.json`.

`ConsumerFilterManager` and `ConsumerFilterData` of Apache. Heartbeats bring the
expressions. After the last member of a group has left, its expressions stay for
`filterDataCleanTimeSpan`, marked as dead. Their bits in bit maps are still computed, so
a member that comes back with the same expression finds everything as it was. An
expression that cannot be compiled is logged and not kept; pulls of such a group are
refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.filter.evaluate import CompiledExpression, compile_expression
from rocketmq_sdk.broker_embedded.store.files.briefly import run_briefly
from rocketmq_sdk.errors import FieldError, FilterSyntaxError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.subscription import SQL92

if TYPE_CHECKING:
    from collections.abc import Collection

    from rocketmq_sdk.broker_embedded.filter.bloom import BloomFilter
    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.subscription import SubscriptionData

logger = logging.getLogger(__name__)

FILE_NAME: Final = "consumerFilter.json"
_DEAD_BEFORE_LOAD_MS: Final = 30_000
_COMPLAINTS_MAX: Final = 1000
AT_ONCE: Final = 4096
"""Characters of expressions that are compiled in one turn of the loop."""
MOST_CHARACTERS: Final = 4 * 1024 * 1024
"""Of the expressions of all groups together, dead ones too; their trees take much more.
"""


class ConsumerFilterData:
    """One group's expression for one topic.

    Times are epoch milliseconds; `dead_time` 0 means alive.
    """

    __slots__ = (
        "bits",
        "born_time",
        "client_version",
        "compiled",
        "dead_time",
        "expression",
        "expression_type",
        "group",
        "positions",
        "topic",
    )

    def __init__(
        self,
        group: str,
        topic: str,
        expression: str,
        expression_type: str,
        *,
        client_version: int,
        born_time: int,
        positions: tuple[int, ...],
        bits: int,
    ) -> None:
        self.group = group
        self.topic = topic
        self.expression = expression
        self.expression_type = expression_type
        self.client_version = client_version
        self.born_time = born_time
        self.dead_time = 0
        self.positions = positions
        self.bits = bits
        self.compiled: CompiledExpression | None = None

    @property
    def dead(self) -> bool:
        """Whether the group has no member that wants it."""
        return self.dead_time >= self.born_time

    def to_json(self) -> dict[str, object]:
        """The members as Apache prints them."""
        return {
            "bloomFilterData": {"bitNum": self.bits, "bitPos": list(self.positions)},
            "bornTime": self.born_time,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.dead,
            "deadTime": self.dead_time,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class ConsumerFilterManager:
    """All expressions by topic and group."""

    __slots__ = (
        "_clock",
        "_complaints",
        "_file",
        "_of_groups",
        "_size",
        "_table",
        "bloom",
        "dirty",
    )

    def __init__(self, config_file: ConfigFile | None, clock: Clock, bloom: BloomFilter) -> None:
        self._file = config_file
        self._clock = clock
        self._table: dict[str, dict[str, ConsumerFilterData]] = {}
        self._of_groups: dict[str, dict[str, ConsumerFilterData]] = {}
        """The same by group and topic: a client may come with thousands of groups."""
        self._complaints: dict[tuple[str, str, int], None] = {}
        self._size = 0
        """Characters of all expressions."""
        self.bloom = bloom
        self.dirty = False

    # --- asked by others

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """A group's expression for a topic, dead or alive.

        None when there is none, or none that could be compiled.
        """
        groups = self._table.get(topic)
        return None if groups is None else groups.get(group)

    def of_topic(self, topic: str) -> Iterable[ConsumerFilterData]:
        """The expressions of all groups for a topic."""
        return self._table.get(topic, _NOBODY).values()

    def __iter__(self) -> Iterator[ConsumerFilterData]:
        return (data for groups in self._table.values() for data in groups.values())

    def build(
        self, topic: str, group: str, expression: str, expression_type: str, client_version: int
    ) -> ConsumerFilterData:
        """Compile an expression without keeping it (`ConsumerFilterManager.build`).

        Raises `FilterSyntaxError`.
        """
        if expression_type != SQL92:
            raise FilterSyntaxError(
                expression,
                1,
                f"{expression_type!r} is no language of this broker; there are TAG and SQL92",
            )
        compiled = compile_expression(expression)
        positions = self.bloom.positions(f"{group}#{topic}")
        data = ConsumerFilterData(
            group,
            topic,
            expression,
            expression_type,
            client_version=client_version,
            born_time=self._clock.now_ms(),
            positions=positions,
            bits=self.bloom.bits,
        )
        data.compiled = compiled
        return data

    def bit_map(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """The bit map of a message (`CommitLogDispatcherCalcBitMap`).

        It has the bits of each group whose expression is TRUE for the message. None
        when no group has an expression for the topic.
        """
        groups = self._table.get(topic)
        if groups is None:
            return None
        bits = self.bloom.new_map()
        for data in groups.values():
            if data.compiled is not None and data.compiled.matches(properties):
                self.bloom.add(data.positions, bits)
        return bytes(bits)

    def may_match(self, data: ConsumerFilterData, bit_map: bytes | None, store_time: int) -> bool:
        """Whether the bit map of a message allows a match.

        True without a map of the right size, and for a message older than the group's
        expression.
        """
        if not bit_map or len(bit_map) * 8 != data.bits or store_time <= data.born_time:
            return True
        return self.bloom.has(data.positions, bit_map)

    def complain(self, group: str, topic: str, error: FilterSyntaxError) -> None:
        """Tell once of an expression that came with a pull and cannot be compiled."""
        if self._is_new(group, topic, hash(error.expression)):
            logger.warning(
                "group %s reads topic %s unfiltered, "
                "for its pull brings an expression that cannot be compiled: %s",
                group,
                topic,
                error,
                extra=about(topic=topic, group=group),
            )

    def _is_new(self, group: str, topic: str, what: int) -> bool:
        """Whether nobody was told of a problem yet; `what` stands for it."""
        key = (group, topic, what)
        if key in self._complaints:
            return False
        if len(self._complaints) >= _COMPLAINTS_MAX:
            self._complaints.clear()
        self._complaints[key] = None
        return True

    # --- what heartbeats bring

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take the subscriptions of a heartbeat; expressions for missing topics die."""
        wanted = set()
        for subscription in _expressions(subscriptions):
            wanted.add(subscription.topic)
            self._register(group, subscription)
        self._keep_only(group, wanted)

    async def register_beside(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """`register` for many or long expressions; others have turns meanwhile."""
        wanted, characters = set[str](), 0
        for subscription in _expressions(subscriptions):
            wanted.add(subscription.topic)
            text = subscription.sub_string
            if len(text) > AT_ONCE:
                with contextlib.suppress(FilterSyntaxError):  # told below
                    await run_briefly(trio.to_thread.run_sync, partial(compile_expression, text))
            self._register(group, subscription)
            characters += len(text)
            if characters > AT_ONCE:
                characters = 0
                await trio.lowlevel.checkpoint()
        self._keep_only(group, wanted)

    def _keep_only(self, group: str, wanted: Collection[str]) -> None:
        known = self._of_groups.get(group)
        if known is not None:
            self._let_die(data for topic, data in known.items() if topic not in wanted)

    def unregister(self, group: str) -> None:
        """The last member of a group has left."""
        self._let_die(self._of_groups.get(group, _NOBODY).values())

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        old = self.get(topic, group)
        if old is not None and (
            version < old.client_version or (version == old.client_version and not old.dead)
        ):
            return
        if old is not None and (old.expression, old.expression_type) == (
            subscription.sub_string,
            subscription.expression_type,
        ):
            old.client_version = version
            old.dead_time = 0
            self.dirty = True
            return
        if old is not None and version == old.client_version:
            return
        if not self._make_room(len(subscription.sub_string)):
            if self._is_new("", "", MOST_CHARACTERS):
                logger.warning(
                    "the expressions of all groups have %d characters, %d is the limit: that of "
                    "group %s for topic %s is not taken, nor are others; their pulls are refused",
                    self._size,
                    MOST_CHARACTERS,
                    group,
                    topic,
                    extra=about(topic=topic, group=group),
                )
            self._forget(old)
            return
        try:
            data = self.build(
                topic, group, subscription.sub_string, subscription.expression_type, version
            )
        except FilterSyntaxError as error:
            if self._is_new(group, topic, hash(error.expression)):
                logger.warning(
                    "group %s, topic %s: %s; its pulls are refused",
                    group,
                    topic,
                    error,
                    extra=about(topic=topic, group=group),
                )
            self._forget(old)
            return
        self._keep(data)
        self.dirty = True

    def _keep(self, data: ConsumerFilterData) -> None:
        old = self.get(data.topic, data.group)
        self._size += len(data.expression) - (0 if old is None else len(old.expression))
        self._table.setdefault(data.topic, {})[data.group] = data
        self._of_groups.setdefault(data.group, {})[data.topic] = data

    def _make_room(self, more: int) -> bool:
        """Forget dead expressions, the oldest first; whether there is room then."""
        most = MOST_CHARACTERS - more
        if self._size > most:
            dead = sorted((data for data in self if data.dead), key=lambda data: data.dead_time)
            while dead and self._size > most:
                self._remove(dead.pop(0))
        return self._size <= most

    def _forget(self, old: ConsumerFilterData | None) -> None:
        """What its group does not want any more, unless it is gone already."""
        if old is not None and self.get(old.topic, old.group) is old:
            self._remove(old)

    def _let_die(self, some: Iterable[ConsumerFilterData]) -> None:
        now = self._clock.now_ms()
        for data in some:
            if not data.dead:
                data.dead_time = now
                self.dirty = True

    def _remove(self, data: ConsumerFilterData) -> None:
        self._size -= len(data.expression)
        for table, outer, inner in (
            (self._table, data.topic, data.group),
            (self._of_groups, data.group, data.topic),
        ):
            some = table[outer]
            del some[inner]
            if not some:
                del table[outer]
        self.dirty = True

    def clean(self, span_ms: int) -> None:
        """Forget what has been dead for so many milliseconds."""
        now = self._clock.now_ms()
        for data in list(self):
            if data.dead and now - data.dead_time >= span_ms:
                self._remove(data)

    def remove_topic(self, topic: str) -> None:
        """A topic was deleted."""
        for data in list(self.of_topic(topic)):
            self._remove(data)

    def remove_group(self, group: str) -> None:
        """A group was deleted."""
        for data in list(self._of_groups.get(group, _NOBODY).values()):
            self._remove(data)

    # --- the file

    def to_json(self) -> dict[str, object]:
        """All expressions, as the file holds them."""
        by_topic = {
            topic: {
                "groupFilterData": {group: data.to_json() for group, data in groups.items()},
                "topic": topic,
            }
            for topic, groups in self._table.items()
        }
        return {"filterDataByTopic": by_topic}

    async def persist(self) -> None:
        """Write the file if anything changed. Raises `StoreError`."""
        if self.dirty and self._file is not None:
            self.dirty = False
            try:
                await self._file.save(self.to_json())
            except BaseException:
                self.dirty = True
                raise

    def load(self) -> None:
        """Read the file. Raises `FieldError` for other content.

        All of it is dropped when it was made for a Bloom filter of another size.
        """
        found = self._file.load() if self._file is not None else None
        if found is None:
            return
        entries = [
            _entry(entry)
            for groups in _objects(found, "filterDataByTopic")
            for entry in _objects(groups, "groupFilterData")
        ]
        if any(not self.bloom.is_valid(data.positions, data.bits) for data in entries):
            logger.warning(
                "%s was written for another Bloom filter; "
                "the expressions come back with the next heartbeats",
                FILE_NAME,
            )
            return
        now = self._clock.now_ms()
        for data in entries:
            try:
                data.compiled = compile_expression(data.expression)
            except FilterSyntaxError as error:
                logger.warning(
                    "%s: the expression of group %s for topic %s is left out: %s",
                    FILE_NAME,
                    data.group,
                    data.topic,
                    error,
                    extra=about(topic=data.topic, group=data.group),
                )
                continue
            if not data.dead:
                # Its members have to come back first; so that this does not look like
                # the moment in which they left, it counts from before.
                data.dead_time = max(now - _DEAD_BEFORE_LOAD_MS, data.born_time)
            self._keep(data)


def _expressions(subscriptions: Iterable[SubscriptionData]) -> Iterator[SubscriptionData]:
    for subscription in subscriptions:
        if not subscription.is_tag_type and subscription.sub_string:
            yield subscription


_NOBODY: Final[Mapping[str, ConsumerFilterData]] = {}


def _objects(value: object, member: str) -> list[Mapping[str, object]]:
    """The values of an object within an object."""
    inner = value.get(member) if isinstance(value, Mapping) else None
    if inner is None:
        return []
    if not isinstance(inner, Mapping) or not all(
        isinstance(each, Mapping) for each in inner.values()
    ):
        raise FieldError(f"{FILE_NAME}: {member} is no table of objects")
    return list(inner.values())


def _entry(members: Mapping[str, object]) -> ConsumerFilterData:
    bloom = members.get("bloomFilterData")
    positions = bloom.get("bitPos") if isinstance(bloom, Mapping) else None
    data = ConsumerFilterData(
        _text(members, "consumerGroup"),
        _text(members, "topic"),
        _text(members, "expression"),
        _text(members, "expressionType"),
        client_version=_number(members, "clientVersion"),
        born_time=_number(members, "bornTime"),
        positions=tuple(positions) if isinstance(positions, list) else (),
        bits=_number(bloom, "bitNum") if isinstance(bloom, Mapping) else 0,
    )
    data.dead_time = _number(members, "deadTime")
    return data


def _text(members: Mapping[str, object], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise FieldError(f"{FILE_NAME}: {name} is {value!r}, not a text")
    return value


def _number(members: Mapping[str, object], name: str) -> int:
    value = members.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FieldError(f"{FILE_NAME}: {name} is {value!r}, not a whole number")
    return value
