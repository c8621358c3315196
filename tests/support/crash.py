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

from random import Random

import attrs

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType, StoreConfig
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.crash_forks import Forks
from support.crash_index import check_entries
from support.crash_life import SPACE, TOPICS, Life
from support.crash_owed import Wanted, check, check_config, check_index, read_all
from support.crash_together import TogetherLife
from support.seeded import VirtualClock
from support.store import STORE_HOST, message

READ = ("*", "commitlog/*", "consumequeue/*", "index/*", "checkpoint", "cleanStop.json", "unsynced")
SYNC_FAILURES = 0.1
"""How many lives see a sync fail."""
LAST = 100
"""The number of the first life without a crash."""


def larger(config: StoreConfig, generator: Random) -> StoreConfig:
    """The same with room for many messages in a file, often."""
    slots = generator.choice([10, 50, 500, 500])
    return attrs.evolve(
        config,
        mapped_file_size_commit_log=generator.choice(
            [config.mapped_file_size_commit_log, 16384, 65536, 65536]
        ),
        flush_interval_consume_queue=generator.choice([config.flush_interval_consume_queue, 5000]),
        max_hash_slot_num=slots,
        max_index_num=4 * slots,
    )


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
    kind: type[Life],
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
            life = kind(store, files, wanted, generator, life_number)
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


def _arm(files: FaultyFileSystem, generator: Random, *, together: bool) -> None:
    """Choose when a life ends, and what fails before."""
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
    if together and generator.random() < 0.1:
        files.faults.fail(
            Operation.CREATE,
            "index/*",
            after=generator.randrange(4),
            times=generator.choice([1, 3]),
        )


async def run_seed(seed: int, *, forks: int = 0, together: bool = True) -> int:
    """One run of several lives, each with so many power cuts beside it; gives the
    number of crashes and of these. Raises `AssertionError` for what the store got
    wrong. Without `together`, no more than a few messages come at once.
    """
    generator, beside = Random(seed), Forks(seed, forks)
    config = make_config(generator)
    if together:
        config = larger(config, generator)
    files = FaultyFileSystem(
        seed, page_size=generator.choice([512, 512, 4096]), blocking=generator.random() < 0.7
    )
    files.write_back_chance = generator.choice([0, 0, 0.3])
    wanted = Wanted()
    killed = False
    crashes = 0
    for life_number in range(generator.choice([1, 2, 2, 3])):
        _arm(files, generator, together=together)
        clean = await _live(
            life_number,
            files,
            config,
            wanted,
            generator,
            killed=killed,
            steps=generator.choice([0, 1, 30, 60]),
            forks=beside,
            kind=TogetherLife if together else Life,
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
    for number in range(2):
        await _last_life(number, files, config, wanted, generator, together=together, killed=killed)
    return crashes


async def _last_life(
    number: int,
    files: FaultyFileSystem,
    config: StoreConfig,
    wanted: Wanted,
    generator: Random,
    *,
    together: bool,
    killed: bool,
) -> None:
    """One life without faults and its clean end, looked at from every side."""
    store = MessageStore(config, files, VirtualClock(), STORE_HOST)
    files.on_write = wanted.saw_write
    async with store:
        check(store, wanted, killed=killed)
        check_config(files, wanted)
        await check_index(store, wanted, generator)
        if together:
            life = TogetherLife(store, files, wanted, generator, LAST + number)
            life.lost = 0.0
            for _ in range(3):
                await life.put_run()
                await life.put_alike()
            await life.trickle()
            await life.catch_up()
            await check_index(store, wanted, generator)
        assert store.put(message(TOPICS[0], 0, b"still alive", tag="TagA")).ok
        await store.flush()
        check(store, wanted, killed=True)
        log = read_all(store)[1]
    findings = [
        finding
        for finding in verify(FileSystemReader(files)).findings
        if finding.kind != "properties"
    ]
    assert not findings, findings[:5]
    check_entries(files, config, log, wanted.damaged)
