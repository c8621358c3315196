"""The door for threads: blocks, errors, futures, listeners, forks, and the end."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import rocketmq_sdk
from rocketmq_sdk import (
    ClosedError,
    ConfigurationError,
    ConsumeFrom,
    ConsumeLater,
    Message,
    MessageQueue,
    ReceivedMessage,
    RouteError,
    TooManyRequestsError,
    TransactionState,
    WrongRunError,
)
from rocketmq_sdk.sync import (
    Admin,
    Client,
    EmbeddedBroker,
    LitePullConsumer,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from support.waiting import plain_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real_time
FIRST = ConsumeFrom.FIRST_OFFSET
TOPICS = {"orders": "*"}


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    plain_until(lambda: not [t for t in threading.enumerate() if "rocketmq_sdk" in t.name])


def test_a_send_and_all_that_is_open_ends_with_its_blocks() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        assert producer.send(Message("orders", b"1")).queue_offset == 0
        handle = producer.submit(Message("orders", b"2"))
        assert isinstance(handle, concurrent.futures.Future)
        assert handle.result(60).message_id == handle.message_id
        assert handle.done()
        assert not handle.cancel()
        producer.flush()
        assert producer.in_flight == 0
    with pytest.raises(ClosedError):
        producer.send(Message("orders", b"3"))
    with pytest.raises(ClosedError):
        broker.__enter__()


def test_errors_come_out_as_they_are() -> None:
    error = ExceptionGroup("mine", [ValueError("inside")])
    with pytest.raises(ExceptionGroup) as caught, EmbeddedBroker() as broker:  # noqa: PT012
        with pytest.raises(ConfigurationError, match=r"rocketmq_sdk\.sync\.Client"):
            Producer("shop", client=rocketmq_sdk.Client(["127.0.0.1:1"]))  # type: ignore[arg-type]
        with Client(broker) as client:
            admin = Admin(client=client)
            admin.topics.create("orders")
            with pytest.raises(RouteError):
                admin.topics.route("absent")
            with Producer("shop", client=client), pytest.raises(ConfigurationError):
                Producer("shop", client=client).__enter__()
        raise error
    assert caught.value is error


def test_many_threads_use_one_producer() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            results = list(
                pool.map(lambda n: producer.send(Message("orders", b"%d" % n)), range(500))
            )
        assert len({result.message_id for result in results}) == 500


def test_many_threads_open_and_close() -> None:
    def life(_number: int) -> int:
        with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            return producer.send(Message("orders", b"1")).queue_offset

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(life, range(12))) == [0] * 12


def test_as_completed_and_failures_that_nobody_has_seen() -> None:
    with (
        EmbeddedBroker(auto_create_topic_enable="false") as broker,
        Producer("shop", namesrv=broker) as producer,
    ):
        Admin(client=producer.client).topics.create("orders")
        handles = [producer.submit(Message("orders", b"%d" % n)) for n in range(100)]
        done = concurrent.futures.as_completed(handles, timeout=60)
        assert len({handle.result().message_id for handle in done}) == 100
        seen = producer.submit(Message("absent", b"1"))
        assert isinstance(seen.exception(60), RouteError)
        producer.flush()
        producer.submit(Message("absent", b"2"))
        with pytest.raises(RouteError):
            producer.flush()


QUEUE = MessageQueue("other", "broker-a", 0)
REFUSED: dict[str, tuple[Message, dict[str, Any]]] = {
    "empty body": (Message("orders", b""), {}),
    "big body": (Message("orders", b"x" * 101), {}),
    "no topic": (Message("", b"x"), {}),
    "the broker's topic": (Message("SCHEDULE_TOPIC_XXXX", b"x"), {}),
    "long properties": (Message("orders", b"x", properties={"a": "b" * 40_000}), {}),
    "no key": (Message("orders", b"x"), {"key": None}),
    "another topic's queue": (Message("orders", b"x"), {"queue": QUEUE}),
    "no queue": (Message("orders", b"x"), {"queue": 1}),
    "queue and key": (Message("orders", b"x"), {"queue": QUEUE, "key": "k"}),
    "no selector": (Message("orders", b"x"), {"selector": 5}),
    "no time": (Message("orders", b"x"), {"timeout": "soon"}),
    "unknown type": (Message("orders", b"x"), {}),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("auto_batch", [False, True])
def test_a_message_that_is_not_acceptable_is_refused_at_once(case: str, auto_batch: bool) -> None:
    message, aim = REFUSED[case]
    settings: dict[str, Any] = {"check_message_type": True} if case == "unknown type" else {}
    with (
        EmbeddedBroker() as broker,
        Producer(
            "shop", namesrv=broker, max_message_size=100, auto_batch=auto_batch, **settings
        ) as producer,
    ):
        for _ in range(2):
            with pytest.raises(ConfigurationError):
                producer.submit(message, **aim)
            with pytest.raises(ConfigurationError):
                producer.submit_batch([message], **aim)
            if not settings:
                producer.send(Message("orders", b"1"))  # the topic is known from here on
        producer.flush()
        assert producer.in_flight == 0


def test_a_batch_that_is_not_acceptable_is_refused_at_once() -> None:
    first, keyed = Message("orders", b"x"), Message("orders", b"x", sharding_key="a")
    with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker, max_message_size=1000) as producer,
    ):
        for messages in (
            [first, Message("other", b"x")],
            [first, Message("orders", b"x", delay=1)],
            [first, Message("orders", b"x", priority=1)],
            [first, Message("orders", b"x", wait_store_ok=False)],
            [first, keyed],
            [Message("%RETRY%g", b"x")],
            [first] * 100,
            [],
        ):
            with pytest.raises(ConfigurationError):
                producer.submit_batch(messages)
        given = [first, first]
        handle = producer.submit_batch(given)
        given.append(first)
        assert len(handle.result(60).message_id.split(",")) == 2


class Forbidding:
    """Refuses messages in the SDK's thread."""

    def check_forbidden(self, context: Any) -> None:
        del context
        raise PermissionError("not today")


