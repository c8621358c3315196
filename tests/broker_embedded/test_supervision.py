"""What fails in one service or table ends neither the broker nor the others."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.housekeeping import Housekeeping
from rocketmq_sdk.broker_embedded.part import AfterError, SavedTable, Service
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.queues.removed_queues import RemovedQueues
from rocketmq_sdk.broker_embedded.store.recovery.index_builder import IndexBuilder
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.broker_embedded.supervision import ServiceState, Supervisor
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ClosedError, RocketMQError, StoreError
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import call_services, open_broker, open_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

ERRORS = (OSError("no disk"), StoreError("commitlog: Input/output error"), ValueError("odd"))
PACKAGE = "rocketmq_sdk.broker_embedded."
SCHEDULE_RUN = PACKAGE + "timers.schedule.ScheduleService.run"
OF_STORE = {
    "retention": "store.retention.RetentionService.run",
    "flush of queues and index": "store.flush.queue_flusher.QueueFlusher.run",
    "removal of deleted queues": "store.queues.removed_queues.RemovedQueues.run",
    "building of the index": "store.recovery.index_builder.IndexBuilder.serve",
}
"""Services of the store, and what they run."""
OF_LOG = {
    "flush of the log": "store.flush.log_flusher.LogFlusher.run",
    "writing of the log again": "store.flush.log_flusher.LogFlusher.write_again",
}
HALF = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01"


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor(TrioClock(), lambda: None)


def failing(error: Exception, fails: Callable[[int], bool]) -> tuple[list[float], Any]:
    """A service that raises at the starts that `fails` names, and the times of all."""
    starts: list[float] = []

    async def run() -> None:
        starts.append(trio.current_time())
        await trio.sleep(1)
        if fails(len(starts)):
            raise error
        await trio.sleep(3600)
        raise error

    return starts, run


async def watch(supervisor: Supervisor, run: Callable[[], Awaitable[None]], seconds: float) -> None:
    with trio.move_on_after(seconds):
        await supervisor.run(Service("test service", run))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_service_that_fails_once_goes_on_and_is_well_after_a_minute(
    autojump_clock: MockClock,
    supervisor: Supervisor,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:
    starts, run = failing(error, lambda number: number == 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, supervisor, run, 1000)
        await trio.sleep(1.2)
        (seen,) = supervisor.health().services
        assert seen.state is ServiceState.WAITING
        assert str(error) in (seen.last_error or "")
        assert seen.since_ms is not None
        await trio.sleep(2)
        (seen,) = supervisor.health().services
        assert seen.state is ServiceState.RUNNING
        assert seen.last_error is not None
        await trio.sleep(70)
        (seen,) = supervisor.health().services
        assert (seen.state, seen.last_error) == (ServiceState.RUNNING, None)
        assert supervisor.health().reasons == ()
        nursery.cancel_scope.cancel()
    assert len(starts) == 2
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_one_that_always_fails_is_started_more_and_more_rarely(
    autojump_clock: MockClock,
    supervisor: Supervisor,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:
    starts, run = failing(error, lambda _number: True)
    await watch(supervisor, run, 600)
    gaps = [after - before for before, after in pairwise(starts)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 31
    assert len(caplog.records) == 1
    assert "test service" in caplog.text


async def test_each_distinct_error_is_told_once(
    autojump_clock: MockClock, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[int] = []

    async def run() -> None:
        starts.append(1)
        raise ERRORS[len(starts) % 2]

    await watch(supervisor, run, 600)
    assert len(starts) > 10
    assert len(caplog.records) == 2


async def test_errors_of_a_services_tasks_count_and_cancellation_passes(
    autojump_clock: MockClock,
    supervisor: Supervisor,
) -> None:
    async def run() -> None:
        async def child() -> None:
            raise OSError("in a task")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(trio.sleep_forever)

    with trio.move_on_after(5) as scope:
        await supervisor.run(Service("nest", run))
    assert scope.cancelled_caught
    assert supervisor.health().services[0].last_error == "OSError: in a task"


async def test_one_that_ends_is_shown_and_a_fatal_one_raises(
    autojump_clock: MockClock, supervisor: Supervisor
) -> None:
    async def ends() -> None:
        await trio.lowlevel.checkpoint()

    async def fatal() -> None:
        raise ValueError("the last one")

    await supervisor.run(Service("short", ends))
    assert supervisor.health().services[0].state is ServiceState.ENDED
    with pytest.raises(RocketMQError, match=r"fatal one of the embedded broker failed.*last one"):
        await supervisor.run(Service("fatal one", fatal, AfterError.END_BROKER))


async def test_one_on_call_has_its_task_from_when_it_is_called(
    autojump_clock: MockClock, supervisor: Supervisor
) -> None:
    starts: list[str] = []

    def service(name: str, on_call: OnCall) -> Service:
        async def run() -> None:
            starts.append(f"{name} {trio.current_time() - begin:g}")
            if len(starts) == 1:
                raise ValueError("odd")
            await trio.sleep_forever()

        return Service(name, run, on_call=on_call)

    begin = trio.current_time()
    before, never = OnCall(), OnCall()
    called, early, late = OnCall(7), OnCall(5), OnCall(9)
    before.call()
    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        for name in ("before", "called", "early", "late", "never"):
            supervisor.start(nursery, service(name, locals()[name]))
        outer.start_soon(supervisor.call_in_time)
        assert [str(each) for each in supervisor.health().services][-1] == "never running"
        await trio.sleep(0.1)
        assert starts == ["before 0"]
        assert supervisor.health().services[0].state is ServiceState.WAITING
        called.call()
        called.call()
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
            late.call()
            never.call()
            await trio.sleep(1)
    late.call()
    never.call()
    assert starts == ["before 0", "called 0.1", "before 0.5", "early 5"]


async def test_one_on_call_has_the_context_of_who_runs_services(
    autojump_clock: MockClock, supervisor: Supervisor
) -> None:
    of_whom, seen = ContextVar("of_whom", default="nobody"), list[str]()

    async def run() -> None:
        seen.append(of_whom.get())
        await trio.lowlevel.checkpoint()

    async def ask(on_call: OnCall) -> None:
        of_whom.set("a request")
        on_call.call()
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        on_call = OnCall()
        supervisor.start(nursery, Service("called", run, on_call=on_call))
        of_whom.set("somebody later")
        nursery.start_soon(ask, on_call)
    assert seen == ["nobody"]


async def test_one_that_is_called_after_an_error_has_ended_all_stays_where_it_is(
    autojump_clock: MockClock, supervisor: Supervisor
) -> None:
    on_call = OnCall()

    async def end_by_error() -> None:
        async with trio.open_nursery() as nursery:
            supervisor.start(nursery, Service("called", trio.sleep_forever, on_call=on_call))
            raise ValueError("odd")

    with pytest.raises(ExceptionGroup):
        await end_by_error()
    on_call.call()


async def test_a_job_that_fails_keeps_no_other_of_the_housekeeping_waiting(
    autojump_clock: MockClock,
) -> None:
    tries: list[float] = []

    def fails() -> bool:
        tries.append(trio.current_time())
        raise ValueError("odd")

    saved: list[float] = []

    async def save() -> None:
        saved.append(trio.current_time())

    def changed() -> bool:
        return True

    async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
        tables = [
            SavedTable("odd", lambda: 5000, save, fails),
            SavedTable("even", lambda: 5000, save, changed),
        ]
        supervisor = Supervisor(TrioClock(), lambda: None)
        supervisor.start(nursery, Housekeeping(broker.core, tables).service())
        nursery.start_soon(supervisor.call_in_time)
        await trio.sleep(601)
        nursery.cancel_scope.cancel()
    assert min(len(saved), len(tries)) > 15


async def test_a_clock_that_jumps_over_several_moments_has_all_called(
    mock_clock: MockClock, supervisor: Supervisor
) -> None:
    started: list[str] = []

    async def run(name: str) -> None:
        started.append(name)
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for after, name in ((5, "second"), (1, "first"), (1000, "later")):
            on_call = OnCall()
            on_call.after = after
            supervisor.start(nursery, Service(name, partial(run, name), on_call=on_call))
        nursery.start_soon(supervisor.call_in_time)
        await wait_all_tasks_blocked()
        mock_clock.jump(100)
        await wait_all_tasks_blocked()
        assert started == ["first", "second"]
        nursery.cancel_scope.cancel()


async def test_an_idle_broker_has_hardly_a_task(autojump_clock: MockClock) -> None:
    def tasks() -> int:
        found, left = 0, [trio.lowlevel.current_task()]
        while left:
            found += 1
            for nursery in left.pop().child_nurseries:
                left.extend(nursery.child_tasks)
        return found

    before = tasks()
    async with EmbeddedBroker() as broker:
        await trio.sleep(1)
        assert tasks() - before <= 3
        assert len(broker.health().services) > 15
        call_services(broker)
        await trio.sleep(1)
        assert tasks() - before > 15


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_the_broker_serves_while_a_service_fails_and_closes_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def broken() -> None:
        raise error

    monkeypatch.setattr(SCHEDULE_RUN, lambda _self: broken())
    for place in OF_STORE.values():
        monkeypatch.setattr(PACKAGE + place, lambda _self: broken())
    with trio.fail_after(600):
        async with open_broker() as (broker, peer):
            call_services(broker)
            for number in range(20):
                await peer.send("orders", b"%d" % number)
                assert await peer.pull("orders", number)
                await trio.sleep(10)
            health = broker.health()
            assert health
            answer = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = KVTable.decode(answer.body).table
            assert table["embeddedBrokerHealth"] == str(health)
            for name in ("schedule service", *OF_STORE):
                assert f"the {name} is waiting to be started again" in str(health)
                assert f"{name} waiting to be started again after: " in str(
                    table["embeddedBrokerServices"]
                )
            assert "flush of the log running" in str(table["embeddedBrokerServices"])
            begin = trio.current_time()
    assert trio.current_time() - begin < 1


async def test_what_a_service_of_the_store_had_begun_is_gone_on_with_after_an_error(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def fail_once(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def once(self: object, *arguments: object) -> object:
            if name not in failed:
                failed.append(name)
                raise ValueError("odd")
            return real(self, *arguments)

        monkeypatch.setattr(owner, name, once)

    files = MemoryFileSystem(write_through=True)
    async with open_on(files) as (broker, peer):
        await peer.send("orders", b"1", properties="KEYS\x01key\x02")
    files.remove_tree("index")
    files.write("abort", b"")
    fail_once(IndexBuilder, "_build")
    fail_once(RemovedQueues, "_remove")
    async with open_on(files) as (broker, peer):
        await trio.sleep(5)
        assert len((await broker.core.store.query("orders", "key", 10)).records) == 1
        delete = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "orders"})
        assert (await peer.ask(delete)).code == 0
        await trio.sleep(5)
        assert failed == ["_build", "_remove"]
        assert files.directory_names("consumequeue") == []


@pytest.mark.parametrize("name", OF_LOG)
async def test_a_log_that_can_no_longer_be_trusted_ends_the_broker_by_name(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def broken() -> None:
        raise ValueError("odd")

    monkeypatch.setattr(PACKAGE + OF_LOG[name], lambda _self: broken())
    told = f"the {name} of the embedded broker failed.*odd"
    with pytest.raises(RocketMQError, match=told):  # noqa: PT012 - leaving the block raises
        async with EmbeddedBroker() as broker:
            call_services(broker)
            await trio.sleep(60)


async def test_only_an_open_broker_tells_its_health(autojump_clock: MockClock) -> None:
    broker = EmbeddedBroker()
    with pytest.raises(ClosedError):
        broker.health()
    async with broker:
        assert str(broker.health()) == "taking messages"
        names = [service.name for service in broker.health().services]
        assert "schedule service" in names
        assert len(set(names)) == len(names)


# --- tables


async def test_a_table_that_fails_keeps_no_other_from_being_saved(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved: list[str] = []
    real = ConfigFile.save

    async def save(file: ConfigFile, value: object) -> None:
        if file.name == "consumerOffset.json":
            "\ud800".encode()
        saved.append(file.name)
        await real(file, value)

    with pytest.raises(UnicodeEncodeError):  # noqa: PT012 - leaving the block raises
        async with open_broker() as (broker, peer):
            monkeypatch.setattr(ConfigFile, "save", save)
            await peer.send("orders", b"1", properties="DELAY\x011\x02")
            broker.core.offsets.commit("CG", "orders", 0, 1)
            await trio.sleep(60)
            assert "delayOffset.json" in saved
            assert "consumer offsets" in str(broker.health())
            assert caplog.text.count("consumer offsets could not be written") == 1
            await peer.send("orders", b"2", properties="DELAY\x011\x02")
            await trio.sleep(2)
            saved.clear()
    assert "delayOffset.json" in saved
    assert "while closing" in caplog.text
    assert caplog.text.count("consumer offsets could not be written") >= 2


async def test_a_disk_that_hangs_in_one_table_holds_no_other_up(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFileSystem(blocking=True)
    ended: dict[str, float] = {}
    async with open_on(files) as (broker, peer):
        hanging = files.faults.slow(Operation.SYNC, "config/consumerOffset.json*", delay=300)

        async def change(number: int) -> None:
            await peer.send("orders", b"1", properties="DELAY\x011\x02")
            broker.core.offsets.commit("CG", "orders", 0, number)

        def note(path: str, _data: bytes, _offset: int) -> None:
            ended[path] = autojump_clock.current_time() - began

        files.on_write, began = note, trio.current_time()
        await change(1)
        await trio.sleep(20)
        assert hanging.hits == 1
        first = ended["config/delayOffset.json.new"]
        await change(2)
        await trio.sleep(20)
        assert hanging.hits == 1
        assert 10 < ended["config/delayOffset.json.new"] - first <= 20
        await trio.sleep(300)
        await change(3)
        await trio.sleep(2)
        began = trio.current_time()
    assert trio.current_time() - began > 200
    assert ended["config/delayOffset.json.new"] < 1
    assert "consumer offsets could not be written in time" in caplog.text
    async with open_on(files) as (broker, _peer):
        assert broker.core.offsets.offsets_of("CG", "orders") == {0: 2}


async def test_slow_unregistering_does_not_skip_the_last_save(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[float] = []
    async with open_broker() as (broker, _peer):

        async def slow(*_args: object) -> None:
            await trio.sleep(100)

        async def note() -> None:
            saves.append(trio.current_time())

        monkeypatch.setattr(type(broker.parts.registration), "leave", slow)
        broker._tables[0] = broker._tables[0]._replace(save=note, changed=lambda: True)
        begin = trio.current_time()
    assert trio.current_time() - begin <= 10
    assert len(saves) == 2


def test_files_hold_a_question_mark_for_what_utf8_cannot_write() -> None:
    files = MemoryFileSystem(1 << 20)
    file = ConfigFile(files, "odd.json")
    file.store({"a\ud800": "\udfff", "pair": "\ud83d\ude00"})
    assert ConfigFile(files, "odd.json").load() == {"a?": "?", "pair": "\U0001f600"}


# --- services go on behind what they cannot read


async def test_giving_up_a_transaction_waits_for_a_full_disk(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"transaction_check_max": 1, "transaction_check_interval": 300}
    files = MemoryFileSystem()
    async with open_on(files, transaction_time_out=100, **settings) as (broker, peer):
        await peer.send("orders", b"half", properties=f"{HALF}U\x02", sys_flag=4)
        with monkeypatch.context() as patch:

            def full(_file: ConfigFile, _value: object) -> None:
                raise StoreError("topics.json cannot be written: No space left on device")

            patch.setattr(ConfigFile, "store", full)
            await trio.sleep(30)
            assert len(broker.parts.transactions.table) == 1
            assert "No space left on device" in str(broker.health())
            await peer.ask(RequestCode.GET_BROKER_CONFIG)
        await trio.sleep(5)
        assert len(broker.parts.transactions.table) == 0
        assert broker.health().reasons == ()
