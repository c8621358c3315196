"""Lives and deaths of a store, chosen by a seed: the engine of the crash suite.

One run opens a store on a `FaultyFileSystem`, works, and ends at a random operation: by
a power cut, by a kill, or by the failure of a sync; in a thread or on the loop. The
next life begins with what is left, which it may be unable to read, is checked, and may
be ended too: while it recovers, right after, or later. The last life is closed cleanly
and checked once more. What has to be there: all that was
acknowledged (under SYNC_FLUSH, by a completed `flush`, or because an earlier recovery
showed it; before a kill all that a put accepted). What must not be there: anything else
than what was written and not dropped since.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType, StoreConfig
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.crash_forks import Forks
from support.crash_owed import GONE, Key, Wanted, check, check_config, check_index, read_all
from support.seeded import VirtualClock
from support.store import STORE_HOST, message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

TOPICS = ("TopicA", "TopicB")
READ = ("*", "commitlog/*", "consumequeue/*", "index/*", "checkpoint", "cleanStop.json", "unsynced")
SPACE = 1 << 40
SYNC_FAILURES = 0.1
"""How many lives see a sync fail."""


def make_config(generator: Random) -> StoreConfig:
    """Small files of several sizes, quick services."""
    return StoreConfig(
        mapped_file_size_commit_log=generator.choice([2048, 4096, 16384]),
        mapped_file_size_consume_queue=generator.choice([60, 200, 1000, 4000]),
        flush_disk_type=generator.choice(
            [FlushDiskType.SYNC_FLUSH, FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH]
        ),
        flush_interval_commit_log=generator.choice([50, 500]),
        flush_commit_log_least_pages=generator.choice([0, 1]),
        flush_interval_consume_queue=generator.choice([20, 200]),
        flush_consume_queue_least_pages=generator.choice([0, 0, 2]),
        flush_consume_queue_thorough_interval=generator.choice([0, 400, 3000]),
        message_index_enable=generator.random() < 0.7,
        max_hash_slot_num=10,
        max_index_num=40,
        hot_bytes=generator.choice([4096, 65536]),
        allocation_step=4096,
    )


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


async def _live(
    life_number: int,
    files: FaultyFileSystem,
    config: StoreConfig,
    wanted: Wanted,
    generator: Random,
    *,
    killed: bool,
    steps: int,
    forks: Forks,
) -> bool:
    """One life; gives whether it ended with a clean stop."""
    store = MessageStore(config, files, VirtualClock(), STORE_HOST)
    files.on_write = wanted.saw_write
    try:
        async with store:
            check(store, wanted, killed=killed)
            check_config(files, wanted)
            forks.begin(files, store, wanted)
            await check_index(store, wanted, generator)
            life = Life(store, files, wanted, generator, life_number)
            life.config.load()
            await life.work(steps)
            if generator.random() < 0.6:
                files.halt()
    except StoreError as error:
        if not (files.dead or files.faults or files.limit_bytes < SPACE):
            raise AssertionError(f"the store could not be opened: {error}") from error
        files.halt()
    finally:
        files.told_used_ratio = files.on_step = None
        wanted.expired_below = max(wanted.expired_below, store.min_physical_offset)
    return not files.dead and not files.exists("abort")


def forgot_log(files: FaultyFileSystem) -> bool:
    """Whether a sync of the log failed and no note tells the next life of it: it may
    then begin only after a power cut.
    """
    return not files.exists("unsynced") and any(
        path.startswith("commitlog/")
        for fault in files.faults
        if fault.operation is Operation.SYNC
        for path in fault.paths
    )


async def _check_forks(forks: Forks, config: StoreConfig) -> int:
    """Recover from each power cut beside a life; gives their number."""
    taken = forks.take()
    for fork in taken:
        fork.files.on_write = fork.wanted.saw_write
        try:
            async with MessageStore(config, fork.files, VirtualClock(), STORE_HOST) as store:
                check(store, fork.wanted, killed=False)
                check_config(fork.files, fork.wanted)
                await check_index(store, fork.wanted, Random(fork.operation))
        except Exception as error:
            error.add_note(f"after a power cut before operation {fork.operation}")
            raise
    return len(taken)


async def run_seed(seed: int, *, forks: int = 0) -> int:
    """One run of several lives, each with so many power cuts beside it; gives the
    number of crashes and of these. Raises `AssertionError` for what the store got
    wrong.
    """
    generator, beside = Random(seed), Forks(seed, forks)
    config = make_config(generator)
    files = FaultyFileSystem(
        seed, page_size=generator.choice([512, 512, 4096]), blocking=generator.random() < 0.7
    )
    files.write_back_chance = generator.choice([0, 0, 0.3])
    wanted = Wanted()
    killed = False
    crashes = 0
    for life_number in range(generator.choice([1, 2, 2, 3])):
        files.cut_at = files.operations + generator.choice(
            [generator.randrange(1, 30), generator.randrange(1, 300), 10_000]
        )
        if generator.random() < SYNC_FAILURES:
            files.faults.fail(Operation.SYNC, after=generator.randrange(19), times=1)
        if generator.random() < 0.1:
            files.faults.fail(Operation.WRITE, after=generator.randrange(59), times=1)
        if generator.random() < 0.15:
            files.faults.fail(
                Operation.READ,
                generator.choice(READ),
                after=generator.choice([0, 0, generator.randrange(40)]),
                times=1,
            )
        if generator.random() < 0.1:
            files.limit_bytes = files.used_bytes + generator.randrange(40) * 1024
        clean = await _live(
            life_number,
            files,
            config,
            wanted,
            generator,
            killed=killed,
            steps=generator.choice([0, 1, 30, 60]),
            forks=beside,
        )
        crashes += await _check_forks(beside, config)
        unnoted = forgot_log(files)
        files.faults.clear()
        files.limit_bytes = SPACE
        crashes += not clean
        if generator.random() < 0.7 or unnoted:
            if clean:
                wanted.durable = dict(wanted.accepted)
            files, killed = files.power_cut(generator.randrange(1 << 30)), False
            wanted.accepted = dict(wanted.durable)
        else:
            files, killed = files.kill(), True
    files.cut_at = None
    for _ in range(2):
        store = MessageStore(config, files, VirtualClock(), STORE_HOST)
        files.on_write = wanted.saw_write
        async with store:
            check(store, wanted, killed=killed)
            check_config(files, wanted)
            await check_index(store, wanted, generator)
            assert store.put(message(TOPICS[0], 0, b"still alive", tag="TagA")).ok
            await store.flush()
            wanted.survived(*read_all(store))
        findings = [
            finding
            for finding in verify(FileSystemReader(files)).findings
            if finding.kind != "properties"
        ]
        assert not findings, findings[:5]
    return crashes
