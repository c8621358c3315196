"""How far each consumer group has consumed each queue (`ConsumerOffsetManager`).

A commit is last-write-wins, also when it goes back. Resets asked for by an
administrator are remembered beside the offsets and win over them once: the next pull of
the queue is told to start there (`useServerSideResetOffset`).
"""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.json.dialect import written_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
FILE_NAME: Final = "consumerOffset.json"
NONE: Final = -1
"""What queries answer when nothing is stored."""
_AT: Final = "@"


class ConsumerOffsetManager:
    """Offsets by group, topic and queue, kept in `consumerOffset.json`."""

    __slots__ = (
        "_clock",
        "_commits",
        "_file",
        "_pulled",
        "_resets",
        "_table",
        "_version_step",
        "_writing",
        "around_write",
        "before_write",
        "data_version",
        "dirty",
        "on_reset",
    )

    def __init__(self, config_file: ConfigFile, clock: Clock, *, version_step: int = 500) -> None:
        self._file = config_file
        self._clock = clock
        self._version_step = max(1, version_step)
        self._commits = 0
        self._table: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self.data_version = DataVersion()
        self.dirty = False
        self._writing = trio.Lock()
        self.around_write: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        """Made when the offsets are taken, entered around their way into the file."""
        self.on_reset: list[Callable[[str, str, int], None]] = []
        """Called with group, topic and queue id of each reset."""
        self.before_write: list[Callable[[], None]] = []
        """Called before the offsets are taken, to commit what is known only now."""

    def load(self) -> None:
        """Read the file. Raises `StoreError` when it holds no table of offsets."""
        wrapper = self._file.load_body(ConsumerOffsetSerializeWrapper)
        if wrapper is None:
            return
        self._table = {key: dict(offsets) for key, offsets in wrapper.offset_table.items()}
        self.data_version = wrapper.data_version or DataVersion()

    def limit(self, end_of: Callable[[str, int], int]) -> None:
        """Cut offsets to the ends of their queues.

        `end_of` gives the end for a topic and a queue. A power cut may have taken
        messages whose consumption is on disk; the messages that come in their place are
        new.
        """
        for key, offsets in self._table.items():
            topic, group = _split(key)
            for queue_id, offset in offsets.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    _log.warning(
                        "group %s had consumed %s queue %d up to %d, but it ends at %d",
                        group,
                        topic,
                        queue_id,
                        offset,
                        end,
                        extra=about(topic=topic, group=group, queue=queue_id),
                    )
                    offsets[queue_id] = end
                    self.dirty = True

    def changed(self) -> bool:
        """Commit what is known only now; whether there is anything to write."""
        for commit in self.before_write:
            commit()
        return self.dirty

    def has_to_save(self) -> bool:
        """Whether `persist` has to write, or to wait for what is being written."""
        return self.changed() or self._writing.locked()

    async def persist(self) -> None:
        """Write the file when something changed since the last time."""
        async with self._writing:
            if self.changed():
                self.dirty = False
                try:
                    taken, around = self.wrapper(), self.around_write()
                    async with around:
                        await self._file.save(lambda: _content(taken))
                except BaseException:
                    self.dirty = True
                    raise

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """All offsets, as the file and GET_ALL_CONSUMER_OFFSET hold them."""
        groups: dict[str, list[str]] = {}
        for key in self._table:
            topic, group = _split(key)
            groups.setdefault(group, []).append(topic)
        table = {key: dict(offsets) for key, offsets in self._table.items()}
        return ConsumerOffsetSerializeWrapper(
            table, self.data_version, {group: tuple(topics) for group, topics in groups.items()}
        )

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset, whatever was stored before."""
        key = f"{topic}@{group}"
        offsets = self._table.get(key)
        if offsets is None:
            offsets = self._table[key] = {}
        elif offsets.get(queue_id) == offset:
            return
        offsets[queue_id] = offset
        self.dirty = True
        self._commits += 1
        if self._commits % self._version_step == 0:
            self.data_version = self.data_version.next(self._clock.now_ms())

    def take_over(self, wrapper: ConsumerOffsetSerializeWrapper) -> None:
        """Overwrite the offsets with a master's; others stay."""
        for key, offsets in wrapper.offset_table.items():
            self._table[key] = dict(offsets)
        self.data_version = wrapper.data_version or self.data_version
        self.dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Where consumption goes on: a pending reset, the committed offset, or -1."""
        key = f"{topic}@{group}"
        if self._resets:
            reset = self._resets.get(key, _EMPTY).get(queue_id)
            if reset is not None:
                return reset
        return self._table.get(key, _EMPTY).get(queue_id, NONE)

    def offsets_of(self, group: str, topic: str) -> Mapping[int, int]:
        """A group's committed offsets in a topic, by queue id; may be empty."""
        return dict(self._table.get(f"{topic}@{group}", _EMPTY))

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Make the next pull of the queue start at `offset`, and commit it."""
        self._resets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)
        for notice in self.on_reset:
            notice(group, topic, queue_id)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the next pull."""
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", _EMPTY)

    @property
    def has_resets(self) -> bool:
        """Whether any group waits for an offset that was reset."""
        return bool(self._resets)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Take and forget the offset of a pending reset; None when there is none."""
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        pending = self._resets.get(key)
        if pending is None:
            return None
        offset = pending.pop(queue_id, None)
        if not pending:
            del self._resets[key]
        return offset

    def note_pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where the next pull of the queue will start; not persisted."""
        key = f"{topic}@{group}"
        offsets = self._pulled.get(key)
        if offsets is None:
            offsets = self._pulled[key] = {}
        offsets[queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Where the next pull of the queue will start by the last answer, or -1."""
        return self._pulled.get(f"{topic}@{group}", _EMPTY).get(queue_id, NONE)

    def progress(self, group: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
        """A group's `query` and `pulled` in a topic, by queue id, where known."""
        key = f"{topic}@{group}"
        committed = self._table.get(key, _EMPTY)
        resets = self._resets.get(key)
        return {**committed, **resets} if resets else committed, self._pulled.get(key, _EMPTY)

    def topics_of(self, group: str) -> set[str]:
        """The topics in which a group has offsets."""
        return {topic for topic, owner in self._keys() if owner == group}

    def topics_by_group(self) -> dict[str, list[str]]:
        """The topics in which each group has offsets, in one pass over all."""
        found: dict[str, list[str]] = {}
        for topic, group in self._keys():
            found.setdefault(group, []).append(topic)
        return found

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets in a topic."""
        return {group for owned, group in self._keys() if owned == topic}

    def all_groups(self) -> set[str]:
        """Every group that has offsets."""
        return {group for _topic, group in self._keys()}

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets of another one in a topic."""
        offsets = self._table.get(f"{topic}@{source}")
        if offsets:
            self._table[f"{topic}@{target}"] = dict(offsets)
            self.dirty = True

    def min_offsets_in_all_groups(
        self, topic: str, filter_groups: frozenset[str] = frozenset()
    ) -> dict[int, int]:
        """The lowest offset in each queue of a topic.

        The offsets of `filter_groups` are deleted, as Apache does it.
        """
        lowest: dict[int, int] = {}
        for group in filter_groups:
            for key in [key for key in self._table if _split(key)[1] == group]:
                del self._table[key]
                self.dirty = True
        for key, offsets in self._table.items():
            if _split(key)[0] == topic:
                for queue_id, offset in offsets.items():
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return lowest

    def consumed_by_all(self) -> dict[str, dict[int, int]]:
        """The lowest offset in each queue, by topic; of groups that have offsets there.

        A queue in which one of them has none is left out.
        """
        groups: dict[str, int] = {}
        lowest: dict[str, dict[int, list[int]]] = {}
        for key, offsets in self._table.items():
            topic = _split(key)[0]
            groups[topic] = groups.get(topic, 0) + 1
            found = lowest.setdefault(topic, {})
            for queue_id, offset in offsets.items():
                found.setdefault(queue_id, []).append(offset)
        return {
            topic: {
                queue_id: min(offsets)
                for queue_id, offsets in found.items()
                if len(offsets) == groups[topic]
            }
            for topic, found in lowest.items()
        }

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self._remove(key for key in list(self._known()) if _split(key)[1] == group)

    def remove_topic(self, topic: str) -> None:
        """Forget the offsets of every group in a topic."""
        self._remove(key for key in list(self._known()) if _split(key)[0] == topic)

    def _known(self) -> set[str]:
        return self._table.keys() | self._resets.keys() | self._pulled.keys()

    def _remove(self, keys: Iterator[str]) -> None:
        for key in keys:
            for table in (self._table, self._resets, self._pulled):
                table.pop(key, None)
            self.dirty = True

    def _keys(self) -> Iterator[tuple[str, str]]:
        return map(_split, self._table)


_EMPTY: Final[dict[int, int]] = {}


def _content(taken: ConsumerOffsetSerializeWrapper) -> dict[str, object]:
    """What the file holds; the offsets, which may be very many, as texts."""
    content = attrs.evolve(taken, offset_table={}).to_json()
    content["offsetTable"] = {
        key: written_numbers(offsets, 2) for key, offsets in taken.offset_table.items()
    }
    return content


def _split(key: str) -> tuple[str, str]:
    """Topic and group of `topic@group`; neither can hold an @."""
    topic, _, group = key.partition(_AT)
    return topic, group
