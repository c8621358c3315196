"""Messages of one tick for a broker in this process are as if sent one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import BrokerError, ClosedError, RocketMQError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.frame_template import CommandTemplate
from rocketmq_sdk.testing.interception import intercept, passed_on, refused

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command

ODD: list[dict[str, Any]] = [
    {},
    {"tags": "TagA", "keys": ("k1", "k2")},
    {"properties": {"quotes": 'a "b" \\ %s %d {x}', "line": "one\ntwo"}},
    {"properties": {"text": "значение €\u2028", "emoji": "🚀", "lone": "\ud800"}},
    {"wait_store_ok": False},
    {"flag": 5},
    {"delay_level": 3},
    {"properties": {"p": "v" * 32000, "q": "w" * 700}},
    {},
]


def counted_runs(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each run of the broker's store has put from now on."""
    runs: list[int] = []
    put_run = broker.store.put_run

    def put(run: Any, born_host: bytes) -> int:
        runs.append(put_run(run, born_host))
        return runs[-1]

    monkeypatch.setattr(broker.store, "put_run", put)
    return runs


async def stored(monkeypatch: pytest.MonkeyPatch, *, together: bool) -> tuple[list[Any], int]:
    """What is stored of messages, and how many of them went in runs."""
    found: list[Any] = []
    async with EmbeddedBroker() as broker, Producer("p", namesrv=broker) as producer:
        admin = Admin(client=producer.client)
        await admin.topics.create("t", queues=1)
        await producer.send(Message("t", b"first"))
        runs = counted_runs(broker, monkeypatch)
        messages = [
            Message("t", body, **options)
            for options in ODD
            for body in (b"body", b"\x00other", bytes(20_000))
        ]
        handles = [producer.submit(message) for message in messages] if together else []
        for number, message in enumerate(messages):
            try:
                result = await (handles[number] if together else producer.send(message))
            except RocketMQError as error:
                found.append(type(error))
                continue
            copy = await admin.messages.by_offset_id(result.offset_message_id)
            properties = {**copy.properties, "UNIQ_KEY": ""}
            place = result.queue.queue_id, result.queue_offset, result.status
            found.append((place, copy.topic, copy.body, copy.flag, properties))
        assert broker.store.max_offset("t", 0) == 1 + len(messages) - 6
    return found, sum(runs)


async def test_what_is_stored_is_the_same_together_and_alone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, none = await stored(monkeypatch, together=False)
    several, some = await stored(monkeypatch, together=True)
    assert several == alone
    assert sum(isinstance(one, type) and issubclass(one, BrokerError) for one in alone) == 3
    assert (none, some > 5) == (0, True)


async def test_messages_of_a_tick_are_one_run_and_keep_their_order(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedBroker() as broker, Producer("p", namesrv=broker) as producer:
        await Admin(client=producer.client).topics.create("t", queues=1)
        await producer.send(Message("t", b"first"))
        runs = counted_runs(broker, monkeypatch)
        handles = [producer.submit(Message("t", b"x")) for _ in range(100)]
        assert [(await handle).queue_offset for handle in handles] == list(range(1, 101))
        assert runs == [64, 36]
        before = producer.submit(Message("t", b"x"))
        assert (await producer.send(Message("t", b"x"))).queue_offset == 102
        assert (await before).queue_offset == 101


@pytest.mark.parametrize("every", [2, 3, 7])
async def test_special_messages_among_many_do_not_make_the_others_dear(
    every: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, count = 0, 600
    command = CommandTemplate.command

    def counted(*arguments: Any) -> Command:
        nonlocal made
        made += 1
        return command(*arguments)

    async with EmbeddedBroker() as broker, Producer("p", namesrv=broker) as producer:
        await Admin(client=producer.client).topics.create("t", queues=1)
        await producer.send(Message("t", b"first"))
        monkeypatch.setattr(CommandTemplate, "command", counted)
        messages = [
            Message("t", b"x", delay_level=1 if number % every == 1 else None)
            for number in range(count)
        ]
        results = [await handle for handle in [producer.submit(one) for one in messages]]
        assert len({result.offset_message_id for result in results}) == count
        places = [result.queue_offset for result in results[0::every]]
        assert places == sorted(places)
        assert made < 5 * count  # requests, some of them twice, and answers


async def test_an_interceptor_sees_each_message_of_a_tick(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("p", namesrv=broker) as producer:
        await producer.send(Message("t", b"first"))
        with intercept(broker, RequestCode.SEND_MESSAGE_V2, by=passed_on) as sends:
            handles = [producer.submit(Message("t", b"x")) for _ in range(20)]
            for handle in handles:
                await handle
        assert len(sends.requests) == 20


async def test_any_number_of_attempts_at_a_broker_that_answers_at_once(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("p", namesrv=broker, retry_times=1_500) as producer,
    ):
        await producer.send(Message("t", b"first"))
        with (
            intercept(
                broker, RequestCode.SEND_MESSAGE_V2, by=refused(ResponseCode.SYSTEM_BUSY, "not now")
            ) as sends,
            pytest.raises(BrokerError, match="not now"),
        ):
            await producer.send(Message("t", b"x"))
        assert len(sends.requests) == 1_501


async def test_one_of_many_given_up_leaves_the_others(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("p", namesrv=broker) as producer:
        await producer.send(Message("t", b"first"))
        with trio.CancelScope() as scope:
            scope.cancel()
            handles = [producer.submit(Message("t", b"x")) for _ in range(20)]
            await handles[3]
        results = [await handle for handle in handles]
        assert len({result.message_id for result in results}) == 20


async def test_who_is_told_of_a_result_may_send_and_give_up(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("p", namesrv=broker) as producer:
        await producer.send(Message("t", b"first"))
        under_way, more = producer._under_way, []

        def tell(handle: Any) -> None:
            if len(more) < 30 and handle.result is not None:
                more.append(producer.submit(Message("t", b"again")))
                handles[-1].abandon()

        handles = [producer.submit(Message("t", b"x")) for _ in range(20)]
        under_way.observers.append(tell)
        for handle in handles[:-1]:
            assert (await handle).offset_message_id
        with pytest.raises(ClosedError):
            await handles[-1]
        await producer.flush()
        assert len(more) == 30
        assert all(handle.result for handle in more)
        assert producer.in_flight == 0
