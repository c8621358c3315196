"""Lives and deaths of timers, chosen by a seed: the engine of their crash suite.

As in `support.crash`, one run opens a store on a `FaultyFileSystem`, here with its
timer service, sends timers, and ends in the middle of an operation by a power cut or a
kill, a few times. What has to be: every timer that was acknowledged (SYNC_FLUSH; before
a kill: accepted) comes, at least once, and none before its time; nothing comes that was
not sent; the wheel's files never keep a store from opening.
"""

from __future__ import annotations

from random import Random

import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType, StoreConfig
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import Arrival, PutStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader, StoreReport
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
from rocketmq_sdk.broker_embedded.timers.messages import redirect_to_timer, slot_time_of
from rocketmq_sdk.broker_embedded.timers.service import TimerService
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.crash import forgot_log
from support.seeded import VirtualClock
from support.store import STORE_HOST, message

TOPIC = "TopicA"
WINDOW = 40
SPACE = 1 << 40


class Owed:
    """What has to come."""

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        """Every timer that was sent, and its moment."""
        self.accepted: set[bytes] = set()
        self.durable: set[bytes] = set()
        self.came: set[bytes] = set()


class Life:
    """What one process does until it ends."""

    def __init__(
        self,
        files: FaultyFileSystem,
        config: StoreConfig,
        clock: VirtualClock,
        owed: Owed,
        generator: Random,
        number: int,
    ) -> None:
        self.files = files
        self.clock = clock
        self.owed = owed
        self.generator = generator
        self.number = number
        self.count = 0
        self.store = MessageStore(config, files, clock, STORE_HOST)
        self.timers: TimerService

    async def live(self, steps: int, *, until_ms: int = 0) -> bool:
        """Work; gives whether the end was a clean stop."""
        try:
            async with self.store:
                self.timers = TimerService(
                    self.store, ConfigFile(self.files, "timermetrics"), self.clock, BrokerStats()
                )
                self.timers.load()
                self._see_what_is_there()
                self.store.arrivals += [self._arrived, self.timers.on_arrival]
                async with open_quiet_nursery() as nursery:
                    nursery.start_soon(self.timers.run)
                    await self._work(steps)
                    if not self.files.dead and self.clock.now_ms() < until_ms:
                        await trio.sleep((until_ms - self.clock.now_ms()) / 1000)
                    if self.generator.random() < 0.6 and not until_ms:
                        self.files.halt()
                    await self.timers.close()
                    await self.timers.persist()
                    nursery.cancel_scope.cancel()
        except StoreError as error:
            if not (self.files.dead or self.files.faults or self.files.limit_bytes < SPACE):
                raise AssertionError(f"the store could not be opened: {error}") from error
            self.files.halt()
        return not self.files.dead and not self.files.exists("abort")

    def _see_what_is_there(self) -> None:
        """What a power cut left of the deliveries."""
        self.owed.came = set()
        for offset in range(self.store.min_offset(TOPIC, 0), self.store.max_offset(TOPIC, 0)):
            unit = self.store.queue_unit(TOPIC, 0, offset)
            assert unit is not None
            self._check(unit[0], unit[1])

    def _arrived(self, arrival: Arrival) -> None:
        if arrival.topic == TOPIC and not self.files.dead:
            self._check(arrival.physical_offset, arrival.size)

    def _check(self, position: int, size: int) -> None:
        record = self.store.record_at(position, size)
        assert record is not None
        found = decode_message(record, inflate=False)
        assert found.body in self.owed.due, f"{found.body!r} was never sent"
        assert found.store_timestamp >= self.owed.due[found.body], (
            f"{found.body!r} is {self.owed.due[found.body] - found.store_timestamp} ms early"
        )
        self.owed.came.add(found.body)

    async def _work(self, steps: int) -> None:
        for _ in range(steps):
            if self.generator.random() < 0.7:
                await self._send()
            else:
                await trio.sleep(self.generator.choice([0.01, 0.3, 1.0, 1.5, 7.0]))
            if self.files.dead:
                return

    async def _send(self) -> None:
        """One to five timers, then the wait for the last."""
        batch: list[bytes] = []
        for _ in range(self.generator.choice([1, 1, 2, 5])):
            self.count += 1
            body = b"%d-%d" % (self.number, self.count)
            due = self.clock.now_ms() + self.generator.choice(
                [1, 700, 1000, 3000, 9000, 30_000, 70_000, 130_000]
            )
            timer = message(TOPIC, 0, body, properties={"UNIQ_KEY": body.decode()})
            redirect_to_timer(timer, slot_time_of(due, 1000))
            self.owed.due[body] = due
            result = self.store.put(timer)
            if result.ok and not self.files.dead:
                batch.append(body)
                self.owed.accepted.add(body)
        if batch and self.generator.random() < 0.7 and result.ok:
            status = await self.store.wait_durable(result)
            if status is PutStatus.PUT_OK and self.store.needs_wait:
                self.owed.durable.update(batch)


