"""The main thread gives trio its turns while it waits, and nothing breaks by it."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import sniffio
import trio

from rocketmq_sdk import (
    ClosedError,
    ConsumeFrom,
    Message,
    ReceivedMessage,
    WrongRunError,
)
from rocketmq_sdk.doors import turns
from rocketmq_sdk.sync import Admin, EmbeddedBroker, Producer, PushConsumer, SimpleConsumer, signals
from rocketmq_sdk.sync.run import Call
from rocketmq_sdk.sync.signals import PostponedSignals
from support.waiting import plain_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real_time
TOPICS = {"orders": "*"}
HAS_EPOLL = pytest.mark.skipif(not turns._known(), reason="trio has other parts here")


class InterruptedByTestError(Exception):
    """What a handler of a signal raises."""


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 60
    while [t for t in threading.enumerate() if "rocketmq_sdk" in t.name]:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def turns_given(producer: Producer) -> int:
    """How often the main thread has given turns."""
    assert producer._run is not None
    return producer._run.driving._driven


def send_until_driven(producer: Producer) -> None:
    """Send until the main thread gives turns itself."""
    before = turns_given(producer)
    while turns_given(producer) < before + 3:
        producer.send(Message("orders", b"first"))


@HAS_EPOLL
@pytest.mark.parametrize("tcp", [False, True])
def test_the_main_thread_gives_turns_itself_and_the_keeper_goes_on_without_it(tcp: bool) -> None:
    seen: Counter[bytes] = Counter()
    listen = {"listen": 0, "namesrv_listen": 0} if tcp else {}

    def listener(message: ReceivedMessage) -> None:
        seen[message.body] += 1

    with (
        EmbeddedBroker(**listen) as broker,
        Producer("shop", namesrv=broker.namesrv_address if tcp else broker) as producer,
        PushConsumer(
            "g",
            namesrv=broker.namesrv_address if tcp else broker,
            subscriptions=TOPICS,
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ),
    ):
        send_until_driven(producer)
        offsets = Counter(
            producer.send(Message("orders", b"%d" % number)).queue.queue_id for number in range(300)
        )
        assert sum(offsets.values()) == 300
        handles = [producer.submit(Message("orders", b"later %d" % n)) for n in range(300)]
        assert len({handle.result().message_id for handle in handles}) == 300
        # The last one is not waited for, and nobody calls any more.
        producer.submit(Message("orders", b"alone"))
        deadline = time.monotonic() + 60
        while seen[b"alone"] + len(seen) < 603:
            assert time.monotonic() < deadline, len(seen)
            time.sleep(0.002)
    assert not trio.lowlevel.in_trio_run()


@pytest.fixture
def _may_interrupt_finalizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a handler raises in the middle of a finalizer comes out of no call."""
    told = sys.unraisablehook

    def tell(found: sys.UnraisableHookArgs) -> None:
        if found.exc_type is not InterruptedByTestError:
            told(found)

    monkeypatch.setattr(sys, "unraisablehook", tell)


@HAS_EPOLL
@pytest.mark.usefixtures("_may_interrupt_finalizers")
def test_what_a_handler_raises_comes_out_of_the_call_and_breaks_nothing() -> None:
    """A signal each half millisecond, in the middle of whatever runs."""

    def handler(_number: int, _frame: object) -> None:
        if storm:  # a call that ends it may be interrupted, an assignment cannot
            raise InterruptedByTestError

    stored, interrupted, begun, storm = 0, 0, time.monotonic(), True
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with (
            EmbeddedBroker(listen=0, namesrv_listen=0) as broker,
            Producer("a", namesrv=broker) as inside,
            Producer("b", namesrv=broker.namesrv_address) as outside,
        ):
            send_until_driven(inside)
            outside.send(Message("orders", b"first"))
            driven = turns_given(inside)
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            try:
                while interrupted < 200 and time.monotonic() - begun < 20:
                    try:
                        for producer in (inside, outside, inside):
                            producer.send(Message("orders", b"x"))
                            stored += 1
                    except InterruptedByTestError:
                        interrupted += 1
            except InterruptedByTestError:  # between the tries
                interrupted += 1
            finally:
                storm = False
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert signal.getsignal(signal.SIGALRM) is handler
            assert turns_given(inside) > driven
            for producer in (inside, outside):
                assert producer.send(Message("orders", b"last")).queue_offset >= 0
            producer.flush()
            assert producer.in_flight == 0
    finally:
        storm = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    assert stored


