"""A master and its slave: the same bytes, the same messages, whatever happens in
between.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.broker_embedded.replication.wire import ReportReader, encode_head, encode_report
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.messages import Arrival, PutStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.replication import (
    ADDRESS,
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
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

SYNC = pair_config(flush_disk_type=FlushDiskType.SYNC_FLUSH)


def _files() -> MemoryFileSystem:
    return MemoryFileSystem(write_through=True)


def _put(store: MessageStore, count: int, size: int = 100) -> None:
    for number in range(count):
        body = b"%d " % number + b"x" * size
        assert store.put(
            message("TopicA", number % 2, body, tag="TagA", properties={"KEYS": f"k{number}"})
        ).ok


def _position(store: MessageStore, queue_id: int, offset: int) -> int:
    unit = store.queue_unit("TopicA", queue_id, offset)
    assert unit is not None
    return unit[0]


def _same(slave: MessageStore, master: MessageStore) -> None:
    assert log_of(slave) == log_of(master)[slave.min_physical_offset - master.min_physical_offset :]
    for queue_id in (0, 1):
        assert slave.max_offset("TopicA", queue_id) == master.max_offset("TopicA", queue_id)
        for offset in range(
            slave.min_offset("TopicA", queue_id), slave.max_offset("TopicA", queue_id)
        ):
            assert slave.queue_unit("TopicA", queue_id, offset) == master.queue_unit(
                "TopicA", queue_id, offset
            )


@pytest.mark.parametrize("config", [pair_config(), SYNC], ids=["async", "sync"])
async def test_a_slave_gets_every_byte_across_files(
    config: Any, autojump_clock: trio.testing.MockClock
) -> None:
    network, files = MemoryNetwork(), _files()
    async with (
        open_master(network, config=config) as (master, service),
        open_slave(network, files, config) as (slave, following),
    ):
        await connected(service)
        arrived: list[Arrival] = []
        slave.arrivals.append(arrived.append)
        for _ in range(5):
            _put(master, 20)
            with trio.fail_after(10):
                assert (
                    await master.wait_durable(master.put(message("TopicA", 0, b"end of round")))
                    is PutStatus.PUT_OK
                )
        await caught_up(slave, master)
        _same(slave, master)
        assert len(master._log.chain.files) > 3
        assert len(arrived) == 105
        assert bodies(slave, "TopicA", 1) == bodies(master, "TopicA", 1)
        assert following.state is SlaveState.FOLLOWING
        found = await slave.query("TopicA", "k7", 32)
        assert len(found.records) == 5
    assert not verify(FileSystemReader(files)).findings


async def test_an_empty_slave_gets_the_last_file_only_as_with_apache(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    async with open_master(network) as (master, _service):
        _put(master, 60)
        await trio.sleep(20)
        async with open_slave(network) as (slave, _following):
            await caught_up(slave, master)
            assert (
                slave.min_physical_offset
                == master.max_physical_offset - master.max_physical_offset % 4096
                > 0
            )
            _put(master, 40)
            await caught_up(slave, master)
            _same(slave, master)


async def test_a_slave_that_was_away_catches_up(autojump_clock: trio.testing.MockClock) -> None:
    network, files = MemoryNetwork(), _files()
    async with open_master(network) as (master, service):
        async with open_slave(network, files) as (slave, _following):
            await connected(service)
            _put(master, 30)
            await caught_up(slave, master)
        _put(master, 70)
        async with open_slave(network, files) as (slave, _following):
            await caught_up(slave, master)
            _same(slave, master)
            assert slave.min_physical_offset == 0
            assert network.cut(ADDRESS) == 1
            _put(master, 50)
            await caught_up(slave, master)
            _same(slave, master)
            assert len(service.replicas.connected) == 1


async def test_a_master_that_was_away_is_followed_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network, files = MemoryNetwork(), _files()
    async with open_slave(network) as (slave, following):
        await in_state(following, SlaveState.AWAY)
        assert following.may_serve, "there is nobody to compare with"
        for _ in range(3):
            async with open_master(network, files) as (master, _service):
                _put(master, 25)
                await caught_up(slave, master)
                _same(slave, master)
            await in_state(following, SlaveState.AWAY)
            assert following.may_serve


async def test_puts_wait_for_the_slave(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    async with open_master(network) as (master, _service):
        began = trio.current_time()
        assert (
            await master.wait_durable(master.put(message("TopicA")))
            is PutStatus.FLUSH_SLAVE_TIMEOUT
        )
        assert trio.current_time() - began == pytest.approx(3)
        assert (
            await master.wait_durable(master.put(message("TopicA")), wait_store_ok=False)
            is PutStatus.PUT_OK
        )
        async with open_slave(network) as (slave, _following):
            await caught_up(slave, master)
            assert await master.wait_durable(master.put(message("TopicA"))) is PutStatus.PUT_OK


async def test_too_few_in_sync_refuse_puts_before_they_are_stored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    config = pair_config(min_in_sync_replicas=2, ha_max_gap_not_in_sync=1000)
    async with open_master(network, config=config) as (master, _service):
        assert master.put(message("TopicA")).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert master.max_physical_offset == 0
        assert master.put(message("TopicA", properties={"WAIT": "false"})).ok
        async with open_slave(network) as (slave, _following):
            await caught_up(slave, master)
            await trio.sleep(1)
            assert await master.wait_durable(master.put(message("TopicA"))) is PutStatus.PUT_OK
            statuses = [master.put(message("TopicA", 0, b"x" * 400)).status for _ in range(5)]
            assert statuses[0] is PutStatus.PUT_OK
            assert statuses[-1] is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, (
                "the slave lacks more than it may"
            )


async def test_a_slave_takes_no_puts(autojump_clock: trio.testing.MockClock) -> None:
    async with open_slave(MemoryNetwork()) as (slave, _following):
        assert slave.put(message("TopicA")).status is PutStatus.SERVICE_NOT_AVAILABLE


async def test_a_slave_acknowledges_under_sync_flush_only_what_is_synced(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    async with (
        open_master(network) as (master, service),
        open_slave(network, config=SYNC) as (slave, following),
    ):
        await in_state(following, SlaveState.FOLLOWING)
        await slave._flusher._busy.acquire()  # the disk is slow
        _put(master, 3)
        await trio.sleep(1)
        assert slave.max_physical_offset == master.max_physical_offset
        assert [replica.acknowledged for replica in service.replicas.connected] == [0]
        assert slave.max_offset("TopicA", 0) == 0, "nobody reads what a power cut may take"
        slave._flusher._busy.release()
        await caught_up(slave, master)
        await trio.sleep(1)
        assert [replica.acknowledged for replica in service.replicas.connected] == [
            master.max_physical_offset
        ]


async def test_a_slave_ahead_of_its_master_takes_nothing_and_both_say_so(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    async with open_slave(network) as (slave, following):
        async with open_master(network) as (master, _service):
            _put(master, 10)
            await caught_up(slave, master)
        end = slave.max_physical_offset
        async with open_master(network) as (master, _service):
            # What a power cut leaves of a master that does not sync: the same
            # beginning.
            master.append_bytes(0, log_of(slave)[: _position(slave, 0, 4)])
            with caplog.at_level(logging.ERROR):
                await in_state(following, SlaveState.DIVERGED)
                await trio.sleep(30)
            assert "ahead of it by" in (following.problem or "")
            assert not following.may_serve
            assert slave.max_physical_offset == end
    assert any(
        "is refused: it has the log up to" in record.getMessage() for record in caplog.records
    )


async def test_a_slave_with_another_log_takes_nothing_until_it_fits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network, own = MemoryNetwork(), _files()
    async with open_slave(network) as (slave, following):
        async with open_master(network, own) as (master, _service):
            _put(master, 30)
            await caught_up(slave, master)
        end = slave.max_physical_offset
        async with open_master(network) as (master, _service):
            _put(master, 50)
            await in_state(following, SlaveState.DIVERGED)
            assert "they differ at" in (following.problem or "")
            assert not following.may_serve
            await trio.sleep(60)
            assert slave.max_physical_offset == end
        async with open_master(network, own) as (master, _service):
            await in_state(following, SlaveState.FOLLOWING)
            assert following.may_serve
            _put(master, 5)
            await caught_up(slave, master)
            _same(slave, master)


async def test_pieces_of_a_record_are_cut_off_at_a_clean_stop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    files = _files()
    async with open_master(MemoryNetwork()) as (master, _service):
        _put(master, 10)
        whole = log_of(master)
        start = _position(master, 1, 4)
    async with open_slave(MemoryNetwork(), files) as (slave, _following):
        slave.append_bytes(0, whole[: start + 50])
        assert (slave.max_physical_offset, slave.dispatched.value) == (start + 50, start)
        assert slave.max_offset("TopicA", 1) == 4
    assert not verify(FileSystemReader(files)).findings
    async with open_slave(MemoryNetwork(), files) as (slave, _following):
        assert slave.max_physical_offset == start
        slave.append_bytes(start, whole[start:])
        assert slave.max_offset("TopicA", 1) == 5


async def test_a_slave_opened_as_master_goes_on_where_its_master_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network, files = MemoryNetwork(), _files()
    async with (
        open_master(network) as (master, _service),
        open_slave(network, files) as (slave, _following),
    ):
        _put(master, 31)
        await caught_up(slave, master)
    async with open_master(network, files) as (promoted, _service):
        assert promoted.put(message("TopicA", 0, b"next")).queue_offset == 16
        assert bodies(promoted, "TopicA", 0)[-1] == b"next"


async def test_bytes_that_are_no_record_stop_the_slave_and_what_it_has_is_served(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A gap in the master's log: the protocol has no way over it."""
    network = MemoryNetwork()
    async with open_master(network) as (master, _service):
        _put(master, 10)
        whole = log_of(master)
    listener = network.listen(ADDRESS)
    async with open_slave(network) as (slave, following):
        stream = await listener.accept()
        assert await stream.receive_some(8) == encode_report(0)
        await stream.send_all(
            encode_head(0, len(whole)) + whole + encode_head(len(whole), 500) + bytes(500)
        )
        await in_state(following, SlaveState.STOPPED)
        assert f"position {len(whole)} is no record" in (following.problem or "")
        assert following.may_serve
        assert slave.max_offset("TopicA", 0) == 5