def make_config(generator: Random) -> StoreConfig:
    """Small files of several sizes, quick services, a wheel that turns often."""
    return StoreConfig(
        mapped_file_size_commit_log=generator.choice([2048, 4096, 65536]),
        mapped_file_size_consume_queue=generator.choice([200, 4000]),
        mapped_file_size_timer_log=generator.choice([120, 520, 4096, 65536]),
        timer_roll_window_slot=WINDOW,
        timer_flush_interval_ms=generator.choice([100, 1000, 5000]),
        flush_disk_type=generator.choice(
            [FlushDiskType.SYNC_FLUSH, FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH]
        ),
        flush_interval_commit_log=generator.choice([50, 500]),
        flush_commit_log_least_pages=generator.choice([0, 1]),
        flush_interval_consume_queue=generator.choice([20, 200]),
        message_index_enable=False,
        hot_bytes=generator.choice([4096, 65536]),
        allocation_step=4096,
    )


async def run_timer_seed(seed: int) -> int:
    """One run of several lives; gives the number of crashes. Raises `AssertionError`
    for what came too early, not at all, or from nowhere.
    """
    generator = Random(seed)
    config = make_config(generator)
    files = FaultyFileSystem(
        seed, page_size=generator.choice([512, 512, 4096]), blocking=generator.random() < 0.7
    )
    files.write_back_chance = generator.choice([0, 0, 0.3])
    owed, clock = Owed(), VirtualClock()
    crashes = 0
    for number in range(generator.choice([1, 2, 3])):
        files.cut_at = files.operations + generator.choice(
            [generator.randrange(1, 40), generator.randrange(1, 400), 10_000]
        )
        if generator.random() < 0.15:
            files.faults.fail(Operation.SYNC, after=generator.randrange(19), times=1)
        if generator.random() < 0.1:
            files.faults.fail(Operation.WRITE, after=generator.randrange(59), times=1)
        clean = await Life(files, config, clock, owed, generator, number).live(
            generator.choice([1, 10, 40])
        )
        unnoted = forgot_log(files)
        files.faults.clear()
        crashes += not clean
        if generator.random() < 0.7 or unnoted:
            if clean:
                owed.durable |= owed.accepted
            files = files.power_cut(generator.randrange(1 << 30))
            owed.accepted = set(owed.durable)
        else:
            files = files.kill()
        await trio.sleep(generator.choice([0, 0.5, 20, 200]))
    files.cut_at = None
    last = (
        max(clock.now_ms(), *owed.due.values()) + 300_000 if owed.due else clock.now_ms() + 300_000
    )
    assert await Life(files, config, clock, owed, generator, 99).live(3, until_ms=last)
    # The wheel is big: not each time.
    report = verify(FileSystemReader(files)) if seed % 7 == 0 else StoreReport()
    findings = [
        finding for finding in report.findings if finding.kind == "timer" or "timer" in finding.path
    ]
    assert not findings, findings[:5]
    missing = owed.accepted - owed.came
    assert not missing, f"{sorted(missing)[:5]} of {len(owed.accepted)} timers never came"
    return crashes