@HAS_EPOLL
def test_ctrl_c_ends_a_call_that_the_main_thread_helps() -> None:
    with (
        EmbeddedBroker(listen=0, namesrv_listen=0, auto_create_topic_enable="false") as broker,
        Producer(
            "shop", namesrv=broker.namesrv_address, retry_until_deadline=True, send_timeout=30
        ) as producer,
        EmbeddedBroker() as other,
        Producer("other", namesrv=other) as quick,
    ):
        for _ in range(3):
            send_until_driven(quick)
            interrupt = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at once
                interrupt.start()
                producer.send(Message("absent", b"1"))
            assert time.monotonic() - began < 25  # the send itself takes 30
            interrupt.join()
            producer.flush()
            assert producer.in_flight == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@HAS_EPOLL
def test_handlers_that_raise_nothing_are_called_once_each() -> None:
    called: list[int] = []

    def handler(number: int, _frame: object) -> None:
        called.append(number)
        producer.send(Message("orders", b"of a handler"))  # may call, too

    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.signal(number, handler) for number in numbers]
    try:
        with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            send_until_driven(producer)

            def select(queues: Any, _message: object, _key: object) -> Any:
                for number in numbers:
                    signal.raise_signal(number)  # in the middle of a turn
                assert not called
                return queues[0]

            while not called:
                send_until_driven(producer)
                driven = turns_given(producer)
                if turns_given(producer) == driven:
                    producer.send(Message("orders", b"1"), selector=select)
            assert sorted(called) == sorted(numbers)
            assert all(signal.getsignal(number) is handler for number in numbers)
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)


@HAS_EPOLL
def test_calls_from_within_are_refused_there_too() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:

        def select(queues: Any, _message: object, _key: object) -> Any:
            producer.send(Message("orders", b"inside"))

        send_until_driven(producer)
        with pytest.raises(WrongRunError, match="wait for itself"):
            producer.send(Message("orders", b"1"), selector=select)
        assert producer.send(Message("orders", b"2")).queue_offset >= 0


def test_the_main_thread_beside_others() -> None:
    with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        futures = [
            pool.submit(
                lambda: [producer.send(Message("orders", b"x")).message_id for _ in range(100)]
            )
            for _ in range(4)
        ]
        own = [producer.send(Message("orders", b"x")).message_id for _ in range(300)]
        assert len({*own, *(each for future in futures for each in future.result())}) == 700


def test_inside_a_run_of_trio_or_asyncio_the_main_thread_only_waits() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:

        async def main() -> None:
            before = turns_given(producer)
            for _ in range(10):
                producer.send(Message("orders", b"1"))
            assert turns_given(producer) == before
            await trio.lowlevel.checkpoint()

        trio.run(main)


def test_without_trios_private_parts_the_thread_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_known", lambda: False)
    with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
        SimpleConsumer("g", namesrv=broker, subscriptions=TOPICS) as consumer,
    ):
        for _ in range(10):
            producer.send(Message("orders", b"1"))
        assert producer.submit(Message("orders", b"2")).result(60).queue_offset >= 0
        assert turns_given(producer) == 0
        assert consumer.receive(await_duration=0.1) is not None


