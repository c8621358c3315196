"""Transactions of our producer at our broker: blocks that end in every way, lost words,
checks.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError, SendTimeout, WrongTypeError
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.transaction import Transaction, TransactionProducer
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.credentials import Credentials, Signing
from rocketmq_sdk.testing.interception import intercept
from support.paths import ROOT
from support.transactions import bodies_in, halves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler


MESSAGE = Message("orders", b"one", tags="A", keys=["42"])


class Checker:
    """A checker that says what it is told to say, and remembers whom it was asked
    about.
    """

    def __init__(self, *answers: TransactionState | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[ReceivedMessage] = []

    async def __call__(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(message)
        await trio.sleep(0.1)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def opened(
    checker: Checker, **options: Any
) -> AsyncIterator[tuple[EmbeddedBroker, TransactionProducer]]:
    async with EmbeddedBroker() as broker:
        broker.core.topics.put(TopicConfig("orders", 1, 1))
        async with TransactionProducer("PG", checker, namesrv=broker, **options) as producer:
            yield broker, producer


async def test_every_end_is_signed_and_has_the_namespace(autojump_clock: MockClock) -> None:
    """Also the answer to a check, which goes back on the connection of the question."""
    signing = Signing(Credentials("key", "secret"))
    checker = Checker(TransactionState.COMMIT)
    with trio.fail_after(300):
        async with opened(checker, interceptors=[signing], namespace_v2="tenant") as (
            broker,
            producer,
        ):
            ends = intercept(broker, RequestCode.END_TRANSACTION)
            async with producer.transaction(MESSAGE):
                pass
            async with producer.transaction(MESSAGE) as transaction:
                transaction.unknown()
            await trio.sleep(100)
            ours = [request.ext_fields for request in ends.requests]
            assert [fields["fromTransactionCheck"] for fields in ours] == ["false", "true"]
            assert {(fields["AccessKey"], fields["ns"]) for fields in ours} == {("key", "tenant")}
            assert all(fields["Signature"] for fields in ours)


async def test_a_block_that_ends_well_commits(autojump_clock: MockClock) -> None:
    checker = Checker(TransactionState.ROLLBACK)
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            async with producer.transaction(MESSAGE) as transaction:
                assert bodies_in(broker, "orders") == []
                assert (
                    halves(broker)[0].message_id
                    == transaction.message_id
                    == transaction.transaction_id
                )
            assert transaction.confirmed
            assert bodies_in(broker, "orders") == [b"one"]
            await trio.sleep(100)
            assert checker.asked == []
            assert bodies_in(broker, "orders") == [b"one"]


@pytest.mark.parametrize("answer", [TransactionState.COMMIT, TransactionState.ROLLBACK])
async def test_an_exception_leaves_the_outcome_to_the_checker(
    autojump_clock: MockClock, answer: TransactionState
) -> None:
    """The local work may have succeeded although its answer was lost."""
    checker = Checker(answer)
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            with pytest.raises(KeyError):
                async with producer.transaction(MESSAGE) as transaction:
                    raise KeyError("the database did not answer")
            assert (transaction.state, transaction.confirmed) == (TransactionState.UNKNOWN, False)
            await trio.sleep(100)
            assert len(checker.asked) == 1
            stored = [b"one"] if answer is TransactionState.COMMIT else []
            assert bodies_in(broker, "orders") == stored


async def test_exceptions_of_named_classes_roll_back(autojump_clock: MockClock) -> None:
    checker = Checker(TransactionState.COMMIT)

    async def refuse(_: Transaction) -> None:
        raise KeyError("no such order")

    async def roll_back(transaction: Transaction) -> None:
        transaction.rollback()
        raise KeyError("told before")

    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            with pytest.raises(KeyError):
                async with producer.transaction(MESSAGE, rollback_on=LookupError) as transaction:
                    raise KeyError("no such order")
            assert (transaction.state, transaction.confirmed) == (TransactionState.ROLLBACK, True)
            with pytest.raises(KeyError):
                await producer.send_in_transaction(
                    MESSAGE, refuse, rollback_on=(ValueError, KeyError)
                )
            with pytest.raises(KeyError):
                await producer.send_in_transaction(MESSAGE, roll_back)
            await trio.sleep(100)
            assert bodies_in(broker, "orders") == []
            assert checker.asked == []


async def test_a_block_can_roll_back_itself(autojump_clock: MockClock) -> None:
    checker = Checker(TransactionState.COMMIT)
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            async with producer.transaction(MESSAGE) as transaction:
                transaction.rollback()
            await trio.sleep(100)
            assert bodies_in(broker, "orders") == []
            assert checker.asked == []


async def test_an_unknown_outcome_is_left_to_the_checker(autojump_clock: MockClock) -> None:
    checker = Checker(TransactionState.COMMIT)
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            async with producer.transaction(MESSAGE) as transaction:
                transaction.unknown()
            assert not transaction.confirmed
            await trio.sleep(29)
            assert bodies_in(broker, "orders") == []
            await trio.sleep(3)
            [asked] = checker.asked
            assert (asked.topic, asked.body, asked.message_id, asked.keys) == (
                "orders",
                b"one",
                transaction.message_id,
                ("42",),
            )
            assert bodies_in(broker, "orders") == [b"one"]


async def test_a_cancelled_block_is_left_to_the_checker(autojump_clock: MockClock) -> None:
    checker = Checker(TransactionState.ROLLBACK)
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            with trio.move_on_after(1) as scope:
                async with producer.transaction(MESSAGE) as transaction:
                    await trio.sleep_forever()
            assert scope.cancelled_caught
            assert transaction.state is TransactionState.UNKNOWN
            assert len(broker.parts.transactions.table) == 1
            await trio.sleep(40)
            assert len(checker.asked) == 1
            assert not broker.parts.transactions.table
            assert bodies_in(broker, "orders") == []


async def test_nobody_is_asked_about_a_block_that_runs(autojump_clock: MockClock) -> None:
    rows: set[str] = set()
    asked: list[bytes] = []

    async def checker(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT if message.keys[0] in rows else TransactionState.ROLLBACK

    with trio.fail_after(3600):
        async with (
            EmbeddedBroker() as broker,
            TransactionProducer("PG", checker, namesrv=broker) as producer,
        ):
            broker.core.topics.put(TopicConfig("orders", 1, 1))
            for key, unknown in (("1", False), ("2", True)):
                message = Message("orders", key.encode(), keys=[key])
                async with producer.transaction(message, timeout=30) as transaction:
                    await trio.sleep(100)  # the broker asks meanwhile
                    rows.add(key)
                    if unknown:
                        transaction.unknown()
            await trio.sleep(100)
            assert sorted(bodies_in(broker, "orders")) == [b"1", b"2"]
    assert asked == [b"2"]


@pytest.mark.parametrize("stored", [True, False])
async def test_nobody_is_asked_about_a_block_that_has_not_begun(
    autojump_clock: MockClock, stored: bool
) -> None:
    """The broker asks before its answer to the half message is here, if that comes."""
    checker = Checker(TransactionState.ROLLBACK)

    def late(channel: Channel, request: Command, serve: Handler) -> Continuation:
        answer = serve(channel, request)

        async def later() -> Command | None:
            await trio.sleep(100 if stored else 1e6)
            assert isinstance(answer, Command)
            return answer

        return later

    with trio.fail_after(3600):
        async with opened(checker, retry_times=0) as (broker, producer):
            await producer.warm_up("orders")
            began = False
            with intercept(broker, RequestCode.SEND_MESSAGE_V2, by=late), suppress(SendTimeout):
                async with producer.transaction(MESSAGE, timeout=300) as transaction:
                    began = True
                assert transaction.confirmed
            assert began is stored
            assert not producer._open
            await trio.sleep(100)
            assert bool(checker.asked) is not stored
            assert bodies_in(broker, "orders") == [b"one"] * stored


@pytest.mark.parametrize("answer", ["yes", True, 8])
async def test_local_work_that_decides_nothing_is_told(
    autojump_clock: MockClock, answer: Any
) -> None:
    """It was done, so the checker decides."""
    checker = Checker(TransactionState.COMMIT)

    async def work(transaction: Transaction) -> Any:
        with pytest.raises(WrongTypeError, match="give a TransactionState"):
            transaction.state = answer
        return answer

    def plain(_transaction: Transaction) -> Any:
        raise AssertionError("it must not run")

    no_await: Any = lambda _transaction: None  # noqa: E731 - only a call shows it
    async with opened(checker) as (broker, producer):
        with pytest.raises(WrongTypeError, match=f"local_work returned {answer!r}; return"):
            await producer.send_in_transaction(MESSAGE, work)
        with pytest.raises(ConfigurationError, match="no async function"):
            await producer.send_in_transaction(MESSAGE, plain)
        with pytest.raises(WrongTypeError, match="it returned None instead of something to await"):
            await producer.send_in_transaction(MESSAGE, no_await)
        await trio.sleep(100)
        assert bodies_in(broker, "orders") == [b"one"] * 2


async def test_a_checker_that_does_not_know_is_asked_again(autojump_clock: MockClock) -> None:
    checker = Checker(
        TransactionState.UNKNOWN, ValueError("the database is away"), TransactionState.COMMIT
    )
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            async with producer.transaction(MESSAGE) as transaction:
                transaction.unknown()
            await trio.sleep(100)
            assert len(checker.asked) == 3
            assert bodies_in(broker, "orders") == [b"one"]


async def test_another_producer_of_the_group_is_asked(autojump_clock: MockClock) -> None:
    first, second = Checker(TransactionState.ROLLBACK), Checker(TransactionState.COMMIT)
    with trio.fail_after(300):
        async with (
            opened(first) as (broker, producer),
            TransactionProducer(
                "PG", second, topics="orders", namesrv=broker, instance_name="second"
            ),
        ):
            async with producer.transaction(MESSAGE) as transaction:
                transaction.unknown()
            await producer.client.unregister_producer("PG")
            await trio.sleep(40)
            assert (len(first.asked), len(second.asked)) == (0, 1)
            assert bodies_in(broker, "orders") == [b"one"]


async def test_a_commit_that_is_lost_is_found_by_the_check(autojump_clock: MockClock) -> None:
    checker = Checker(TransactionState.COMMIT)
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):

            async def late() -> Command:
                await trio.sleep(60)
                return Command.response()

            def lose(*_: Any) -> Any:
                endings.restore()
                return late

            endings = intercept(broker, RequestCode.END_TRANSACTION, by=lose)
            async with producer.transaction(MESSAGE) as transaction:
                pass
            assert (len(endings.requests), transaction.confirmed) == (1, False)
            await trio.sleep(40)
            assert bodies_in(broker, "orders") == [b"one"]


async def test_a_refused_commit_is_told(autojump_clock: MockClock) -> None:
    checker = Checker(TransactionState.COMMIT)
    with trio.fail_after(300):
        async with opened(checker) as (broker, producer):
            with pytest.raises(BrokerError) as caught:
                async with producer.transaction(MESSAGE, check_immunity=7):
                    await trio.sleep(8)
            assert caught.value.code == 604
            await trio.sleep(40)
            assert bodies_in(broker, "orders") == [b"one"]


async def test_a_function_can_be_the_local_work(autojump_clock: MockClock) -> None:
    async def work(transaction: Transaction) -> TransactionState | None:
        await trio.sleep(0.1)
        return TransactionState.ROLLBACK if transaction.message.tags == "B" else None

    with trio.fail_after(300):
        async with opened(Checker(TransactionState.UNKNOWN)) as (broker, producer):
            result = await producer.send_in_transaction(MESSAGE, work)
            assert (result.state, result.confirmed) == (TransactionState.COMMIT, True)
            result = await producer.send_in_transaction(Message("orders", b"two", tags="B"), work)
            assert (result.state, result.confirmed) == (TransactionState.ROLLBACK, True)
            assert bodies_in(broker, "orders") == [b"one"]


@pytest.mark.parametrize(
    "delay", [{"delay_level": 2}, {"deliver_at": datetime(2100, 1, 1, tzinfo=UTC)}]
)
async def test_a_delay_is_refused(autojump_clock: MockClock, delay: dict[str, Any]) -> None:
    """As by Apache's client since 5.5.0; brokers take such messages from older ones."""
    async with opened(Checker(TransactionState.COMMIT)) as (broker, producer):
        with pytest.raises(ConfigurationError, match="cannot have a delay"):
            async with producer.transaction(Message("orders", b"later", **delay)):
                raise AssertionError("the block must not run")
        assert halves(broker) == []


