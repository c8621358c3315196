"""Each message ends once, whatever happens to it, and leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import trio

from rocketmq_sdk.errors import (
    ClosedError,
    ConfigurationError,
    RocketMQError,
    RouteError,
    SendTimeout,
)
from rocketmq_sdk.producer.config import AutoBatch
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeaderV2
from support.peers import SILENT, ScriptedBroker, open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.producer.producer import Producer
    from rocketmq_sdk.protocol.command import Command


def nothing_is_left(producer: Producer) -> bool:
    return producer.in_flight == 0 and producer._under_way.bytes == 0


class Forbid:
    def check_forbidden(self, _context: Any) -> None:
        raise PermissionError("not allowed")


class Shaky:
    """Hooks and an interceptor that raise."""

    def before_send(self, _context: Any) -> None:
        raise ValueError("before")

    def after_send(self, _context: Any) -> None:
        raise ValueError("after")


class Refusing:
    def __init__(self, where: str) -> None:
        self.where = where

    def before(self, command: Command, _address: str | None) -> None:
        if self.where == "before" and command.code in (310, 320):
            raise ValueError("no signature")

    def after(self, command: Command, _response: Command, _address: str | None) -> None:
        if self.where == "after" and command.code in (310, 320):
            raise ValueError("no verification")


def odd_answer(broker: ScriptedBroker, **fields: str) -> Any:
    def step(_channel: Any, request: Command) -> Command:
        answer = broker.answer(SendMessageRequestHeaderV2.from_ext(request.ext_fields))
        answer.ext_fields.update(fields)
        return answer

    return step


@pytest.mark.parametrize(
    "fields", [{"queueOffset": "9" * 5000}, {"queueId": "x"}, {"queueOffset": ""}]
)
async def test_an_answer_that_cannot_be_read_ends_the_message(
    autojump_clock: MockClock, fields: dict[str, str]
) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.publish_queues("t")
        cluster.brokers[0].script = [odd_answer(cluster.brokers[0], **fields)]
        with pytest.raises(RocketMQError) as caught:
            await producer.send(message())
        assert caught.value.outcome_unknown
        assert nothing_is_left(producer)


async def test_what_nobody_foresaw_ends_the_message(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_arguments: Any) -> Any:
        raise AttributeError("a defect")

    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.publish_queues("t")
        monkeypatch.setattr("rocketmq_sdk.producer.outcome.send_result", broken)
        with pytest.raises(RocketMQError, match="a defect") as caught:
            await producer.send(message())
        assert caught.value.outcome_unknown
        assert nothing_is_left(producer)
    assert "cannot be used" in caplog.text


async def test_a_message_has_a_deadline_of_its_own(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A connection that neither answers nor minds the time of its calls.
    monkeypatch.setattr(
        "rocketmq_sdk.remoting.call_table.CallTable.fail_overdue", lambda *_: float("inf")
    )
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.publish_queues("t")
        cluster.brokers[0].script = [SILENT] * 3
        began = trio.current_time()
        handles = [producer.submit(message(), timeout=seconds) for seconds in (3, 1, 2)]
        for handle in handles:
            with pytest.raises(SendTimeout) as caught:
                await handle
            assert caught.value.outcome_unknown
        assert trio.current_time() - began == pytest.approx(3, abs=0.2)
        assert nothing_is_left(producer)


@pytest.mark.parametrize("where", ["before", "after"])
async def test_an_interceptor_that_raises_ends_the_message(
    autojump_clock: MockClock, where: str
) -> None:
    async with open_cluster(brokers=1) as cluster:
        running = Running(cluster)
        running.client = cluster.client(interceptors=[Refusing(where)])
        async with running as producer:
            for send in (producer.send(message()), producer.send_batch([message()] * 2)):
                with pytest.raises((ValueError, RocketMQError)):
                    await send
            assert nothing_is_left(producer)


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_hooks_that_raise_cost_no_room(
    autojump_clock: MockClock, auto_batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, send_hooks=[Shaky()], auto_batch=auto_batch) as producer,
    ):
        await producer.send(message())
        await producer.flush()
        assert nothing_is_left(producer)


async def test_a_selector_that_raises_costs_no_room(autojump_clock: MockClock) -> None:
    def bad(*_arguments: Any) -> Any:
        raise LookupError("no queue for you")

    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with pytest.raises(LookupError):
            await producer.send(message(), selector=bad)
        assert nothing_is_left(producer)


class StopNowError(BaseException):
    """What ends programs is no `Exception`; assertions of some test tools are not."""


class Stopping:
    """A hook of each kind that raises it."""

    def stop(self, *_arguments: Any) -> Any:
        raise StopNowError

    before_send = check_forbidden = stop

    def after_send(self, _context: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("where", ["selector", "send_hooks", "forbidden_hooks"])
@pytest.mark.parametrize("auto_batch", [None, AutoBatch(max_bytes=1)])
async def test_what_is_no_exception_reaches_the_caller_and_costs_no_room(
    autojump_clock: MockClock, where: str, auto_batch: AutoBatch | None
) -> None:
    stopping = Stopping()
    hooks: dict[str, Any] = {} if where == "selector" else {where: [stopping]}
    aim: dict[str, Any] = {"selector": stopping.stop} if where == "selector" else {}
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, auto_batch=auto_batch, **hooks) as producer,
    ):
        await producer.publish_queues("t")
        with pytest.raises(StopNowError):
            producer.submit(message(), **aim)
        with pytest.raises(StopNowError):
            await producer.send(message(), **aim)
        assert nothing_is_left(producer)
        await producer.flush()
        assert not producer._hooks._contexts


class StoppingAtTheEnd:
    """It raises what is no exception when the messages with these bodies have ended."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = bodies
        self.told: list[bytes] = []

    def before_send(self, _context: Any) -> None:
        """Nothing."""

    def after_send(self, context: Any) -> None:
        self.told.append(context.message.body)
        if context.message.body in self.bodies:
            raise StopNowError


