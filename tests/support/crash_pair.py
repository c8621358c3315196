"""Lives and deaths of a master and its slave, chosen by a seed: the crash suite for
replication.

Both stores live on faulty file systems and speak over a memory network. In each life
one of them, both or none dies in the middle of an operation, by a power cut or a kill;
and the disk of each may be full, or not be read, for some operations.
What has to hold: at the master what holds for a store alone; at the slave every message
whose put was answered by PUT_OK with two copies asked for, if the slave syncs what it
acknowledges or was only killed; no record that the master never had at its place; and
at the end both logs are equal as far as the slave's goes. A slave that is ahead of its
master, which only a master that does not sync can bring about, has to notice it, and is
emptied; so has one whose last records lost pages of their properties, which no check
sum covers.
"""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.broker_embedded.replication.slave import Slave, SlaveState
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.crash import make_config
from support.crash_life import TOPICS
from support.crash_owed import Key, Wanted, check, lost_only_properties, read_all
from support.crash_together import TogetherLife
from support.replication import ADDRESS, log_of, open_master, open_slave
from support.seeded import VirtualClock
from support.store import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

CATCH_UP = 300
FAILING = (Operation.READ, Operation.WRITE, Operation.ALLOCATE, Operation.CREATE, Operation.RENAME)
"""What fails on a disk that is full or cannot be read, for some operations."""