async def test_compressed_half_messages_come_out_whole(autojump_clock: MockClock) -> None:
    body = b"compress me " * 1000
    checker = Checker(TransactionState.COMMIT)
    with trio.fail_after(300):
        async with opened(checker) as (_broker, producer):
            async with producer.transaction(Message("orders", body)) as transaction:
                transaction.unknown()
            await trio.sleep(40)
            assert checker.asked[0].body == body


async def test_questions_beyond_the_limit_are_dropped_and_asked_again(
    autojump_clock: MockClock,
) -> None:
    checker = Checker(TransactionState.COMMIT)
    with trio.fail_after(600):
        async with opened(checker, check_workers=1, max_checks_waiting=3) as (broker, producer):
            for number in range(10):
                async with producer.transaction(Message("orders", b"%d" % number)) as transaction:
                    transaction.unknown()
            await trio.sleep(40)
            assert 3 <= len(checker.asked) < 10
            await trio.sleep(200)
            assert sorted(bodies_in(broker, "orders")) == [b"%d" % number for number in range(10)]


async def test_checkers_that_hang_are_cancelled_and_asked_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without that, as many as there are workers would end the checks of the group."""
    asked: list[bytes] = []
    cut: list[bytes] = []

    async def checker(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        if asked.count(message.body) == 1:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                cut.append(message.body)
                raise
        return TransactionState.COMMIT

    with trio.fail_after(600):
        async with EmbeddedBroker() as broker:
            broker.core.topics.put(TopicConfig("orders", 1, 1))
            async with TransactionProducer(
                "PG", checker, check_workers=2, check_timeout=10, namesrv=broker
            ) as producer:
                for number in range(3):
                    async with producer.transaction(
                        Message("orders", b"%d" % number)
                    ) as transaction:
                        transaction.unknown()
                await trio.sleep(200)
            assert sorted(bodies_in(broker, "orders")) == sorted(cut) == [b"0", b"1", b"2"]
    assert "the checker of group 'PG' failed" in caplog.text


async def test_a_group_without_anybody_keeps_its_transaction(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with EmbeddedBroker() as broker:
            broker.core.topics.put(TopicConfig("orders", 1, 1))
            async with (
                TransactionProducer(
                    "PG", Checker(TransactionState.COMMIT), namesrv=broker
                ) as producer,
                producer.transaction(MESSAGE) as transaction,
            ):
                transaction.unknown()
            await trio.sleep(100)
            assert len(broker.parts.transactions.table) == 1
            checker = Checker(TransactionState.COMMIT)
            async with TransactionProducer("PG", checker, topics=["orders"], namesrv=broker):
                await trio.sleep(40)
            assert bodies_in(broker, "orders") == [b"one"]
            assert checker.asked[0].properties["TRANSACTION_CHECK_TIMES"] == "4"


@pytest.mark.parametrize(
    "options",
    [
        {"check_workers": 0},
        {"max_checks_waiting": True},
        {"topics": ["no such topic!"]},
        {"check_timeout": 0},
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        TransactionProducer(
            "PG", Checker(TransactionState.COMMIT), namesrv="127.0.0.1:9876", **options
        )


async def test_a_checker_that_is_not_async_is_told_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(300):
        async with opened(lambda message: plain(message)) as (broker, producer):  # type: ignore[arg-type]
            async with producer.transaction(MESSAGE) as transaction:
                transaction.unknown()
            while "is not an async function" not in caplog.text:
                await trio.sleep(1)
            assert bodies_in(broker, "orders") == []


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        ConfigurationError, match="no setting sendTimeout; did you mean send_timeout"
    ):
        TransactionProducer(
            "PG", Checker(TransactionState.COMMIT), namesrv="127.0.0.1:9876", sendTimeout=3
        )  # type: ignore[call-arg]


def test_a_checker_must_be_callable() -> None:
    with pytest.raises(ConfigurationError, match="checker"):
        TransactionProducer("PG", None, namesrv="127.0.0.1:9876")  # type: ignore[arg-type]


async def asynchronous(message: ReceivedMessage, answer: Any = None) -> Any:
    return answer


def plain(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


@pytest.mark.parametrize("checker", [plain, functools.partial(plain), None, TransactionState])
def test_a_checker_that_is_no_async_function_is_refused(checker: Any) -> None:
    with pytest.raises(ConfigurationError, match="async"):
        TransactionProducer("PG", checker, namesrv="127.0.0.1:9")


@pytest.mark.parametrize(
    "checker",
    [
        asynchronous,
        functools.partial(asynchronous, answer=TransactionState.COMMIT),
        lambda message: asynchronous(message),
        Checker(TransactionState.COMMIT),
        functools.partial(Checker(TransactionState.COMMIT)),
        functools.wraps(asynchronous)(lambda *given: asynchronous(*given)),
    ],
)
def test_what_may_be_async_is_taken_as_a_checker(checker: Any) -> None:
    producer = TransactionProducer("PG", checker, namesrv="127.0.0.1:9")
    assert producer.group == "PG"


@pytest.mark.parametrize("answer", [True, False, None, "COMMIT_MESSAGE"])
async def test_an_answer_that_is_no_state_is_told(
    answer: object, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    checker: Any = functools.partial(asynchronous, answer=answer)
    async with opened(checker) as (broker, producer):
        async with producer.transaction(MESSAGE) as transaction:
            transaction.unknown()
        await trio.sleep(70)
        assert bodies_in(broker, "orders") == []
    assert f"the checker returned {answer!r}; return TransactionState.COMMIT" in caplog.text


class OutOfStockError(Exception):
    pass


@pytest.mark.parametrize("alone", [True, False])
async def test_a_group_rolls_back_when_each_of_its_exceptions_does(
    alone: bool, autojump_clock: MockClock
) -> None:
    checker = Checker(TransactionState.COMMIT)
    more = [] if alone else [ValueError()]
    group = ExceptionGroup("", [OutOfStockError(), ExceptionGroup("", [OutOfStockError(), *more])])
    async with opened(checker) as (broker, producer):
        with pytest.raises(ExceptionGroup):
            async with producer.transaction(MESSAGE, rollback_on=OutOfStockError):
                raise group
        await trio.sleep(70)
        assert bodies_in(broker, "orders") == ([] if alone else [b"one"])
    assert len(checker.asked) == (0 if alone else 1)


class Database:
    """What the page's example asks for, over SQLite; COMMIT may lose its answer."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.executescript(
            "CREATE TABLE orders (id TEXT); CREATE TABLE sent_messages (id TEXT)"
        )
        self.loses_answer = False

    async def fetch_one(self, query: str, values: dict[str, str]) -> Any:
        return self.connection.execute(query, values).fetchone()

    async def execute(self, query: str, values: dict[str, str]) -> None:
        if values["id"] == "refused":
            raise ValueError("refused")
        self.connection.execute(query, values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self.connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        if self.loses_answer:
            raise ConnectionError("the answer to COMMIT is lost")


async def test_the_example_of_the_page_sends_what_is_in_the_database(
    autojump_clock: MockClock,
) -> None:
    page = (ROOT / "docs" / "transactions.md").read_text("utf-8")
    [example] = re.findall(r"```python\n([^`]*def checker_of.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    database = Database()
    async with opened(names["checker_of"](database)) as (broker, producer):
        for order in ("stored", "refused", "lost"):
            database.loses_answer = order == "lost"
            with suppress(ValueError, ConnectionError):
                await names["place"](order, database, producer, Message("orders", order.encode()))
        assert bodies_in(broker, "orders") == [b"stored"]
        await trio.sleep(100)
        assert bodies_in(broker, "orders") == [b"stored", b"lost"]
    assert database.connection.execute("SELECT id FROM orders").fetchall() == [
        ("stored",),
        ("lost",),
    ]
    database.connection.close()
