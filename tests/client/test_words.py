"""Words of commit and roll-back: together, alone, and whatever becomes of them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.words import Words
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import BrokerError
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.transaction import TransactionProducer
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from support.peers import SILENT, open_cluster
from support.transactions import bodies_in, ops

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.producer.transaction import Transaction
    from rocketmq_sdk.remoting.channel import Channel
    from support.peers import Cluster, ScriptedBroker


async def unknown(_message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


class Listener:
    """Answers the words that a scripted broker hears: a code for each, then success."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.heard: list[Command] = []
        self.script: list[int] = []
        broker.dispatcher.replace(RequestCode.END_TRANSACTION, self)

    def __call__(self, _channel: Channel, request: Command) -> Command | None:
        self.heard.append(request)
        code = self.script.pop(0) if self.script else 0
        return None if code == SILENT else Command.response(code, remark="as the test wants it")


@asynccontextmanager
async def opened(
    cluster: Cluster, **options: Any
) -> AsyncIterator[tuple[TransactionProducer, Listener]]:
    listener = Listener(cluster.brokers[0])
    async with (
        cluster.client(**options) as client,
        TransactionProducer("PG", unknown, client=client, send_timeout=2.0) as producer,
    ):
        yield producer, listener


async def committed(producer: TransactionProducer, number: int) -> list[Transaction]:
    """Commit so many transactions at a time."""
    done: list[Transaction] = []

    async def commit(at: int) -> None:
        async with producer.transaction(Message("t", b"%d" % at)) as transaction:
            done.append(transaction)

    async with trio.open_nursery() as nursery:
        for at in range(number):
            nursery.start_soon(commit, at)
    return done


class Nothing:
    """Looks at requests, so that each is a command of its own."""

    def before(self, _command: Command, _address: str | None) -> None:
        """Changes nothing."""

    def after(self, _command: Command, _response: Command, _address: str | None) -> None:
        """Changes nothing."""


async def test_words_are_the_same_from_forms_and_as_commands(autojump_clock: MockClock) -> None:
    found = []
    for interceptors in ([], [Nothing()]):
        async with (
            open_cluster(brokers=1) as cluster,
            opened(cluster, interceptors=interceptors) as (producer, listener),
        ):
            for message_id in ('odd "id" \\ é\n', "plain"):
                cluster.brokers[0].script = [
                    lambda _channel, request, unique=message_id: answered(request, unique)
                ]
                async with producer.transaction(Message("t", b"x")) as transaction:
                    assert transaction.transaction_id == message_id
                async with producer.transaction(Message("t", b"x")) as transaction:
                    transaction.rollback()
            found.append(
                [
                    (
                        *(request.code, request.flag, request.version, request.language),
                        {
                            **request.ext_fields,
                            "msgId": "",
                            "transactionId": own_id(request),
                        },
                        list(request.ext_fields),
                    )
                    for request in listener.heard
                ]
            )
    assert found[0] == found[1]
    assert len(found[0]) == 4


def answered(_request: Command, transaction_id: str) -> Command:
    response = Command.response()
    response.ext_fields = {
        "msgId": f"{7:032X}",
        "queueId": "0",
        "queueOffset": "3",
        "transactionId": transaction_id,
    }
    return response


def own_id(request: Command) -> str:
    text = request.ext_fields["transactionId"]
    return "" if text == request.ext_fields["msgId"] else text


class Signs:
    """Signs each request, as an account does."""

    def before(self, command: Command, _address: str | None) -> None:
        command.ext_fields["signature"] = f"of {command.code}"

    def after(self, _command: Command, _response: Command, _address: str | None) -> None:
        """Changes nothing."""


@pytest.mark.parametrize("number", [1, 5])
async def test_interceptors_see_each_word(autojump_clock: MockClock, number: int) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        opened(cluster, interceptors=[Signs()]) as (producer, listener),
    ):
        await committed(producer, 1)
        await committed(producer, number)
        signatures = [word.ext_fields.get("signature") for word in listener.heard]
        assert signatures == ["of 37"] * (1 + number)


