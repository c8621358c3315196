"""A slave, or its master, on a disk that is full or fails for a while."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.replication import (
    caught_up,
    connected,
    in_state,
    log_of,
    open_master,
    open_slave,
    pair_config,
)
from support.store import bodies, message

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

SPACE = 1 << 40
FLUSHES = [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH]


class Sender:
    """Puts numbered messages at a master and notes which were acknowledged by both."""

    def __init__(self, master: MessageStore) -> None:
        self.master = master
        self.count = 0
        self.acknowledged: list[bytes] = []

    async def send(self, count: int = 1) -> list[PutStatus]:
        statuses = []
        for _ in range(count):
            body = b"%d " % self.count * 20
            self.count += 1
            result = self.master.put(message("TopicA", 0, body))
            status = await self.master.wait_durable(result)
            if status is PutStatus.PUT_OK:
                self.acknowledged.append(body)
            statuses.append(status)
            await trio.sleep(0.05)
        return statuses


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize(
    ("operation", "path", "code"),
    [
        pytest.param(None, "", 0, id="full"),
        pytest.param(Operation.ALLOCATE, "commitlog*", errno.ENOSPC, id="no space in the log"),
        pytest.param(Operation.WRITE, "commitlog/*", errno.ENOSPC, id="the log cannot grow"),
        pytest.param(Operation.WRITE, "commitlog/*", errno.EIO, id="the log cannot be written"),
        pytest.param(Operation.CREATE, "*", errno.ENOSPC, id="no new files"),
        pytest.param(Operation.WRITE, "consumequeue/*", errno.ENOSPC, id="queues cannot grow"),
        pytest.param(Operation.WRITE, "index/*", errno.ENOSPC, id="the index cannot grow"),
    ],
)
async def test_a_slave_whose_disk_fails_for_a_while_goes_on_by_itself(
    operation: Operation | None,
    path: str,
    code: int,
    flush: FlushDiskType,
    autojump_clock: MockClock,
) -> None:
    """The master tells senders the truth meanwhile; then both are equal."""
    network, files = MemoryNetwork(), FaultyFileSystem(1, blocking=True)
    config = pair_config(flush_disk_type=flush, slave_timeout=1000)
    async with open_master(network, config=config) as (master, service):
        sender = Sender(master)
        async with open_slave(network, files, config) as (slave, following):
            await connected(service)
            assert set(await sender.send(10)) == {PutStatus.PUT_OK}
            if operation is None:
                files.limit_bytes = files.used_bytes
            else:
                files.faults.fail(operation, path, code=code)
            statuses = await sender.send(60)
            if not path.startswith("index"):
                assert statuses[-1] is PutStatus.FLUSH_SLAVE_TIMEOUT
                await in_state(following, SlaveState.HELD_UP)
                assert "takes nothing now" in (following.problem or "")
                assert path.rstrip("/*") in (following.problem or "")
                assert following.may_serve
                assert not slave.needs_restart
                for replica in service.replicas.connected:
                    assert replica.acknowledged <= slave.dispatched.value
            shown = bodies(slave)
            assert shown == bodies(master)[: len(shown)]
            assert set(sender.acknowledged) <= set(shown)
            await trio.sleep(60)
            files.faults.clear()
            files.limit_bytes = SPACE
            await in_state(following, SlaveState.FOLLOWING)
            await caught_up(slave, master)
            assert set(await sender.send(20)) == {PutStatus.PUT_OK}
            await trio.sleep(1)
            assert [replica.acknowledged for replica in service.replicas.connected] == [
                master.max_physical_offset
            ]
            assert following.problem is None
            assert log_of(slave) == log_of(master)
            assert bodies(slave) == bodies(master)
        assert not files.exists("abort")
        assert not verify(FileSystemReader(files)).findings
        async with open_slave(network, files.power_cut(1), config) as (slave, _following):
            assert slave.started_clean
            assert bodies(slave) == bodies(master)


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.ALLOCATE, Operation.WRITE])
async def test_a_new_slave_without_space_for_its_first_bytes_begins_later(
    operation: Operation, autojump_clock: MockClock
) -> None:
    """It is sent the last file of the master, which by then may be another one."""
    network, files = MemoryNetwork(), FaultyFileSystem(1, blocking=True)
    config = pair_config(slave_timeout=1000)
    async with open_master(network, config=config) as (master, _service):
        sender = Sender(master)
        await sender.send(40)
        full = files.faults.fail(operation, "commitlog/*", code=errno.ENOSPC)
        async with open_slave(network, files, config) as (slave, following):
            await in_state(following, SlaveState.HELD_UP)
            await sender.send(40)
            assert slave.max_physical_offset == 0
            full.lift()
            await in_state(following, SlaveState.FOLLOWING)
            await caught_up(slave, master)
            assert set(await sender.send(20)) == {PutStatus.PUT_OK}
            assert slave.min_physical_offset > 0
            assert log_of(master).endswith(log_of(slave))
        async with open_slave(network, files.power_cut(1), config) as (slave, following):
            await in_state(following, SlaveState.FOLLOWING)
            assert log_of(master).endswith(log_of(slave))


@pytest.mark.parametrize("flush", FLUSHES)
async def test_a_slave_whose_sync_fails_stops_until_it_is_opened_again(
    flush: FlushDiskType, autojump_clock: MockClock
) -> None:
    network, files = MemoryNetwork(), FaultyFileSystem(1, page_size=512, blocking=True)
    files.makes_ahead = False
    config = pair_config(flush_disk_type=flush, slave_timeout=1000)
    async with open_master(network, config=config) as (master, service):
        sender = Sender(master)
        async with open_slave(network, files, config) as (slave, following):
            await connected(service)
            assert set(await sender.send(10)) == {PutStatus.PUT_OK}
            files.faults.fail(Operation.SYNC, "commitlog/*", times=1)
            with trio.fail_after(60):
                while following.state is not SlaveState.STOPPED:
                    await sender.send()
            assert slave.needs_restart
            assert (await sender.send())[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
            assert service.replicas.connected == ()
        async with open_slave(network, files.kill(), config) as (slave, following):
            await caught_up(slave, master)
            await in_state(following, SlaveState.FOLLOWING)
            assert set(await sender.send(5)) == {PutStatus.PUT_OK}
            assert bodies(slave) == bodies(master)


async def test_a_slave_that_cannot_read_its_own_log_waits_until_it_can(
    autojump_clock: MockClock,
) -> None:
    """The comparison needs its end."""
    network, files = MemoryNetwork(), FaultyFileSystem(1, blocking=True)
    config = pair_config(slave_timeout=1000)
    async with open_master(network, config=config) as (master, _service):
        sender = Sender(master)
        async with open_slave(network, files, config) as (slave, _following):
            await caught_up(slave, master)
            assert set(await sender.send(10)) == {PutStatus.PUT_OK}
        async with open_slave(network, files, config) as (slave, following):
            with files.faults.fail(Operation.READ, "commitlog/*") as bad:
                await in_state(following, SlaveState.HELD_UP)
                await trio.sleep(30)
                assert following.state is SlaveState.HELD_UP
                assert "Input/output error" in (following.problem or "")
                assert 1 < bad.hits < 100
            await in_state(following, SlaveState.FOLLOWING)
            assert set(await sender.send(10)) == {PutStatus.PUT_OK}
            assert bodies(slave) == bodies(master)


async def test_a_master_that_cannot_read_its_log_tells_and_serves_on_later(
    autojump_clock: MockClock,
) -> None:
    """A slave that comes later needs what is on the disk only."""
    network, files = MemoryNetwork(), FaultyFileSystem(1, blocking=True)
    config = pair_config(slave_timeout=1000, hot_bytes=4096)
    async with open_master(network, files, config) as (master, service):
        sender = Sender(master)
        async with open_slave(network, config=config) as (slave, _following):
            await connected(service)
            assert set(await sender.send(50)) == {PutStatus.PUT_OK}
        slave_files = FaultyFileSystem(2, blocking=True)
        async with open_slave(network, slave_files, config) as (slave, following):
            await caught_up(slave, master)
        await sender.send(50)
        with files.faults.fail(Operation.READ, "commitlog/*") as bad:
            async with open_slave(network, slave_files, config) as (slave, following):
                before = slave.max_physical_offset
                await trio.sleep(20)
                assert slave.max_physical_offset == before
                assert 1 < bad.hits < 100
                assert (await sender.send())[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
                bad.lift()
                await in_state(following, SlaveState.FOLLOWING)
                assert (await sender.send())[0] is PutStatus.PUT_OK
                assert log_of(master).endswith(log_of(slave))
