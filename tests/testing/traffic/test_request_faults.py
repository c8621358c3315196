"""Faults of requests, as tests declare them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    reply_message,
)
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import (
    BrokerError,
    ConfigurationError,
    ConnectError,
    RequestTimeoutError,
    SendTimeout,
)
from rocketmq_sdk.testing import TestBroker, UnhitFaultError, WaitTimeoutError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.traffic.request_kinds import KINDS
from support.broker import Peer, pull_request, send_request
from support.consuming import Collector, texts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from trio.testing import MockClock

    from rocketmq_sdk import ReceivedMessage
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.testing.traffic.request_faults import RequestFaults


@pytest.fixture
async def broker(autojump_clock: MockClock) -> AsyncIterator[TestBroker]:
    async with TestBroker() as broker:
        yield broker


async def peer_of(broker: TestBroker, nursery: trio.Nursery) -> Peer:
    peer = Peer()
    peer.channel = await broker.open_channel(broker.own_address, peer.handle, nursery)
    return peer


async def codes(peer: Peer, count: int, topic: str = "orders") -> list[int]:
    return [(await peer.ask(send_request(topic, b"%d" % n))).code for n in range(count)]


@pytest.mark.parametrize("served", [False, True])
async def test_errors_come_before_or_after_storing(
    broker: TestBroker, nursery: trio.Nursery, served: bool
) -> None:
    peer = await peer_of(broker, nursery)
    fault = broker.faults.on("send", after=1, times=2).error("NO_PERMISSION", served=served)
    refused = ResponseCode.NO_PERMISSION
    assert await codes(peer, 4) == [0, refused, refused, 0]
    assert fault.hits == 2
    assert texts(broker.sent("orders")) == (["0", "1", "2", "3"] if served else ["0", "3"])
    assert [seen.answer for seen in broker.requests("send")] == [0, refused, refused, 0]


async def test_faults_of_a_topic_a_queue_a_group_and_a_predicate_meet_only_these(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    on = broker.faults.on
    by_topic = on(topic="pay*").error(201)
    by_queue = on("send", topic="orders", queue=3).error(202)
    by_group = on(group="CG").error(203)
    by_body = on("send", when=lambda seen: seen.body == b"special").error(204)

    async def ask(topic: str, body: bytes = b"x", queue: int = 0) -> int:
        return (await peer.ask(send_request(topic, body, queue_id=queue))).code

    assert await ask("orders") == 0
    assert await ask("payments") == 201
    assert await ask("orders", queue=3) == 202
    assert (await peer.ask(pull_request("orders", 0))).code == 203
    assert (await peer.ask(pull_request("orders", 0, group="other"))).code != 203
    assert await ask("orders", b"special") == 204
    assert [fault.hits for fault in (by_topic, by_queue, by_group, by_body)] == [1, 1, 1, 1]


async def test_faults_of_a_client_meet_only_this_one(
    broker: TestBroker, autojump_clock: MockClock
) -> None:
    fault = broker.faults.on("send", client="shop").error(201)
    async with (
        Producer("one", namesrv=broker.party("shop"), retry_times=0) as shop,
        Producer("two", namesrv=broker.party("office"), retry_times=0) as office,
    ):
        with pytest.raises(BrokerError):
            await shop.send(Message("orders", b"1"))
        await office.send(Message("orders", b"2"))
    assert [seen.host for seen in fault.requests] == ["shop"]


NAMED_BY_NONE = {
    ("end_transaction", "queue"),
    ("heartbeat", "queue"),
    ("send_back", "queue"),
    ("route", "group"),
    ("route", "queue"),
}
OF_KINDS = {("reply", "topic"): "*", ("reply", "group"): "*", ("pop", "queue"): -1}
"""A pop may be asked for all queues, and names that."""


async def test_each_kind_of_request_meets_faults_by_each_word(autojump_clock: MockClock) -> None:
    """What a kind does not name is refused; what met nothing fails at the end."""

    def through(channel: Any, request: Command, serve: Any) -> Any:
        return serve(channel, request)

    async with TestBroker() as broker:
        await broker.seed(topics={"orders": 1, "questions": 1})
        words = {"topic": "orders", "group": "G*", "queue": 0, "client": "*"}
        for kind in KINDS:
            for word, value in words.items():
                named = OF_KINDS.get((kind, word), value)
                if (kind, word) in NAMED_BY_NONE:
                    with pytest.raises(ConfigurationError, match=f"names no {word}"):
                        broker.faults.on(kind, **{word: named})  # type: ignore[arg-type]
                else:
                    broker.faults.on(kind, **{word: named}).call(through)  # type: ignore[arg-type]
            broker.faults.on(kind, when=lambda seen: seen.host, after=1, times=1).call(through)
        one_way = broker.faults.on("send", when=lambda seen: seen.body == b"one way").call(through)
        await _everything(broker)
        assert one_way.hits == 1


async def _everything(broker: TestBroker) -> None:
    """At least two requests of each kind, from clients that have sent heartbeats."""

    async def listen(message: ReceivedMessage) -> None:
        if message.body == b"fails" and not message.reconsume_times:
            raise ValueError("as the test wants it")

    async def answer(message: ReceivedMessage) -> None:
        await producer.send(reply_message(message, b"pong"))

    async def commit(_transaction: object) -> TransactionState:
        return TransactionState.COMMIT

    everything: Any = {"orders": "*"}
    first = ConsumeFrom.FIRST_OFFSET
    async with (
        Producer("Gp", namesrv=broker) as producer,
        TransactionProducer("Gt", namesrv=broker, checker=commit) as bank,
        PushConsumer(
            "Gq", namesrv=broker, subscriptions=everything, listener=listen, consume_from=first
        ),
        PushConsumer(
            "Go",
            namesrv=broker,
            subscriptions=everything,
            listener=listen,
            consume_from=first,
            orderly=True,
        ),
        PushConsumer(
            "Gr",
            namesrv=broker,
            subscriptions={"questions": "*"},
            listener=answer,
            consume_from=first,
        ),
        SimpleConsumer("Gs", namesrv=broker, subscriptions=everything) as simple,
    ):
        await trio.sleep(40)
        for _ in range(2):
            await producer.send(Message("orders", b"fails"))
            await producer.request(Message("questions", b"ping"), timeout=10)
            await bank.send_in_transaction(Message("orders", b"paid"), commit)
            for message in await simple.receive(10, await_duration=5):
                await simple.ack(message)
        await producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
        await producer.send_oneway(Message("orders", b"one way"))
        await trio.sleep(60)


async def test_requests_are_served_late_or_answered_late(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    for served in (False, True):
        with broker.faults.on("send").delay(7, served=served):
            began = trio.current_time()
            stored = len(broker.sent("orders"))
            async with trio.open_nursery() as sending:
                sending.start_soon(codes, peer, 1)
                await trio.sleep(3)
                assert len(broker.sent("orders")) - stored == served
            assert trio.current_time() - began == pytest.approx(7, abs=0.1)
    assert len(broker.sent("orders")) == 2


@pytest.mark.parametrize("what", ["drop_request", "drop_answer"])
async def test_requests_and_answers_are_lost(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery, what: str
) -> None:
    peer = await peer_of(broker, nursery)
    getattr(broker.faults.on("send", times=1), what)()
    with pytest.raises(RequestTimeoutError):
        await peer.ask(send_request("orders", b"lost"), 3)
    assert texts(broker.sent("orders")) == (["lost"] if what == "drop_answer" else [])
    assert await codes(peer, 1) == [0]


async def test_an_answer_that_is_held_back_is_lost_too(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    await codes(peer, 1)
    broker.faults.on("pull", times=1).drop_answer()
    with pytest.raises(RequestTimeoutError):
        await peer.ask(pull_request("orders", 1, hold=2), 10)
    assert (await peer.ask(pull_request("orders", 0, hold=2), 10)).code == 0


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("way", ["in process", "network"])
async def test_the_connection_breaks_in_place_of_an_answer(
    broker: TestBroker, autojump_clock: MockClock, served: bool, way: str
) -> None:
    source = broker if way == "in process" else broker.party("shop")
    async with Producer("shop", namesrv=source) as producer:
        await producer.send(Message("orders", b"first"))
        fault = broker.faults.on("send", times=1).close_connection(served=served)
        await producer.send(Message("orders", b"again"))
        assert fault.hits == 1
    assert texts(broker.sent("orders")) == ["first", "again", *(["again"] if served else [])]


async def test_two_requests_are_served_in_the_other_order(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    await codes(peer, 1)
    broker.faults.on("send").out_of_order(within=2)
    answered: list[bytes] = []

    async def send(body: bytes) -> None:
        await peer.send("orders", body)
        answered.append(body)

    async with trio.open_nursery() as sending:
        for body in (b"a", b"b", b"c"):
            sending.start_soon(send, body)
            await trio.testing.wait_all_tasks_blocked()
    assert answered == [b"b", b"a", b"c"]
    assert texts(broker.sent("orders")) == ["0", "b", "a", "c"]


async def test_refused_requests_are_tried_again_by_a_producer(
    broker: TestBroker, autojump_clock: MockClock
) -> None:
    fault = broker.faults.on("send", times=2).refuse()
    async with Producer("shop", namesrv=broker) as producer:
        await producer.send(Message("orders", b"1"))
    assert fault.hits == 2
    assert texts(broker.sent("orders")) == ["1"]


async def test_the_outcome_of_a_lost_answer_is_unknown_to_a_producer(
    broker: TestBroker, autojump_clock: MockClock
) -> None:
    broker.faults.on("send").drop_answer()
    async with Producer("shop", namesrv=broker, send_timeout=2, retry_times=0) as producer:
        with pytest.raises(SendTimeout) as caught:
            await producer.send(Message("orders", b"1"))
    assert caught.value.outcome_unknown
    assert texts(broker.sent("orders")) == ["1"]


async def test_name_servers_fail_too(broker: TestBroker, autojump_clock: MockClock) -> None:
    fault = broker.faults.on("route", times=1).delay(2)
    async with Producer("shop", namesrv=broker) as producer:
        await producer.send(Message("orders", b"1"), timeout=20)
    assert fault.hits == 1
    assert fault.requests[0].where == "name server"


async def test_faults_of_acks_and_commits_meet_consumers(
    broker: TestBroker, autojump_clock: MockClock
) -> None:
    await broker.seed(topics={"orders": 1}, messages={"orders": ["1"]})
    ack = broker.faults.on("ack", group="simple", times=1).error("SYSTEM_ERROR")
    async with SimpleConsumer("simple", namesrv=broker, subscriptions={"orders": "*"}) as consumer:
        (message,) = await consumer.receive(1, 30, 10)
        with pytest.raises(BrokerError):
            await consumer.ack(message)
        await consumer.ack(message)
    assert ack.hits == 1
    commit = broker.faults.on("commit", group="billing").error("SYSTEM_ERROR")
    async with PushConsumer(
        "billing",
        namesrv=broker,
        subscriptions={"orders": "*"},
        listener=Collector(),
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await broker.wait.hit(commit, within=100)
    assert broker.wait.seen.committed("billing", "orders") == {0: -1}


async def test_several_faults_meet_one_request_the_first_around_the_others(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    slow = broker.faults.on("send", times=1).delay(5)
    bad = broker.faults.on("send", times=1).error(201)
    began = trio.current_time()
    assert await codes(peer, 2) == [201, 0]
    assert trio.current_time() - began == pytest.approx(5, abs=0.1)
    assert (slow.hits, bad.hits) == (1, 1)


async def test_a_lifted_fault_has_no_effect(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    with broker.faults.on("send").error(201) as fault:
        assert await codes(peer, 1) == [201]
    assert await codes(peer, 1) == [0]
    fault.lift()
    assert fault.hits == 1


async def test_faults_last_over_lives(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker.faults.on("send").error(201)
    await broker.restart()
    assert await codes(await peer_of(broker, nursery), 1) == [201]


# What is wrong with a test


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"code": "SEND_MESAGE"}, "did you mean SEND_MESSAGE"),
        ({"code": ["send", "pul"]}, "there is no request 'pul'"),
        ({"code": 54_321}, "nobody serves"),
        ({"code": RequestCode.CHECK_TRANSACTION_STATE}, "nobody serves"),
        ({"broker": "broker-b"}, "this broker is 'broker-a', not 'broker-b'"),
        ({"code": 1.5}, "a code is 1.5; give a name"),
        ({"times": 0}, "at least 1"),
        ({"after": -1}, "after is -1; it must be at least 0"),
        ({"code": "heartbeat", "queue": 1}, "names no queue"),
        ({"code": "route", "group": "billing"}, "names no group"),
    ],
)
async def test_a_fault_that_nothing_can_meet_is_refused(
    broker: TestBroker, autojump_clock: MockClock, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        broker.faults.on(**arguments)  # type: ignore[arg-type]


async def test_an_answer_that_does_not_exist_is_refused(
    broker: TestBroker, autojump_clock: MockClock
) -> None:
    with pytest.raises(ConfigurationError, match="did you mean SYSTEM_BUSY"):
        broker.faults.on("send").error("SYSTM_BUSY")
    with pytest.raises(ConfigurationError, match="32 bits"):
        broker.faults.on("send").error(2**31)


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, 1e99])
async def test_a_time_that_cannot_pass_is_refused(
    broker: TestBroker, autojump_clock: MockClock, seconds: float
) -> None:
    for declare in (
        broker.faults.on("send").delay,
        broker.faults.slow_disk,
        lambda seconds: broker.faults.on("send").out_of_order(within=seconds),
    ):
        with pytest.raises(ConfigurationError, match=rf"is {re.escape(str(seconds))}; give "):
            declare(seconds)
    broker.faults.check()  # nothing was declared


async def test_a_fault_that_met_nothing_fails_the_test(autojump_clock: MockClock) -> None:
    async def misspelt() -> None:
        async with TestBroker() as broker, Producer("shop", namesrv=broker) as producer:
            broker.faults.on("send", topic="ordesr").error(201)
            broker.faults.on("send", topic="orders", after=1).error(201)
            broker.faults.full_disk("timerlog/*")
            await producer.send(Message("orders", b"1"))

    with pytest.raises(UnhitFaultError) as caught:
        await misspelt()
    text = str(caught.value)
    assert "no request named topic 'ordesr'; did you mean orders?" in text
    assert "it lets 1 pass first" in text
    assert "SEND_MESSAGE_V2 1" in text
    assert "timerlog/*" in text


async def test_a_fault_of_which_nobody_says_what_happens_fails_the_test(
    autojump_clock: MockClock,
) -> None:
    async def forgotten() -> None:
        async with TestBroker() as broker:
            broker.faults.on("send", topic="orders")
            with pytest.raises(ConfigurationError):
                broker.faults.on("send").error("SYSTEM_BSY")  # told already
            with pytest.raises(ConfigurationError):
                broker.faults.on("send").delay(-1)

    with pytest.raises(UnhitFaultError) as caught:
        await forgotten()
    (line,) = str(caught.value).splitlines()
    assert "faults.on() of send topic='orders' does nothing by itself" in line
    assert '.error("SYSTEM_BUSY")' in line


async def test_a_reset_forgets_what_was_begun(autojump_clock: MockClock) -> None:
    async with TestBroker() as broker:
        broker.faults.on("send")
        await broker.reset()
        assert broker.faults.on("send", times=1).refuse().hits == 0
        assert "answer SYSTEM_BUSY, 0 hits" in broker.report()
        broker.faults.clear()


async def test_an_error_of_the_test_comes_before_that_of_a_fault(
    autojump_clock: MockClock,
) -> None:
    async def broken() -> None:
        async with TestBroker() as broker:
            broker.faults.on("send").error(201)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await broken()


async def test_waiting_for_a_hit_says_that_there_was_none(
    broker: TestBroker, autojump_clock: MockClock
) -> None:
    fault = broker.faults.on("send").error(201)
    with pytest.raises(
        WaitTimeoutError, match="5 s for 2 hits of a fault, but it is <fault on send"
    ):
        await broker.wait.hit(fault, 2, within=5)
    broker.faults.clear()


# Disks


async def test_a_full_disk_refuses_messages_until_there_is_space(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    await codes(peer, 1)
    full = broker.faults.full_disk()
    assert 0 not in await codes(peer, 2)
    full.lift()
    with trio.fail_after(100):
        while (await codes(peer, 1)) != [0]:
            await trio.sleep(1)
    assert full.hits


async def test_what_cannot_be_read_is_not_given_out(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    await codes(peer, 1)
    await broker.restart()  # what it has just written it has in memory too
    peer = await peer_of(broker, nursery)
    bad = broker.faults.unreadable_disk()
    assert (await peer.ask(pull_request("orders", 0))).code != 0
    bad.lift()
    assert (await peer.ask(pull_request("orders", 0))).code == 0


async def test_a_slow_disk_makes_synced_sends_slow(autojump_clock: MockClock) -> None:
    async with TestBroker(flush_disk_type="SYNC_FLUSH") as broker, trio.open_nursery() as nursery:
        peer = await peer_of(broker, nursery)
        await codes(peer, 1)
        slow = broker.faults.slow_disk(2, path="commitlog/*")
        began = trio.current_time()
        assert await codes(peer, 1) == [0]
        assert trio.current_time() - began > 1.9
        assert slow.hits
        slow.lift()
        nursery.cancel_scope.cancel()


async def test_faults_of_a_disk_begin_late_and_end_by_themselves(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    await codes(peer, 1)
    full = broker.faults.full_disk(after=2, times=1)
    slow = broker.faults.slow_disk(0, Operation.WRITE, "commitlog/*", times=2)
    answers: list[int] = []
    with trio.fail_after(100):
        while not full.hits or answers[-1]:
            answers += await codes(peer, 1)
            await trio.sleep(1)
    assert answers[:2] == [0, 0]
    assert answers[2] != 0
    assert (full.hits, slow.hits) == (1, 2)


@pytest.mark.parametrize(
    "declare",
    [
        lambda faults: faults.full_disk("comitlog/*"),
        lambda faults: faults.disk.fail(Operation.READ, "comitlog/*"),
        lambda faults: faults.disk.slow(Operation.SYNC, "comitlog/*", delay=1),
        lambda faults: faults.disk.shorten("comitlog/*"),
    ],
)
async def test_a_fault_of_a_disk_that_met_nothing_fails_the_test(
    declare: Callable[[RequestFaults], object], autojump_clock: MockClock
) -> None:
    async def misspelt() -> None:
        async with TestBroker() as broker, Producer("shop", namesrv=broker) as producer:
            declare(broker.faults)
            await producer.send(Message("orders", b"1"))

    with pytest.raises(UnhitFaultError, match=r"<Fault .* comitlog/\*: .*> met no operation"):
        await misspelt()


@pytest.mark.parametrize(
    ("wrong", "text"), [({"times": 0}, "times is 0"), ({"after": -1}, "after is -1")]
)
async def test_a_fault_of_a_disk_that_cannot_be_is_refused(
    broker: TestBroker, autojump_clock: MockClock, wrong: dict[str, int], text: str
) -> None:
    for declare in (broker.faults.full_disk, broker.faults.disk.shorten):
        with pytest.raises(ConfigurationError, match=text):
            declare(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the delay of an operation is -1"):
        broker.faults.disk.slow(Operation.SYNC, delay=-1)
    broker.faults.check()


async def test_a_disk_that_is_real_has_no_faults(tmp_path: object) -> None:
    async with TestBroker(tmp_path) as broker:  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="leave out the path"):
            broker.faults.full_disk()


async def test_a_closed_connection_is_an_error_of_an_unknown_outcome(
    broker: TestBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peer = await peer_of(broker, nursery)
    broker.faults.on("send").close_connection()
    with pytest.raises(ConnectError) as caught:
        await codes(peer, 1)
    assert caught.value.outcome_unknown