async def test_words_name_the_broker_that_they_are_told_to(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=2) as cluster, opened(cluster) as (producer, _listener):
        listeners = {broker.name: Listener(broker) for broker in cluster.brokers}
        await committed(producer, 1)
        await committed(producer, 8)
        assert sum(len(listener.heard) for listener in listeners.values()) == 9
        for name, listener in listeners.items():
            assert {word.ext_fields["bname"] for word in listener.heard} == {name}


async def test_half_messages_say_in_their_header_that_they_are(
    autojump_clock: MockClock,
) -> None:
    """Alone and beside others, also of the same queues that plain messages go to."""
    async with open_cluster(brokers=1) as cluster, opened(cluster) as (producer, _listener):
        broker = cluster.brokers[0]

        async def send(at: int) -> None:
            await producer.send(Message("t", b"%d" % at))

        async def commit(at: int) -> None:
            async with producer.transaction(Message("t", b"%d" % at)):
                pass

        for number in (1, 1, 12):
            async with trio.open_nursery() as nursery:
                for at in range(number):
                    nursery.start_soon(commit, at)
                    nursery.start_soon(send, at)
        flags = [
            (header.sys_flag, "TRAN_MSG\x01true" in (header.properties or ""))
            for _time, _request, header in broker.sends
        ]
        half, plain = (int(SysFlag.TRANSACTION_PREPARED), True), (0, False)
        assert (flags.count(half), flags.count(plain), len(flags)) == (14, 14, 28)


async def test_words_of_one_tick_leave_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    submit = Words._submit

    def counted(words: Words, channel: Channel, some: list[Any]) -> None:
        runs.append(len(some))
        submit(words, channel, some)

    monkeypatch.setattr(Words, "_submit", counted)
    async with open_cluster(brokers=1) as cluster, opened(cluster) as (producer, listener):
        await committed(producer, 1)
        runs.clear()
        done = await committed(producer, 40)
        assert all(transaction.confirmed for transaction in done)
        assert len(listener.heard) == 41
        assert sum(runs) == 40
        assert len(runs) < 10