def test_a_message_that_a_hook_refuses_is_a_failure_that_somebody_has_to_see(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EmbeddedBroker() as broker:
        with Producer("shop", namesrv=broker, forbidden_hooks=[Forbidding()]) as producer:
            with pytest.raises(PermissionError):
                producer.submit(Message("orders", b"1")).result(60)
            producer.flush()
            producer.submit(Message("orders", b"1"))
            producer.submit_batch([Message("orders", b"1")] * 2)
            with pytest.raises(PermissionError):
                producer.flush()
            producer.flush()
            assert "<Message(topic='orders', body=1 bytes): PermissionError" in caplog.text
            producer.submit_batch([Message("orders", b"1")] * 2)
        assert "2 submitted messages have failed and nobody has awaited them" in caplog.text
        assert "the first one to topic 'orders': not today" in caplog.text


def test_too_many_messages_are_refused_at_once() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker, max_in_flight=3) as producer:

        def submit_many() -> None:
            for _ in range(10_000):
                producer.submit(Message("orders", b"1"))

        with pytest.raises(TooManyRequestsError):
            submit_many()


def test_a_failure_in_the_background_comes_out_of_join_and_of_the_block() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        consumer = PushConsumer(
            "g",
            namesrv=broker,
            subscriptions=TOPICS,
            listener=lambda message: "done",  # type: ignore[arg-type, return-value]
        )
        with pytest.raises(ConfigurationError, match="the listener") as caught, consumer:  # noqa: PT012
            consumer.join(0.01)
            producer.send(Message("orders", b"1"))
            consumer.join(60)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        consumer = PushConsumer(
            "g2",
            namesrv=broker,
            subscriptions=TOPICS,
            consume_from=FIRST,
            listener=lambda message: "done",  # type: ignore[arg-type, return-value]
        )
        with pytest.raises(ConfigurationError, match="the listener returned"), consumer:
            plain_until(lambda: not consumer.health().consuming)


