"""Small messages joined into batches: what is gathered, when it goes, and that each
handle tells of its own message.
"""

from __future__ import annotations

import gc
import random
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    TooManyRequestsError,
    WrongTypeError,
)
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.producer import engine
from rocketmq_sdk.producer.accumulator import Accumulator
from rocketmq_sdk.producer.config import AutoBatch
from rocketmq_sdk.producer.gathered import AccumulatedHandle, GatheredBatch
from rocketmq_sdk.producer.handle import BatchHandle, SendHandle
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.testing.interception import intercept
from support.compiled import fields_of
from support.transactions import bodies_in, messages_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


class Counted:
    """How many requests of each kind of send came to the broker, and how many messages
    they held together.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        sends = intercept(broker, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        self.requests = sends.requests

    @property
    def codes(self) -> list[int]:
        return [request.code for request in self.requests]


@asynccontextmanager
async def opened(
    auto_batch: Any = True, **options: Any
) -> AsyncIterator[tuple[EmbeddedBroker, Producer, Counted]]:
    async with EmbeddedBroker() as broker:
        broker.core.topics.put(TopicConfig("orders", 1, 1))
        counted = Counted(broker)
        async with Producer("PG", namesrv=broker, auto_batch=auto_batch, **options) as producer:
            yield broker, producer, counted


async def test_submitted_messages_go_together_and_each_knows_its_place(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with opened() as (broker, producer, counted):
            handles = [
                producer.submit(Message("orders", b"%d" % number, keys=[f"k{number}"], flag=number))
                for number in range(50)
            ]
            assert not any(handle.done for handle in handles)
            results = [await handle for handle in handles]
            assert counted.codes == [RequestCode.SEND_BATCH_MESSAGE]
            stored = messages_in(broker, "orders")
            assert [message.body for message in stored] == [b"%d" % number for number in range(50)]
            for number, (result, handle, message) in enumerate(
                zip(results, handles, stored, strict=True)
            ):
                assert (result.queue_offset, result.message_id) == (number, handle.message_id)
                assert (message.message_id, message.offset_message_id) == (
                    result.message_id,
                    result.offset_message_id,
                )
                assert (message.keys, message.flag) == ((f"k{number}",), number)
            # They have all that the result of a message alone has.
            alone = await producer.send(Message("orders", b"alone"), timeout=60)
            own = {"message_id", "offset_message_id", "queue_offset", "transaction_id"}
            for name in set(fields_of(SendResult)) - own:
                assert getattr(results[7], name) == getattr(alone, name), name
            for result in (alone, results[7]):
                assert result.transaction_id == result.message_id


async def test_an_id_asked_for_early_stays(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with opened() as (broker, producer, _counted):
            handles = [producer.submit(Message("orders", b"%d" % number)) for number in range(5)]
            early = [handles[3].message_id, handles[1].message_id]
            handles += [
                producer.submit(Message("orders", b"%d" % number)) for number in range(5, 10)
            ]
            results = [await handle for handle in handles]
            assert [results[3].message_id, results[1].message_id] == early
            assert [message.message_id for message in messages_in(broker, "orders")] == [
                handle.message_id for handle in handles
            ]
            assert len({handle.message_id for handle in handles}) == 10


async def test_an_id_is_written_once(autojump_clock: MockClock) -> None:
    """Who asks for the id of each message as it is submitted does not pay for all."""
    with trio.fail_after(60):
        async with opened() as (_broker, producer, _counted):
            handles, ids = [], []
            for number in range(600):
                handles.append(producer.submit(Message("orders", b"%d" % number)))
                ids.append(handles[-1].message_id)
            assert all(
                handle.message_id is early for handle, early in zip(handles, ids, strict=True)
            )
            await producer.flush()
            assert all(
                handle.message_id is early for handle, early in zip(handles, ids, strict=True)
            )


@pytest.mark.parametrize("taken_back", [None, 0, 2, 4])
@pytest.mark.parametrize("early", [False, True])
async def test_the_handle_of_a_batch_has_the_ids_of_its_messages(
    autojump_clock: MockClock, taken_back: int | None, early: bool
) -> None:
    with trio.fail_after(60):
        async with opened() as (broker, producer, _counted):
            handles = [producer.submit(Message("orders", b"%d" % number)) for number in range(5)]
            batch = handles[0].batch_handle
            if early:
                assert batch.message_id == ",".join([handle.message_id for handle in handles])
            if taken_back is not None:
                handles[taken_back].abandon()
            await batch
            stored = [message.message_id for message in messages_in(broker, "orders")]
            assert batch.message_id.split(",") == stored
            ids = [handle.message_id for handle in handles]
            assert stored == [one for at, one in enumerate(ids) if at != taken_back]


async def test_a_batch_that_nobody_holds_goes_away(autojump_clock: MockClock) -> None:
    """And need not be found by the garbage collector: it holds all that was sent."""

    def held() -> int:
        return sum(type(one) in {GatheredBatch, BatchHandle} for one in gc.get_objects())

    with trio.fail_after(60):
        async with opened(AutoBatch(max_bytes=1000)) as (_broker, producer, _counted):
            gc.collect()
            gc.disable()
            try:
                for _ in range(300):
                    producer.submit(Message("orders", b"body")).abandon()
                    producer.submit(Message("orders", b"body"))
                await producer.flush()
                assert held() <= 2  # the latest and its handle
            finally:
                gc.enable()


async def test_a_full_batch_goes_at_once_and_a_small_one_lingers(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with opened(AutoBatch(linger=5, max_bytes=1000)) as (
            _broker,
            producer,
            counted,
        ):
            await producer.submit(Message("orders", b"first"))
            started = trio.current_time()
            handles = [producer.submit(Message("orders", bytes(100))) for _ in range(12)]
            await handles[0]
            assert trio.current_time() - started < 1
            await handles[-1]
            assert 5 <= trio.current_time() - started < 5.1
            assert all(len(request.body) <= 1000 for request in counted.requests)


async def test_awaited_sends_of_many_tasks_share_a_batch(autojump_clock: MockClock) -> None:
    offsets: list[int] = []
    with trio.fail_after(60):
        async with opened() as (_broker, producer, counted):

            async def send(number: int) -> None:
                offsets.append(
                    (await producer.send(Message("orders", b"%d" % number))).queue_offset
                )

            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(send, number)
            assert counted.codes == [RequestCode.SEND_BATCH_MESSAGE]
            assert sorted(offsets) == list(range(20))


async def test_what_cannot_share_a_batch_goes_alone(autojump_clock: MockClock) -> None:
    alone = [
        Message("orders", b"x", delay_level=1),
        Message("orders", b"x", delay=60),
        Message("orders", b"x", priority=3),
        Message("orders", b"x" * 5000),
    ]
    with trio.fail_after(60):
        async with opened() as (broker, producer, counted):
            for message in alone:
                assert isinstance(producer.submit(message), SendHandle)
            assert isinstance(producer.submit(Message("orders", b"x"), key="k"), SendHandle)
            assert isinstance(producer.submit(Message("orders", b"x"), timeout=1), SendHandle)
            await producer.flush()
            assert counted.codes == [RequestCode.SEND_MESSAGE_V2] * 6
            priorities = [message.priority for message in messages_in(broker, "orders")]
            assert priorities.count(3) == 1


async def test_tags_topics_and_wait_store_ok_part_batches(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with opened() as (broker, producer, counted):
            broker.core.topics.put(TopicConfig("bills", 1, 1))
            kinds = [
                ("orders", "a", True),
                ("orders", "b", True),
                ("bills", "a", True),
                ("orders", "a", False),
                ("orders", "a", True),
            ]
            for topic, tags, wait in kinds:
                producer.submit(Message(topic, b"x", tags=tags, wait_store_ok=wait))
            await producer.flush()
            assert counted.codes == [RequestCode.SEND_BATCH_MESSAGE] * 4
            assert sorted(message.tags or "" for message in messages_in(broker, "orders")) == [
                "a",
                "a",
                "a",
                "b",
            ]


async def test_flush_and_leaving_send_what_has_gathered(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with opened(AutoBatch(linger=3600)) as (broker, producer, _counted):
            first = producer.submit(Message("orders", b"flushed"))
            await producer.flush()
            assert first.done
            second = producer.submit(Message("orders", b"left"))
            await trio.sleep(1)
            assert not second.done
            async with trio.open_nursery() as nursery:
                nursery.start_soon(second.wait)
                await trio.sleep(1)
                producer._accumulator.dispatch_all()  # type: ignore[union-attr]
            assert bodies_in(broker, "orders") == [b"flushed", b"left"]
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker:
            broker.core.topics.put(TopicConfig("orders", 1, 1))
            async with Producer(
                "PG", namesrv=broker, auto_batch=AutoBatch(linger=3600)
            ) as producer:
                last = producer.submit(Message("orders", b"at the end"))
            assert (await last).queue_offset == 0
            assert bodies_in(broker, "orders") == [b"at the end"]


async def test_a_refused_batch_is_the_error_of_each_message(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with opened(retry_times=0) as (broker, producer, _counted):
            broker.store._state.disk_full = True
            handles = [producer.submit(Message("orders", b"x")) for _ in range(3)]
            for handle in handles:
                with pytest.raises(BrokerError):
                    await handle
            broker.store._state.disk_full = False
            assert (await producer.send(Message("orders", b"again"))).queue_offset == 0


async def test_a_cancelled_waiter_changes_nothing(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with opened(AutoBatch(linger=2)) as (broker, producer, _counted):
            handle = producer.submit(Message("orders", b"x"))
            with trio.move_on_after(1) as scope:
                await handle
            assert scope.cancelled_caught
            assert (await handle).queue_offset == 0
            assert bodies_in(broker, "orders") == [b"x"]


async def test_messages_that_never_left_end_with_the_producer(autojump_clock: MockClock) -> None:
    handle: AccumulatedHandle | SendHandle | None = None
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker:
            producer = Producer("PG", namesrv=broker, auto_batch=AutoBatch(linger=3600))
            with suppress(KeyError):
                async with producer:
                    handle = producer.submit(Message("orders", b"x"))
                    raise KeyError
            assert isinstance(handle, AccumulatedHandle)
            with pytest.raises(ClosedError):
                await handle
            with pytest.raises(ClosedError):
                producer.submit(Message("orders", b"x"))


@pytest.mark.parametrize("bad", ["yes", 1, AutoBatch])
def test_bad_settings_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="auto_batch"):
        Producer("PG", namesrv="127.0.0.1:9876", auto_batch=bad)


@pytest.mark.parametrize(
    "options", [{"linger": 0}, {"linger": -1}, {"max_bytes": 0}, {"max_bytes": 1.5}]
)
def test_bad_limits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        AutoBatch(**options)


async def test_half_a_character_is_sent_as_javas_clients_send_it(autojump_clock: MockClock) -> None:
    """As a question mark, however the message goes."""
    message = Message("orders", b"x", keys=["\ud800"])
    with trio.fail_after(60):
        async with opened() as (broker, producer, counted):
            await producer.submit(message)
            await producer.send_batch([message])
            await producer.send(Message("orders", b"x", keys=["\ud800"], priority=0))
            assert counted.codes == [
                RequestCode.SEND_BATCH_MESSAGE,
                RequestCode.SEND_BATCH_MESSAGE,
                RequestCode.SEND_MESSAGE_V2,
            ]
            assert [found.keys for found in messages_in(broker, "orders")] == [("?",)] * 3


SORTS: tuple[dict[str, Any], ...] = (
    {},
    {"tags": "red"},
    {"tags": "blue"},
    {"keys": "k"},
    {"topic": "others"},
    {"body": bytes(300)},
    {"body": bytes(2_000)},
    {"properties": {"a": "b"}},
    {"flag": 7},
    {"sharding_key": "s"},
    {"wait_store_ok": False},
    {"delay": 1},
    {"priority": 0},
)
"""How messages differ from a small plain one, where batches hold 1,000 bytes."""


def without_short_way(*arguments: Any, **options: Any) -> Accumulator:
    """An accumulator that looks at each message."""
    return Accumulator(*arguments, **{**options, "looked_at": True})


class Odd(Message):
    """A message of a user's own class."""

    __slots__ = ()


