"""What one process does with a store until it ends, one message or a few at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.protocol.batch_codec import encode_batch
from support.crash_owed import GONE, Key, Wanted
from support.store import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.testing.faulty_files import FaultyFileSystem

TOPICS = ("TopicA", "TopicB")
SPACE = 1 << 40
"""Bytes of a disk that does not fill up."""


class Life:
    """What one process does with a store until it ends."""

    def __init__(
        self,
        store: MessageStore,
        files: FaultyFileSystem,
        wanted: Wanted,
        generator: Random,
        number: int,
    ) -> None:
        self.store = store
        self.files = files
        self.wanted = wanted
        self.generator = generator
        self.number = number
        self.count = 0
        self.config = ConfigFile(files, "topics.json")
        self.saving = trio.Lock()

    def kinds(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What happens, as often as it stands here."""
        return [self.put] * 12 + [
            self.turn,
            self.turn,
            self.put_batch,
            self.flush,
            self.sleep,
            self.sleep,
            self.breathe,
            self.breathe,
            self.breathe,
            self.save,
            self.delete,
            self.put_together,
            self.expire,
        ]

    async def work(self, steps: int) -> None:
        """Random operations of one to three tasks until the end comes."""
        tasks = self.generator.choice([1, 2, 3])
        async with open_quiet_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(self.work_alone, steps // tasks)

    async def work_alone(self, steps: int) -> None:
        """Random operations one after another until the end comes."""
        kinds = self.kinds()
        for _ in range(steps):
            await self.generator.choice(kinds)()
            if self.files.dead:
                return

    def body(self) -> bytes:
        self.count += 1
        return b"%d-%d " % (self.number, self.count) * self.generator.choice([1, 2, 10, 60, 150])

    def keys(self) -> dict[str, str]:
        """Properties with a key of its own for some messages."""
        if self.generator.random() < 0.5:
            return {}
        return {"KEYS": f"key-{self.number}-{self.count}"}

    async def put(self) -> None:
        """One to ten puts, then the wait for the last."""
        topic = self.generator.choice([*TOPICS, *TOPICS, GONE])
        batch: list[tuple[Key, int]] = []
        for _ in range(self.generator.choice([1, 1, 3, 10])):
            queue_id = self.generator.randrange(2)
            result = self.store.put(
                message(
                    topic,
                    queue_id,
                    self.body(),
                    tag=self.generator.choice([None, "TagA", "TagB"]),
                    properties=self.keys(),
                )
            )
            if result.ok and not self.files.dead:
                batch.append(
                    self.accepted(topic, queue_id, result.queue_offset, result.physical_offset)
                )
        if batch and self.generator.random() < 0.7:
            await self.wait(result, batch)

    async def turn(self) -> None:
        """Requests that arrived together: one write for all, no task waits for the
        sync.
        """
        topic, queue_id = self.generator.choice(TOPICS), self.generator.randrange(2)
        self.store.begin()
        results = [
            self.store.put(message(topic, queue_id, self.body()))
            for _ in range(self.generator.choice([1, 2, 6]))
        ]
        try:
            self.store.end()
        except StoreError:
            return
        if self.files.dead:
            return
        for result in results:
            if result.ok:
                owed = self.accepted(topic, queue_id, result.queue_offset, result.physical_offset)
                if self.store.tells_durable:
                    self.store.when_durable(result, partial(self.told, [owed]))

    async def put_batch(self) -> None:
        """A client's batch."""
        queue_id = self.generator.randrange(2)
        items = [
            (0, self.body()[:300], b"UNIQ_KEY\x01U\x02")
            for _ in range(self.generator.randrange(1, 5))
        ]
        batch_message = message(TOPICS[0], queue_id, encode_batch(items))
        before = self.store.max_offset(TOPICS[0], queue_id)
        result = self.store.put_batch(batch_message)
        if result.ok and not self.files.dead:
            assert result.queue_offset >= before
            keys = [
                self.accepted(TOPICS[0], queue_id, result.queue_offset + index, at)
                for index, at in enumerate(result.physical_offsets or [])
            ]
            await self.wait(result, keys)

    async def put_together(self) -> None:
        """Several messages in one write, as the end of a transaction."""
        queue_ids = [self.generator.randrange(2) for _ in range(self.generator.choice([2, 3]))]
        results = self.store.put_together(
            [message(TOPICS[1], queue_id, self.body()[:300]) for queue_id in queue_ids]
        )
        if results[0].ok and not self.files.dead:
            owed = [
                self.accepted(TOPICS[1], queue_id, result.queue_offset, result.physical_offset)
                for queue_id, result in zip(queue_ids, results, strict=True)
            ]
            await self.wait(results[-1], owed)

    async def expire(self) -> None:
        """The disk fills up: retention removes the oldest files."""
        if self.generator.random() < 0.7:
            return
        self.files.told_used_ratio = self.generator.choice([0.87, 0.95])
        await trio.sleep(self.generator.choice([20, 80]))
        self.files.told_used_ratio = None

    def accepted(self, topic: str, queue_id: int, offset: int, position: int) -> tuple[Key, int]:
        record = self.store.record_at(position)
        assert record is not None
        key = (topic, queue_id, offset)
        self.wanted.note(key, position, record)
        return key, position

    async def wait(self, result: PutResult, batch: list[tuple[Key, int]]) -> None:
        status = await self.store.wait_durable(result)
        if self.store.needs_wait:
            self.told(batch, status)

    def told(self, batch: list[tuple[Key, int]], status: PutStatus) -> None:
        """How the wait for some messages ended."""
        if status is PutStatus.PUT_OK:
            self.synced(batch)

    def synced(self, batch: list[tuple[Key, int]]) -> None:
        """Some messages are durable, unless their topic was deleted meanwhile."""
        for key, position in batch:
            owed = self.wanted.accepted.get(key)
            if owed is not None and owed[0] == position:
                self.wanted.durable[key] = owed
                self.check_durable(key, *owed)

    def check_durable(self, key: Key, position: int, record: bytes) -> None:
        """A power cut could come now."""
        if position >= self.store.min_physical_offset and not self.files.dead:
            at = position % self.store.config.mapped_file_size_commit_log
            path = f"commitlog/{position - at:020d}"
            assert self.files.is_durable(path, at, len(record)), (
                f"lost {key} at {position} if the power is cut when it is acknowledged"
            )

    async def flush(self) -> None:
        batch = [(key, position) for key, (position, _) in self.wanted.accepted.items()]
        try:
            await self.store.flush()
        except StoreError:
            return
        self.synced(batch)

    async def sleep(self) -> None:
        await trio.sleep(self.generator.choice([0.01, 0.3, 1, 5]))

    async def breathe(self) -> None:
        """Let a thread do a step or two."""
        for _ in range(self.generator.randrange(8)):
            await trio.lowlevel.checkpoint()

    async def save(self) -> None:
        """Write the configuration file anew."""
        async with self.saving:
            await self._save()

    async def _save(self) -> None:
        value = self.count * 100 + self.number
        self.wanted.config.add(value)
        try:
            if self.count % 2:
                await self.config.save(
                    {"value": value, "filling": "x" * self.generator.choice([1, 3000])}
                )
            else:
                self.config.store({"value": value})
        except StoreError:
            return
        self.wanted.config = {value}

    async def delete(self) -> None:
        """Delete a topic."""
        if self.generator.random() < 0.7:
            return
        self.wanted.deleting = True
        self.wanted.forget_topic(GONE)
        end = self.store.max_physical_offset
        try:
            await self.store.delete_topic(GONE)
        except StoreError:
            self.files.halt()
            return
        self.wanted.deleting = False
        self.wanted.deleted_below = end