async def test_files_of_another_size_are_named(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    config = pair_config(mapped_file_size_commit_log=3000)
    async with (
        open_master(network, config=config) as (master, _service),
        open_slave(network) as (_slave, following),
    ):
        _put(master, 60)
        await in_state(following, SlaveState.STOPPED)
        assert "mappedFileSizeCommitLog" in (following.problem or "")


async def test_silence_ends_a_connection(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_master(network) as (_master, service),
        open_slave(network) as (_slave, following),
    ):
        await in_state(following, SlaveState.FOLLOWING)
        await trio.sleep(120)
        assert following.state is SlaveState.FOLLOWING, "heartbeats keep it alive"
        stream = await network.connect(ADDRESS)
        with trio.fail_after(60):
            began = trio.current_time()
            while await stream.receive_some(100):
                pass
        assert trio.current_time() - began == pytest.approx(20, abs=1)
        assert len(service.replicas.connected) == 1


async def test_a_master_that_falls_silent_is_left_and_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener = network.listen(ADDRESS)
    async with open_slave(network) as (_slave, following):
        await listener.accept()
        await in_state(following, SlaveState.FOLLOWING)
        await in_state(following, SlaveState.AWAY)
        assert "sent nothing for 20 s" in (following.problem or "")
        with trio.fail_after(10):
            await listener.accept()


async def test_a_silent_connection_gives_its_place_to_a_newcomer(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_sdk.broker_embedded.replication.master.MAX_CONNECTIONS", 2)
    network = MemoryNetwork()
    async with open_master(network) as (master, service):
        silent = [await network.connect(ADDRESS) for _ in range(2)]
        await trio.sleep(0.1)
        async with open_slave(network) as (slave, _following):
            _put(master, 5)
            await caught_up(slave, master)
            assert len(service.replicas.connected) == 2
        assert await silent[0].receive_some(1) == b""


@pytest.mark.parametrize("garbage", [encode_report(-5), b"\xff" * 64, encode_report(1 << 40)])
async def test_a_hostile_slave_disturbs_nobody(
    garbage: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    network = MemoryNetwork()
    async with (
        open_master(network) as (master, service),
        open_slave(network) as (slave, _following),
    ):
        stream = await network.connect(ADDRESS)
        await stream.send_all(garbage)
        with trio.fail_after(5):
            assert await stream.receive_some(1) == b""
        _put(master, 5)
        await caught_up(slave, master)
        assert service.replicas.most_acknowledged <= master.max_physical_offset


async def test_an_unforeseen_error_over_one_slave_ends_no_more_than_its_connection(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_reader: ReportReader, _data: bytes) -> int | None:
        raise ValueError("odd")

    network = MemoryNetwork()
    async with open_master(network) as (master, _role):
        _put(master, 10)
        with monkeypatch.context() as patch:
            patch.setattr(ReportReader, "feed", broken)
            stream = await network.connect(ADDRESS)
            await stream.send_all(encode_report(0))
            with trio.fail_after(60):
                assert await stream.receive_some(100) == b""
            await stream.aclose()
        assert "serving the slave" in caplog.text
        assert "ValueError: odd" in caplog.text
        async with open_slave(network) as (slave, _task):
            await caught_up(slave, master)
            _same(slave, master)


async def test_a_new_slave_gets_the_files_of_all_messages_that_somebody_waits_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Else it would acknowledge, by the position of later ones, messages that it does
    not have.
    """
    network = MemoryNetwork()
    statuses: list[PutStatus] = []
    async with open_master(network) as (master, _service), trio.open_nursery() as nursery:

        async def send() -> None:
            statuses.append(
                await master.wait_durable(master.put(message("TopicA", 1, b"waited for")))
            )

        nursery.start_soon(send)
        await trio.sleep(0.5)
        _put(master, 60)
        async with open_slave(network) as (slave, _following):
            await caught_up(slave, master)
            await trio.sleep(1)
            assert statuses == [PutStatus.PUT_OK]
            assert bodies(slave, "TopicA", 1)[0] == b"waited for"


async def test_a_slave_with_another_log_acknowledges_nothing_of_this_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network, other = MemoryNetwork(), _files()
    async with (
        open_slave(network, other) as (slave, _following),
        open_master(network) as (master, _),
    ):
        _put(master, 100)
        await caught_up(slave, master)
    statuses: list[PutStatus] = []
    async with open_master(network) as (master, service), trio.open_nursery() as nursery:

        async def send() -> None:
            statuses.append(await master.wait_durable(master.put(message("TopicA", 1, b"mine"))))

        nursery.start_soon(send)
        _put(master, 200)
        async with open_slave(network, other) as (_slave, following):
            await in_state(following, SlaveState.DIVERGED)
            await trio.sleep(10)
        assert statuses == [PutStatus.FLUSH_SLAVE_TIMEOUT]
        assert service.replicas.most_acknowledged == 0


async def test_the_first_report_asks_and_those_behind_it_acknowledge(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As a slave of Apache's reports: where its log ends, then again and again."""
    network = MemoryNetwork()
    async with open_master(network) as (master, service):
        _put(master, 10)
        end = master.max_physical_offset
        stream = await network.connect(ADDRESS)
        await stream.send_all(encode_report(end))
        await connected(service)
        [replica] = service.replicas.connected
        assert (replica.requested, replica.acknowledged, replica.sent) == (end, -1, end)
        assert service.replicas.in_sync(end) == 2, "its log is long enough for new messages"
        assert not service.replicas.have(end)
        await stream.send_all(encode_report(end))
        await trio.sleep(0.1)
        assert replica.acknowledged == end
        assert service.replicas.have(end)
        _put(master, 1)
        await trio.sleep(0.1)
        assert replica.sent == master.max_physical_offset
        await stream.aclose()


async def test_progress_is_secure_when_the_slaves_have_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    async with open_master(network) as (master, service):
        _put(master, 5)
        end = master.max_physical_offset
        await master.flush_log(end)
        assert not master.is_secure(end)
        began = trio.current_time()
        with pytest.raises(StoreError, match="not enough slaves have the log"):
            await master.secure(end)
        assert trio.current_time() - began == pytest.approx(master.config.slave_timeout / 1000)
        await master.secure(end, replicated=False)
        async with open_slave(network) as (slave, _following):
            await caught_up(slave, master)
            await connected(service)
            await master.secure(end)
            assert master.is_secure(end)
            _put(master, 1)
            assert not master.is_secure(master.max_physical_offset)
            await master.secure(master.max_physical_offset)
            assert slave.max_physical_offset == master.max_physical_offset