def test_a_slow_listener_has_a_thread_for_each_call() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        for number in range(40):
            producer.send(Message("orders", b"%d" % number))
        barrier, seen = threading.Barrier(8, timeout=60), list[bytes]()

        def listener(message: ReceivedMessage) -> None:
            barrier.wait()  # only passed by eight at a time
            seen.append(message.body)

        with PushConsumer(
            "g",
            namesrv=broker,
            subscriptions=TOPICS,
            listener=listener,
            consume_from=FIRST,
            concurrency=8,
        ):
            plain_until(lambda: len(seen) == 40)
        assert sorted(map(int, seen)) == list(range(40))


def test_a_call_that_hangs_keeps_no_other_message_waiting() -> None:
    """Quick listeners get several messages with one change of threads."""
    go_on = threading.Event()
    seen: list[int] = []

    def listener(message: ReceivedMessage) -> None:
        if message.body == b"7":
            go_on.wait(60)
        seen.append(int(message.body))

    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        for number in range(300):
            producer.submit(Message("orders", b"%d" % number))
        producer.flush()
        with PushConsumer(
            "g",
            namesrv=broker,
            subscriptions=TOPICS,
            listener=listener,
            consume_from=FIRST,
            concurrency=3,
        ) as consumer:
            plain_until(lambda: consumer.statistics().consumed == 299)
            assert consumer.statistics().in_flight == 1
            go_on.set()
            plain_until(lambda: consumer.statistics().consumed == 300)
        assert sorted(seen) == list(range(300))


