"""Waiting for what a broker holds, and failures that say what was seen."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    ConsumeFrom,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RejectMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from rocketmq_sdk.consumer.failures import watchers
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.testing import ListenerRaisedError, TestBroker, WaitTimeoutError
from support.consuming import Collector, texts

if TYPE_CHECKING:
    from trio.testing import MockClock


def consumer(
    broker: object, listener: object, group: str = "billing", **options: object
) -> PushConsumer:
    return PushConsumer(
        group,
        namesrv=broker,
        subscriptions={"orders": "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        **options,
    )  # type: ignore[arg-type]


async def send_later(broker: TestBroker, seconds: float, *bodies: str) -> None:
    await trio.sleep(seconds)
    async with Producer("shop", namesrv=broker) as producer:
        for body in bodies:
            await producer.send(Message("orders", body.encode()))


async def test_messages_are_waited_for_and_given(autojump_clock: MockClock) -> None:
    async with TestBroker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(send_later, broker, 20, "1", "2", "3")
        assert texts(await broker.wait.stored("orders", 3)) == ["1", "2", "3"]
        assert trio.current_time() > 20
        with pytest.raises(WaitTimeoutError) as caught:
            await broker.wait.stored("orders", 4, within=5)
        assert "waited 5 s for 4 messages in 'orders', but 'orders' holds 3" in str(caught.value)
        with pytest.raises(WaitTimeoutError, match="no topic 'order'; there are: orders"):
            await broker.wait.stored("order", within=1)
        with pytest.raises(ConfigurationError, match="within is -1; give seconds"):
            await broker.wait.stored("orders", within=-1)


async def test_a_group_that_catches_up_is_waited_for(autojump_clock: MockClock) -> None:
    async with TestBroker() as broker:
        await broker.seed(messages={"orders": ["1", "2", "3"]})
        got = Collector()
        async with consumer(broker, got):
            await broker.wait.lag("billing", "orders")
            await broker.wait.committed("billing", "orders")
            await broker.wait.settled()
        assert sorted(got.bodies) == ["1", "2", "3"]
        await broker.seed(messages={"orders": ["4", "5"]})
        await broker.wait.lag("billing", most=2, within=1)
        with pytest.raises(WaitTimeoutError, match="no members, behind: 2 in 'orders'"):
            await broker.wait.lag("billing", within=2)
        with pytest.raises(WaitTimeoutError, match=r"to commit \{0: 9\}.*the offsets are \{0: "):
            await broker.wait.committed("billing", "orders", {0: 9}, within=2)
        for topic, behind in (("orders", ", behind: 5 in 'orders'"), (None, "")):
            text = rf"'biling': no members, no offsets{behind} \(groups: billing\)"
            with pytest.raises(WaitTimeoutError, match=text):
                await broker.wait.lag("biling", topic, within=2)
        with pytest.raises(WaitTimeoutError, match="there is no topic 'order'; there are: orders"):
            await broker.wait.lag("billing", "order", within=2)


async def test_a_group_whose_first_member_comes_later_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    """Its members find a topic that was made just now only when they ask again."""
    async with TestBroker() as broker:
        got = Collector()
        async with consumer(broker, got):
            await send_later(broker, 0, "1")
            await broker.wait.lag("billing")
            assert got.bodies == ["1"]


async def test_a_group_is_stable_when_its_queues_are_shared(autojump_clock: MockClock) -> None:
    async with TestBroker() as broker:
        await broker.seed(topics={"orders": 4})
        async with consumer(broker, Collector(), instance_name="one"):
            assert len(await broker.wait.group("billing", 1)) == 1
            assert len(set(broker.wait.seen.owners("billing").values())) == 1
            async with consumer(broker, Collector(), instance_name="two"):
                await broker.wait.group("billing", 2)
                owners = broker.wait.seen.owners("billing")
                assert sorted(list(owners.values()).count(one) for one in set(owners.values()))[
                    -2:
                ] == [2, 3]
                with pytest.raises(WaitTimeoutError, match="3 members in group 'billing'"):
                    await broker.wait.group("billing", 3, within=3)
            await broker.wait.group("billing", 1)
            assert len(set(broker.wait.seen.owners("billing").values())) == 1


async def test_dead_letters_are_waited_for(autojump_clock: MockClock) -> None:
    async def reject(message: ReceivedMessage) -> None:
        raise RejectMessage

    async with TestBroker() as broker, consumer(broker, reject):
        await send_later(broker, 0, "bad")
        assert texts(await broker.wait.dead_letter("billing")) == ["bad"]
        with pytest.raises(
            WaitTimeoutError, match="2 dead letters of group 'billing', but there are 1"
        ):
            await broker.wait.dead_letter("billing", 2, within=2)


async def test_settled_waits_for_retries_delays_and_transactions(
    autojump_clock: MockClock,
) -> None:
    failures = [RuntimeError("first"), RuntimeError("second")]

    async def listener(message: ReceivedMessage) -> None:
        if failures:
            raise failures.pop()

    async with TestBroker() as broker, consumer(broker, listener):
        await broker.seed(topics=["orders"])
        await broker.wait.group("billing")
        await send_later(broker, 0, "1")
        await broker.wait.settled(within=300)
        assert not failures
        assert trio.current_time() > 10
        async with Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"later", delay=1800))
            await producer.send(Message("orders", b"by level", delay_level=3))
        assert broker.wait.seen.delayed() == 2
        with pytest.raises(WaitTimeoutError, match="messages wait for their time"):
            await broker.wait.settled(within=60)
        await broker.wait.settled(within=3600)
        assert broker.wait.seen.delayed() == 0
        assert broker.wait.seen.stored("orders") == 3


async def test_a_condition_of_the_tests_own_is_waited_for(autojump_clock: MockClock) -> None:
    got = Collector()
    async with TestBroker() as broker, consumer(broker, got):
        await send_later(broker, 0, "1")
        await broker.wait.until(lambda: got.bodies, "the first order")
        with pytest.raises(WaitTimeoutError) as caught:
            await broker.wait.until(lambda: len(got.bodies) > 1, "a second order", within=1)
        for part in ("a second order", "group 'billing'", "'orders' holds 1", "SEND_MESSAGE_V2"):
            assert part in str(caught.value)


async def test_a_stopped_broker_is_waited_for(autojump_clock: MockClock) -> None:
    async with TestBroker() as broker, trio.open_nursery() as nursery:
        await broker.seed(messages={"orders": ["1"]})
        await broker.stop()

        async def start() -> None:
            await trio.sleep(5)
            await broker.start()

        nursery.start_soon(start)
        await broker.wait.stored("orders")
        await broker.stop()
        with pytest.raises(WaitTimeoutError, match="is not running"):
            await broker.wait.stored("orders", within=2)


async def test_requests_are_recorded_with_who_asked_and_the_answer(
    autojump_clock: MockClock,
) -> None:
    async with TestBroker() as broker:
        async with Producer("shop", namesrv=broker.party("shop")) as producer:
            for body in (b"1", b"2"):
                await producer.send(Message("orders", body))
        sends = broker.requests("send", topic="orders", group="shop", client="shop")
        assert [(seen.name, seen.answer, seen.body) for seen in sends] == [
            ("SEND_MESSAGE_V2", 0, b"1"),
            ("SEND_MESSAGE_V2", 0, b"2"),
        ]
        assert sends[0].client_id
        assert broker.seen.counts["SEND_MESSAGE_V2"] == 2
        assert broker.requests("heartbeat", group="shop")
        assert broker.requests("send", topic="other") == []
        assert broker.requests("route")[0].where == "name server"
        assert "SEND_MESSAGE_V2" in broker.report()


@pytest.mark.parametrize("silent", [False, True])
async def test_a_listeners_error_fails_a_strict_test(
    silent: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if silent:  # as in programs that want no warnings of libraries
        monkeypatch.setattr(logging.getLogger("rocketmq_sdk.consumer"), "level", logging.ERROR)

    async def fail(message: ReceivedMessage) -> None:
        raise ValueError("the listener is wrong")

    async def strict() -> None:
        async with TestBroker(strict=True) as broker, consumer(broker, fail):
            await send_later(broker, 0, "1")
            await broker.wait.until(lambda: broker.requests("send_back"), "the retry")

    with pytest.raises(ListenerRaisedError, match="ValueError: the listener is wrong") as caught:
        await strict()
    assert isinstance(caught.value.__cause__, ValueError)
    assert watchers == []


async def test_an_answer_of_a_listener_is_no_error(autojump_clock: MockClock) -> None:
    async def reject(message: ReceivedMessage) -> None:
        raise RejectMessage

    async with TestBroker(strict=True) as broker, consumer(broker, reject):
        await send_later(broker, 0, "1")
        dead = await broker.wait.dead_letter("billing")
        assert [message.body for message in dead] == [b"1"]


async def test_an_open_transaction_is_activity(autojump_clock: MockClock) -> None:
    async def check(message: object) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        TestBroker() as broker,
        TransactionProducer("shop", check, namesrv=broker) as producer,
    ):
        broker.faults.on("end_transaction", times=1).drop_request()
        async with producer.transaction(Message("orders", b"1")):
            assert broker.wait.seen.unfinished() == 1
        with pytest.raises(WaitTimeoutError, match="1 transactions are open"):
            await broker.wait.settled(within=2)
        await broker.wait.settled(within=300)
        assert texts(broker.sent("orders")) == ["1"]


async def test_a_group_that_pulls_what_it_likes_is_stable_when_it_is_quiet(
    autojump_clock: MockClock,
) -> None:
    async with TestBroker() as broker:
        await broker.seed(topics={"orders": 1})
        async with (
            SimpleConsumer("pop", namesrv=broker, subscriptions={"orders": "*"}),
            LitePullConsumer("lite", namesrv=broker, subscriptions={"orders": "*"}),
        ):
            assert len(await broker.wait.group("pop", 1)) == 1
            assert len(await broker.wait.group("lite", 1)) == 1


@pytest.mark.parametrize("within", ["5", None])
async def test_a_deadline_that_is_no_number_is_refused(within: Any) -> None:
    async with TestBroker() as broker:
        with pytest.raises(WrongTypeError, match=f"within is {within!r}; give seconds"):
            await broker.wait.stored("orders", within=within)


async def test_an_async_condition_is_refused() -> None:
    async def here() -> bool:
        return False

    async with TestBroker() as broker:
        with pytest.raises(WrongTypeError, match="is a plain function, and this one is async"):
            await broker.wait.until(here, "something")