async def test_each_word_has_its_own_answer(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, opened(cluster) as (producer, listener):
        await committed(producer, 3)
        outcomes: list[object] = []

        async def commit() -> None:
            try:
                async with producer.transaction(Message("t", b"x")) as transaction:
                    pass
            except BrokerError as error:
                outcomes.append(error.code)
            else:
                outcomes.append(transaction.confirmed)

        listener.script = [0, 1, SILENT, 0, ResponseCode.ILLEGAL_OPERATION, SILENT]
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(commit)
        assert trio.current_time() - begin == pytest.approx(2.0, abs=0.2)
        assert sorted(map(repr, outcomes)) == sorted(
            map(repr, [1, int(ResponseCode.ILLEGAL_OPERATION), True, True, False, False])
        )


async def test_a_cancelled_word_harms_no_other(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, opened(cluster) as (producer, listener):
        await committed(producer, 1)
        listener.script = [SILENT] * 3
        ended = 0

        async def commit() -> None:
            nonlocal ended
            async with producer.transaction(Message("t", b"x")):
                pass
            ended += 1

        with trio.move_on_after(0.5):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(commit)
        assert (ended, len(listener.heard), producer._words.waiting) == (0, 4, 0)
        done = await committed(producer, 3)
        assert all(transaction.confirmed for transaction in done)


async def test_a_word_that_is_cancelled_before_it_leaves_is_not_heard(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_cluster(brokers=1) as cluster, opened(cluster) as (producer, listener):
        await committed(producer, 2)
        heard = len(listener.heard)
        scopes: list[trio.CancelScope] = []
        leave = Words.leave

        def cancel_first(words: Words) -> None:
            for scope in scopes:
                scope.cancel()
            leave(words)

        monkeypatch.setattr(Words, "leave", cancel_first)

        async def commit() -> None:
            async with producer.transaction(Message("t", b"x")):
                pass

        async def cancelled() -> None:
            with trio.CancelScope() as scope:
                async with producer.transaction(Message("t", b"x")):
                    scopes.append(scope)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancelled)
            for _ in range(3):
                nursery.start_soon(commit)
        assert producer._words.waiting == 0
        assert len(listener.heard) - heard == 3


async def test_a_broker_that_goes_away_is_told_on_a_new_connection(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(brokers=1) as cluster, opened(cluster) as (producer, listener):
        await committed(producer, 1)
        listener.script = [ResponseCode.GO_AWAY] * 3
        done = await committed(producer, 3)
        assert all(transaction.confirmed for transaction in done)
        assert len(listener.heard) == 7


async def test_a_connection_that_ends_leaves_words_to_the_check(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_cluster(brokers=1) as cluster, opened(cluster) as (producer, listener):
        await committed(producer, 1)
        listener.script = [SILENT] * 4
        done: list[Transaction] = []

        async def commit() -> None:
            done.extend(await committed(producer, 4))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await trio.sleep(0.5)
            await cluster.brokers[0].stop()
        assert [transaction.confirmed for transaction in done] == [False] * 4
        assert caplog.text.count("the check decides") == 4


async def test_words_that_wait_when_the_producer_is_given_up(autojump_clock: MockClock) -> None:
    """They leave all the same, and nobody waits for ever."""
    async with open_cluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        done: list[bool] = []
        with pytest.raises(KeyError):  # noqa: PT012 - it ends the block around the words
            async with opened(cluster) as (producer, _listener):
                await committed(producer, 1)
                go = trio.Event()

                async def commit() -> None:
                    async with producer.transaction(Message("t", b"x")) as transaction:
                        await go.wait()
                    done.append(transaction.confirmed)

                for _ in range(3):
                    nursery.start_soon(commit)
                await trio.sleep(0.5)
                go.set()
                raise KeyError
        with trio.fail_after(10):
            while len(done) < 3:
                await trio.sleep(0.1)


@pytest.mark.parametrize("number", [1, 3])
async def test_words_leave_when_the_producer_is_cancelled_with_the_transactions(
    autojump_clock: MockClock, number: int
) -> None:
    """A roll-back, and what is shielded, are told though the producer is ending."""
    async with open_cluster(brokers=1) as cluster:
        listener = Listener(cluster.brokers[0])
        done: list[Transaction] = []

        async def roll_back(producer: TransactionProducer) -> None:
            async with producer.transaction(Message("t", b"x")) as transaction:
                transaction.rollback()
                await trio.sleep_forever()

        async def commit(producer: TransactionProducer) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(5, shield=True):
                    async with producer.transaction(Message("t", b"x")) as transaction:
                        await trio.sleep(0.1)
                    done.append(transaction)

        async with cluster.client() as client:
            with trio.CancelScope() as scope:
                async with (
                    TransactionProducer("PG", unknown, client=client) as producer,
                    trio.open_nursery() as nursery,
                ):
                    await committed(producer, 1)
                    began = trio.current_time()
                    for _ in range(number):
                        nursery.start_soon(roll_back, producer)
                        nursery.start_soon(commit, producer)
                    await trio.sleep(0.5)
                    scope.cancel()
            assert trio.current_time() - began < 1
        assert [transaction.confirmed for transaction in done] == [True] * number
        told = sorted(word.ext_fields["commitOrRollback"] for word in listener.heard[1:])
        assert told == sorted(["12", "8"] * number)


async def test_in_the_process_words_are_told_at_once(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker:
        broker.core.topics.put(TopicConfig("t", 1, 1))
        async with TransactionProducer("PG", unknown, namesrv=broker) as producer:
            for number in (1, 1, 60):
                done = await committed(producer, number)
                assert all(transaction.confirmed for transaction in done)
            assert len(bodies_in(broker, "t")) == 62
            assert len(broker.parts.transactions.table) == 0


@pytest.mark.real_time
async def test_over_tcp_words_that_come_together_are_one_record() -> None:
    with trio.fail_after(30):
        async with EmbeddedBroker(listen="127.0.0.1:0", namesrv_listen="127.0.0.1:0") as broker:
            broker.core.topics.put(TopicConfig("t", 1, 1))
            async with TransactionProducer(
                "PG", unknown, namesrv=broker.namesrv_address
            ) as producer:
                for _ in range(3):  # alone: each waits at the socket itself
                    (transaction,) = await committed(producer, 1)
                    assert transaction.confirmed
                with trio.move_on_after(0.0):
                    await committed(producer, 1)
                done = await committed(producer, 60)
                assert all(transaction.confirmed for transaction in done)
                assert len(bodies_in(broker, "t")) == 63
                assert len(ops(broker)) < 40