@pytest.mark.parametrize("refused", [False, True])
async def test_what_stops_the_program_at_the_end_of_one_message_leaves_no_other_without_an_end(
    autojump_clock: MockClock, refused: bool
) -> None:
    hook = StoppingAtTheEnd(b"30", b"31")
    handles = []

    async def run() -> None:
        async with Running(cluster, send_hooks=[hook]) as producer:
            for number in range(5):  # answers of one shape are cut from here on
                await producer.send(message(b"first %d" % number))
            if refused:
                cluster.brokers[0].script = [0] * 30 + [13] + [0] * 29
            handles.extend(producer.submit(message(b"%d" % number)) for number in range(60))
            await trio.sleep(10)

    async with open_cluster(brokers=1) as cluster:
        with pytest.raises(StopNowError):
            await run()
    assert [handle.done for handle in handles] == [True] * 60
    assert [handle.result is None for handle in handles].count(True) == refused
    assert len(hook.told) == 65


async def test_closing_ends_all_messages_whatever_hooks_raise(autojump_clock: MockClock) -> None:
    hook = StoppingAtTheEnd(b"1", b"3")
    handles = []

    async def run() -> None:
        async with Running(cluster, send_hooks=[hook]) as producer:
            await producer.publish_queues("t")
            handles.extend(producer.submit(message(b"%d" % number)) for number in range(5))
            await trio.sleep(0.5)
            raise KeyError

    async with open_cluster(brokers=1) as cluster:
        cluster.brokers[0].script = [SILENT] * 5
        with pytest.raises(StopNowError):
            await run()
    assert [handle.done for handle in handles] == [True] * 5
    assert sorted(hook.told) == [b"%d" % number for number in range(5)]


async def test_a_hook_that_gives_bad_properties_is_told_that_it_has_ended(
    autojump_clock: MockClock,
) -> None:
    class Careless:
        ended: ClassVar[list[object]] = []

        def before_send(self, context: Any) -> None:
            context.properties["trace"] = 7

        def after_send(self, context: Any) -> None:
            self.ended.append(context.error)

    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, send_hooks=[Careless()]) as producer,
    ):
        with pytest.raises(ConfigurationError, match="'trace': 7; give texts") as caught:
            await producer.send(message())
        assert Careless.ended == [caught.value]
        assert nothing_is_left(producer)
        assert not producer._hooks._contexts


async def test_flush_tells_of_a_refused_batch(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, auto_batch=True, forbidden_hooks=[Forbid()]) as producer,
    ):
        handles = [producer.submit(message()) for _ in range(5)]
        assert producer.in_flight == 5
        with pytest.raises(PermissionError):
            await producer.flush()
        assert nothing_is_left(producer)
        for handle in handles:
            with pytest.raises(PermissionError):
                await handle
        assert not cluster.brokers[0].sends


async def test_cancelling_takes_a_message_out_of_a_batch_that_has_not_left(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, auto_batch=AutoBatch(linger=1)) as producer,
    ):
        await producer.publish_queues("t")
        first = producer.submit(message(b"first"))
        with trio.move_on_after(0.1):
            await producer.send(message(b"cancelled"))
        last = producer.submit(message(b"last"))
        assert producer.in_flight == 2
        assert (await last).queue_offset == (await first).queue_offset + 1
        [(_, request, _)] = cluster.brokers[0].sends
        assert [body for _, body, _ in decode_batch(request.body)] == [b"first", b"last"]
        assert nothing_is_left(producer)


async def test_a_batch_whose_messages_were_all_taken_back_is_not_sent(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, auto_batch=AutoBatch(linger=1)) as producer,
    ):
        with trio.move_on_after(0.1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.send, message())
                nursery.start_soon(producer.send, message())
        assert nothing_is_left(producer)
        await trio.sleep(2)
        await producer.flush()
        assert not cluster.brokers[0].sends


async def test_a_topic_that_lost_its_writable_queues_between_two_attempts(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster() as cluster,
        Running(cluster, send_timeout_per_attempt=1.0, send_timeout=10) as producer,
    ):
        await producer.publish_queues("t")
        for broker in cluster.brokers:
            broker.script = [SILENT]
        handle = producer.submit(message())
        await trio.sleep(0.2)
        cluster.route("t", perm=4)
        await producer.client.routes.fetch("t")
        with pytest.raises(RouteError) as caught:
            await handle
        assert caught.value.outcome_unknown  # the first attempt may have been stored
        assert nothing_is_left(producer)


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_closing_ends_all_messages(autojump_clock: MockClock, auto_batch: bool) -> None:
    async with open_cluster(brokers=1) as cluster:
        cluster.brokers[0].script = [SILENT] * 9
        running = Running(cluster, auto_batch=auto_batch)
        producer = await running.__aenter__()
        await producer.publish_queues("t")
        handles = [producer.submit(message()) for _ in range(3)]
        await running.__aexit__(KeyError, KeyError(), None)
        for handle in handles:
            with pytest.raises(ClosedError):
                await handle
        assert nothing_is_left(producer)