@pytest.mark.parametrize("limits", [{}, {"max_in_flight": 40}, {"max_in_flight_bytes": 6_000}])
async def test_the_short_way_into_a_batch_makes_the_same_batches(
    limits: dict[str, Any], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random messages, with it and without it."""

    async def sent(seed: int) -> tuple[list[Any], list[bytes]]:
        chance = random.Random(seed)
        async with opened(AutoBatch(max_bytes=1_000), **limits) as (broker, producer, counted):
            for topic in ("orders", "others"):
                broker.core.topics.put(TopicConfig(topic, 1, 1))
            outcomes: list[Any] = []
            for number in range(150):
                sort = dict(chance.choice(SORTS) if chance.random() < 0.4 else {})
                kind = Odd if chance.random() < 0.1 else Message
                body = b"%d " % number + sort.pop("body", b"")
                message = kind(sort.pop("topic", "orders"), body, **sort)
                try:
                    outcomes.append(producer.submit(message))
                except TooManyRequestsError as error:
                    outcomes.append(str(error))
                if chance.random() < 0.05:
                    await trio.sleep(chance.random() / 50)
            with suppress(Exception):
                await producer.flush()
            told = [one if isinstance(one, str) else (await one).queue_offset for one in outcomes]
            return told, [request.body for request in counted.requests]

    with trio.fail_after(600):
        for seed in range(10):
            told, bodies = await sent(seed)
            with monkeypatch.context() as patch:
                patch.setattr(engine, "Accumulator", without_short_way)
                slow_told, slow_bodies = await sent(seed)
            assert told == slow_told
            # Unique ids differ.
            assert [len(body) for body in bodies] == [len(body) for body in slow_bodies]


async def test_plain_messages_take_the_short_way(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A benchmark would tell, a test of results would not."""
    slowly, add = [], Accumulator.add

    def counted(*arguments: Any) -> AccumulatedHandle:
        slowly.append(arguments)
        return add(*arguments)

    monkeypatch.setattr(Accumulator, "add", counted)
    with trio.fail_after(60):
        async with opened() as (_broker, producer, _counted):
            for number in range(100):
                producer.submit(Message("orders", b"%d" % number))
    assert len(slowly) == 1


class _Unmade(Message):
    """It forgets its base class."""

    def __init__(self) -> None:
        self.colour = "red"


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("text", "'text' is no Message"),
        (Message, "message.Message'> is no Message"),
        (_Unmade(), "_Unmade has made a message without Message.__init__"),
    ],
)
async def test_what_is_no_message_is_named(given: Any, said: str, auto_batch: Any) -> None:
    """Before anything is asked of it."""
    producer = Producer("PG", namesrv="127.0.0.1:1", auto_batch=auto_batch)
    with pytest.raises(WrongTypeError, match=said):
        producer.submit(given)
    with pytest.raises(WrongTypeError, match=said):
        await producer.send(given)
    with pytest.raises(WrongTypeError):  # where `checked` says it, in its own words
        await producer.request(given)
    with pytest.raises(WrongTypeError, match=said):
        await producer.send_oneway(given)
    with pytest.raises(WrongTypeError, match=said):
        await producer.send_batch([Message("t", b"b"), given])
    with pytest.raises(WrongTypeError, match=said):
        producer.submit_batch([given])