class PairLife(TogetherLife):
    """What happens at the master while its slave follows; a put that is answered well
    with both copies is owed by both.
    """

    replicated: dict[Key, tuple[int, bytes]]
    network: MemoryNetwork
    slave_files: FaultyFileSystem

    def kinds(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return [self.put] * 12 + [
            self.put_batch,
            self.put_alike,
            self.put_run,
            self.flush,
            self.sleep,
            self.sleep,
            self.breathe,
            self.interrupt,
        ]

    async def interrupt(self) -> None:
        """The network fails for a moment."""
        self.network.cut(ADDRESS)

    def told(self, batch: list[tuple[Key, int]], status: PutStatus) -> None:
        if status is not PutStatus.PUT_OK:
            return
        for key, _position in batch:
            self.replicated[key] = self.wanted.accepted[key]
        if self.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            self.synced(batch)


class Pair:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.generator = generator = Random(seed)
        self.seed = seed
        self.config: StoreConfig = attrs.evolve(
            make_config(generator), total_replicas=2, in_sync_replicas=2, slave_timeout=5000
        )
        self.sync = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.page_size = generator.choice([512, 512, 4096])
        self.blocking = generator.random() < 0.7
        self.master = self._fresh(seed)
        self.slave = self._fresh(seed + 1)
        self.wanted = Wanted()
        self.written: dict[int, set[bytes]] = {}
        self.replicated: dict[Key, tuple[int, bytes]] = {}
        self.master_killed = False
        self.slave_certain = True
        """Whether the slave lost nothing since it was looked at last."""
        self.torn = False
        """Whether the slave has records whose properties lost pages."""
        self.left_out = False
        """Whether reads failed so often that an index may leave out what it met."""
        self.crashes = 0
        self.emptied = 0

    def _fresh(self, seed: int) -> FaultyFileSystem:
        return FaultyFileSystem(seed, page_size=self.page_size, blocking=self.blocking)

    def _arm(self) -> None:
        """Choose who dies, and when."""
        generator = self.generator
        for files, chance in ((self.master, 0.6), (self.slave, 0.6)):
            files.cut_at = files.operations + generator.choice(
                [generator.randrange(1, 30), generator.randrange(1, 300)]
            )
            if generator.random() > chance:
                files.cut_at = None
            if generator.random() < 0.2:
                operation = generator.choice(FAILING)
                place = generator.choice(["*", "commitlog*", "consumequeue/*"])
                after, times = generator.randrange(40), generator.choice([1, 3, 20])
                code = generator.choice([errno.ENOSPC, errno.EIO])
                files.faults.fail(operation, place, after=after, times=times, code=code)
                self.left_out |= operation is Operation.READ and times > 3

    async def live(self, number: int, steps: int) -> None:
        """One life of both, in which the armed ones die."""
        network, clock = MemoryNetwork(), VirtualClock()
        self.master.on_write = self.wanted.saw_write
        try:
            async with open_master(network, self.master, self.config, clock) as (master, _service):
                check(master, self.wanted, killed=self.master_killed)
                self.remember()
                try:
                    async with open_slave(network, self.slave, self.config, clock) as (
                        slave,
                        following,
                    ):
                        self.check_slave(slave)
                        life = PairLife(master, self.master, self.wanted, self.generator, number)
                        life.replicated, life.network, life.slave_files = (
                            self.replicated,
                            network,
                            self.slave,
                        )
                        await life.work(steps)
                        self.judge(following)
                        if self.generator.random() < 0.5:
                            self.slave.halt()
                except StoreError:
                    assert self.slave.dead or self.slave.faults, (
                        "the slave's store failed without a fault"
                    )
                if self.generator.random() < 0.5:
                    self.master.halt()
        except StoreError:
            assert self.master.dead or self.master.faults, (
                "the master's store failed without a fault"
            )
        self.remember()

    def remember(self) -> None:
        """Records that the master wrote at any time, by position: recovery may cut some
        that a slave has.
        """
        for position, records in self.wanted.written.items():
            self.written.setdefault(position, set()).update(records)

    def judge(self, following: Slave) -> None:
        """A slave that syncs behind a master that syncs never differs from it.

        Behind another one it may, and its first report, which says where the comparison
        begins, counts as an acknowledgement at the master, as with Apache.
        """
        if following.state is SlaveState.DIVERGED:
            assert not self.sync or self.torn, following.problem
            self.replicated = {}

    def check_slave(self, store: MessageStore) -> None:
        """What a slave shows after a start."""
        found, log = read_all(store)
        for position, record in log.items():
            candidates = self.written.get(position, set())
            if record not in candidates:
                assert lost_only_properties(record, candidates), (
                    f"the slave's record at {position} was never the master's"
                )
                self.torn = True
        if self.sync or self.slave_certain:
            for key, (position, record) in self.replicated.items():
                assert key in found, (
                    f"the slave lost {key} at {position}, its log is "
                    f"[{store.min_physical_offset}, {store.max_physical_offset})"
                )
                assert found[key] == (position, record), f"the slave changed {key}"
        self.replicated = {
            key: value for key, value in self.replicated.items() if found.get(key) == value
        }
        self.slave_certain = True

    def die(self) -> None:
        """What is left of both for the next life."""
        generator = self.generator
        for files in (self.master, self.slave):
            files.faults.clear()
        self.crashes += self.master.dead + self.slave.dead
        self.master, self.master_killed = self._after(self.master, generator)
        if not self.master_killed:
            self.wanted.accepted = dict(self.wanted.durable)
        self.slave, certain = self._after(self.slave, generator)
        self.slave_certain = self.slave_certain and certain

    def _after(self, files: FaultyFileSystem, generator: Random) -> tuple[FaultyFileSystem, bool]:
        clean = not files.dead and not files.exists("abort")
        if generator.random() < 0.6:
            if clean and files is self.master:
                self.wanted.durable = dict(self.wanted.accepted)
            return files.power_cut(generator.randrange(1 << 30)), clean
        return files.kill(), True

    async def end(self) -> None:
        """A last life without faults: the slave catches up, or is known to be ahead and
        emptied; then both are equal and clean.
        """
        network, clock = MemoryNetwork(), VirtualClock()
        self.master.on_write = self.wanted.saw_write
        async with open_master(network, self.master, self.config, clock) as (master, _service):
            check(master, self.wanted, killed=self.master_killed)
            self.remember()
            if not await self._catch_up(network, master, clock):
                assert not self.sync or self.torn, (
                    "only a slave that lost pages of what it never acknowledged may differ"
                )
                self.slave, self.replicated = self._fresh(self.seed + 2), {}
                self.emptied += 1
                assert await self._catch_up(network, master, clock)
        for files in (self.master, self.slave):
            findings = [
                finding
                for finding in verify(FileSystemReader(files)).findings
                if finding.kind != "properties" and not (self.left_out and finding.kind == "index")
            ]
            assert not findings, findings[:5]

    async def _catch_up(
        self, network: MemoryNetwork, master: MessageStore, clock: VirtualClock
    ) -> bool:
        """Whether the slave came as far as its master; False when it found itself ahead
        or different.
        """
        async with open_slave(network, self.slave, self.config, clock) as (slave, following):
            self.check_slave(slave)
            if slave.min_physical_offset == slave.max_physical_offset > master.max_physical_offset:
                return False  # a file without a byte of its own, behind the end of the master's log
            with trio.fail_after(CATCH_UP):
                while following.state is not SlaveState.FOLLOWING:
                    if following.state in (SlaveState.DIVERGED, SlaveState.REFUSED):
                        whole = log_of(master)[
                            slave.min_physical_offset - master.min_physical_offset :
                        ]
                        assert not whole.startswith(log_of(slave)), (
                            f"nothing is wrong, but: {following.problem}"
                        )
                        return False
                    await trio.sleep(0.1)
                assert master.put(message(TOPICS[0], 0, b"still alive", tag="TagA")).ok
                await master.flush()
                await slave.dispatched.wait_reached(master.dispatched.value)
            await slave.flush()
            self.same(master, slave)
            return True

    def same(self, master: MessageStore, slave: MessageStore) -> None:
        """Log and queues of the slave are those of the master as far as they go."""
        assert (
            log_of(slave)
            == log_of(master)[slave.min_physical_offset - master.min_physical_offset :]
        )
        found, _log = read_all(slave)
        theirs, _log = read_all(master)
        assert found == {
            key: value for key, value in theirs.items() if value[0] >= slave.min_physical_offset
        }


async def run_pair_seed(seed: int) -> int:
    """One run of several lives; gives the number of deaths. Raises `AssertionError` for
    what went wrong.
    """
    pair = Pair(seed)
    for number in range(pair.generator.choice([1, 2, 2, 3])):
        pair._arm()
        await pair.live(number, pair.generator.choice([1, 15, 30]))
        pair.die()
    pair.master.cut_at = pair.slave.cut_at = None
    await pair.end()
    return pair.crashes