def test_failed_and_overdue_messages_come_again() -> None:
    ready = threading.Event()
    seen: list[tuple[bytes, int]] = []

    def listener(message: ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.reconsume_times == 0 and message.body == b"fails":
            raise ConsumeLater(delay_level=1)
        if message.reconsume_times == 0 and message.body == b"slow":
            ready.wait(60)

    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        with PushConsumer(
            "g",
            namesrv=broker,
            subscriptions=TOPICS,
            listener=listener,
            consume_from=FIRST,
            consume_timeout=0.3,
            concurrency=1,
        ) as consumer:
            producer.send(Message("orders", b"fails"))
            producer.send(Message("orders", b"slow"))
            plain_until(lambda: (b"fails", 1) in seen)
            plain_until(lambda: consumer.statistics().timed_out >= 1)
        ready.set()


def test_functions_that_nobody_could_run_are_refused() -> None:
    async def listener(_message: ReceivedMessage) -> None: ...

    with pytest.raises(ConfigurationError, match=r"use rocketmq_sdk\.aio"):
        PushConsumer("g", namesrv="x:1", subscriptions=TOPICS, listener=listener)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot be called"):
        PushConsumer("g", namesrv="x:1", subscriptions=TOPICS, listener=7)  # type: ignore[arg-type]
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:

        def select(queues: Any, message: object, key: object) -> Any:
            producer.send(Message("orders", b"inside"))

        with pytest.raises(WrongRunError, match="would wait for itself"):
            producer.send(Message("orders", b"1"), selector=select)

        raised: list[BaseException] = []

        def again(_done: object) -> None:
            try:
                producer.send(Message("orders", b"again"))
            except WrongRunError as error:
                raised.append(error)

        while not raised:  # it may be done before it has its callback
            future = producer.submit(Message("orders", b"2"))
            future.add_done_callback(again)
            future.result(60)
        assert "callbacks of futures" in str(raised[0])


def test_iterations_and_receipts() -> None:
    with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        for number in range(5):
            producer.send(Message("orders", b"%d" % number))
        with LitePullConsumer(
            "lite", namesrv=broker, subscriptions=TOPICS, consume_from=FIRST
        ) as lite:
            bodies = {next(lite).body for _ in range(5)}
            assert bodies == {b"%d" % number for number in range(5)}
            assert lite.poll(0.05) == []
        with pytest.raises(StopIteration):
            next(lite)
        with SimpleConsumer("simple", namesrv=broker, subscriptions=TOPICS) as simple:
            producer.send(Message("orders", b"5"))
            taken = set()
            for message in simple:
                with simple.processing(message):
                    taken.add(message.body)
                if message.body == b"5":
                    break
            assert b"5" in taken
        assert len(list(producer.messages.in_time("orders", 0))) == 6


def test_transactions() -> None:
    asked: list[bytes] = []

    def checker(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    with (
        EmbeddedBroker(transaction_check_interval=50, transaction_time_out=50) as broker,
        TransactionProducer("shop", checker, namesrv=broker) as producer,
    ):
        with pytest.raises(ValueError, match="mine"), producer.transaction(Message("t", b"1")):
            raise ValueError("mine")
        plain_until(lambda: b"1" in asked)  # twice where the first answer takes long
        with producer.transaction(Message("t", b"2")) as transaction:
            assert transaction.message_id
        assert transaction.confirmed
        result = producer.send_in_transaction(
            Message("t", b"3"), lambda transaction: TransactionState.ROLLBACK
        )
        assert result.state is TransactionState.ROLLBACK


def test_ctrl_c_ends_a_call_and_the_object_stays_usable() -> None:
    with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
        SimpleConsumer("g", namesrv=broker, subscriptions=TOPICS) as consumer,
    ):
        producer.send(Message("orders", b"1"))
        interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            interrupt.start()
            while True:
                consumer.receive(await_duration=30)
        assert time.monotonic() - began < 25
        interrupt.join()
        producer.send(Message("orders", b"2"))


def program(text: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own."""
    command = [sys.executable, "-W", "error", "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


BEGINNING = """
import os, sys, threading
from rocketmq_sdk.sync import *
broker = EmbeddedBroker().__enter__()
producer = Producer("shop", namesrv=broker).__enter__()
producer.send(Message("orders", b"1"))
"""


def test_the_interpreter_ends_although_something_is_open() -> None:
    done = program(
        BEGINNING + "import logging; logging.basicConfig(); print(threading.active_count())"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2"
    assert "the interpreter ends while 2 objects" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_listener_that_hangs_does_not_hold_up_the_end() -> None:
    done = program(
        BEGINNING
        + """
hung = threading.Event()
def listener(message):
    hung.set()
    threading.Event().wait()
PushConsumer("g", namesrv=broker, subscriptions={"orders": "*"}, listener=listener,
             consume_from=ConsumeFrom.FIRST_OFFSET).__enter__()
assert hung.wait(60)
"""
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_and_can_open_its_own() -> None:
    done = program(
        BEGINNING
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
child = os.fork()
if child == 0:
    try:
        producer.send(Message("orders", b"2"))
    except WrongRunError as error:
        assert "post_fork" in str(error) and "worker_process_init" in str(error)
    else:
        os._exit(1)
    producer.__exit__(None, None, None)
    with EmbeddedBroker() as other, Producer("shop", namesrv=other) as own:
        own.send(Message("orders", b"3"))
    os._exit(7)
_, status = os.waitpid(child, 0)
producer.send(Message("orders", b"4"))
producer.__exit__(None, None, None)
broker.__exit__(None, None, None)
print(os.waitstatus_to_exitcode(status), threading.active_count())
"""
    )
    assert done.stdout.strip() == "7 1", done.stderr


def test_ctrl_c_ends_a_program_that_joins() -> None:
    text = (
        BEGINNING
        + """
settings = {"subscriptions": {"orders": "*"}, "listener": lambda message: None}
with PushConsumer("g", namesrv=broker, **settings) as consumer:
    try:
        print("ready", flush=True)
        consumer.join()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
producer.__exit__(None, None, None)
broker.__exit__(None, None, None)
"""
    )
    command = [sys.executable, "-W", "error", "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
        assert process.stdout.read() == "interrupted\n"