@pytest.mark.parametrize("driven", [True, False])
def test_a_run_that_fails_lets_everybody_go(driven: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("broken")

    broker = EmbeddedBroker(auto_create_topic_enable="false").__enter__()
    producer = Producer(
        "shop", namesrv=broker, retry_until_deadline=True, send_timeout=60
    ).__enter__()
    run = producer._run
    assert run is not None
    waiting = concurrent.futures.ThreadPoolExecutor(2)
    sends = [waiting.submit(producer.send, Message("absent", b"1")) for _ in range(2)]
    submitted = producer.submit(Message("absent", b"2"))
    while producer.in_flight < 3:
        time.sleep(0.001)
    if not driven:
        run.post(trio.lowlevel.spawn_system_task, broken)  # what nothing survives
    else:
        run.post(run.nursery.start_soon, broken)
    for future in (*sends, submitted):
        assert isinstance(future.exception(60), ClosedError)
    run._thread.join(60)
    with pytest.raises(ClosedError):
        producer.send(Message("orders", b"1"))
    with pytest.raises(ClosedError):
        producer.submit(Message("orders", b"1")).result(60)
    for each in (producer, broker):
        with pytest.raises(ClosedError):
            each.__exit__(None, None, None)
    waiting.shutdown()
    assert "has failed" in caplog.text
    with EmbeddedBroker() as again, Producer("shop", namesrv=again) as fresh:
        fresh.send(Message("orders", b"1"))


def test_a_call_that_is_interrupted_at_any_moment_ends() -> None:
    with EmbeddedBroker() as broker:
        run = broker._run
        assert run is not None
        at_once, never_begun, before = (Call(run, trio.sleep_forever) for _ in range(3))

        def begin_and_cancel() -> None:
            at_once.begin()
            at_once.cancel()

        run.post(begin_and_cancel)
        run.post(never_begun.cancel)
        run.post(before.cancel)
        run.post(before.begin)
        for call in (at_once, never_begun, before):
            assert call.wait(60)
            # A waiter that was interrupted when it had the lock keeps it.
            call._finished.acquire(blocking=False)
            assert call.wait(60)
            with pytest.raises(ClosedError, match="cancelled"):
                call.outcome()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gives_no_turns_and_does_not_wait_for_its_parents_futures() -> None:
    with (
        EmbeddedBroker(auto_create_topic_enable="false") as broker,
        Producer("shop", namesrv=broker, retry_until_deadline=True) as producer,
    ):
        Admin(client=producer.client).topics.create("orders")
        send_until_driven(producer)
        handle = producer.submit(Message("absent", b"1"), timeout=1)
        producer.send(Message("orders", b"1"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:  # pragma: no cover
            status = 1
            try:
                for call in (handle.result, handle.exception, handle.settled, producer.flush):
                    with pytest.raises(WrongRunError, match="forked"):
                        call()
                status = 7
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert handle.exception(60) is not None


def test_a_thread_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            EmbeddedBroker().__enter__()
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        producer.send(Message("orders", b"1"))


def test_handlers_are_put_back_though_each_of_them_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a storm of signals: whatever is called while they are put back raises."""
    put, before = signals.signal, {n: signal.getsignal(n) for n in signal.valid_signals()}
    postponed = PostponedSignals(lambda: None)

    def storm(number: int, handler: Any) -> None:
        put(number, handler)
        if handler is before[number]:
            raise InterruptedByTestError

    monkeypatch.setattr(signals, "signal", storm)
    postponed.postpone()
    with pytest.raises(InterruptedByTestError):
        postponed.resume()
    assert not postponed.busy
    assert {n: signal.getsignal(n) for n in signal.valid_signals()} == before


def test_other_threads_cannot_postpone_and_do_without() -> None:
    def opened() -> int:
        with pytest.raises(ValueError, match="main thread"):
            PostponedSignals(lambda: None).postpone()
        with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            return producer.send(Message("orders", b"1")).queue_offset

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(opened).result(60) == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@HAS_EPOLL
def test_threads_of_listeners_give_turns_themselves_and_may_send() -> None:
    go_on, seen, failures = threading.Event(), Counter[str](), list[BaseException]()

    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:

        def listener(message: ReceivedMessage) -> None:
            seen[message.topic] += 1
            number = int(message.body)
            try:
                assert not trio.lowlevel.in_trio_run()
                assert sniffio.thread_local.name is None
                if message.topic == "orders" and number % 10 == 0:
                    producer.send(Message("copies", message.body))
                elif message.topic == "orders" and number % 10 == 1:
                    producer.submit(Message("copies", message.body))
                if number == 177:
                    assert go_on.wait(60)
            except BaseException as error:
                failures.append(error)
                raise

        def consumed(number: int) -> bool:
            assert not failures
            return consumer.statistics().consumed == number

        for number in range(300):
            producer.submit(Message("orders", b"%d" % number))
        producer.flush()
        with PushConsumer(
            "g",
            namesrv=broker,
            subscriptions={"orders": "*", "copies": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            concurrency=3,
        ) as consumer:
            plain_until(lambda: consumed(359))  # all but the one that hangs
            # The thread that hangs may have been lent the turns.
            assert producer.send(Message("orders", b"2")).message_id
            plain_until(lambda: consumed(360))
            go_on.set()
            plain_until(lambda: consumed(361))
            assert producer._run is not None
            driving = producer._run.driving

            def send_until_lent() -> int:
                """Send where only the keeper gives turns, or who has got messages."""
                sent = 0
                while driving._returned == 0:
                    producer.send(Message("orders", b"3"))
                    sent += 1
                return sent

            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                sent = pool.submit(send_until_lent).result(60)
            plain_until(lambda: consumed(361 + sent))
    assert seen == {"orders": 301 + sent, "copies": 60}
