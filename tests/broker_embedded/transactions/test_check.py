"""The ladder of checks in virtual time: when a producer is asked, how often, by whom it
is answered, and what comes after the last check.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.broker_embedded.transactions.check import TransactionCheckService
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.names import (
    TRANSACTION_CHECK_MAX_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.transactions import ResumeCheckHalfMessageRequestHeader
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import Peer, connect, open_broker, open_on
from support.transactions import (
    COMMIT,
    ROLLBACK,
    begun,
    bodies_in,
    end_of_check,
    ended,
    halves,
    messages_in,
    ops,
    producer_heartbeat,
)

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker


class Asked(Peer):
    """A producer that notes when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def handle(self, channel: object, request: Command) -> None:
        self.requests.append(request)
        self.times.append(trio.current_time())


async def producer(
    broker: EmbeddedBroker, nursery: trio.Nursery, client_id: str = "c@1", group: str = "PG"
) -> Asked:
    asked = Asked()
    asked.channel = await broker.open_channel(broker.core.address(), asked.handle, nursery)
    await asked.ask(producer_heartbeat(client_id, group))
    return asked


async def keep_alive(peer: Peer, client_id: str = "c@1", group: str = "PG") -> None:
    while True:
        await trio.sleep(30)
        await peer.ask(producer_heartbeat(client_id, group))


def now_ms(broker: EmbeddedBroker) -> int:
    return broker.core.clock.now_ms()


async def test_a_producer_that_never_answers_is_asked_fifteen_times(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(3000):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            nursery.start_soon(keep_alive, asked)
            started = trio.current_time()
            half = await begun(peer, b"half", born_timestamp=now_ms(broker), queue_id=3)
            await trio.sleep(600)
            assert len(asked.times) == 15
            assert 24 <= asked.times[0] - started <= 36
            steps = [later - earlier for earlier, later in itertools.pairwise(asked.times)]
            assert all(29.9 <= step <= 30.1 for step in steps)
            assert [
                message.properties.get("TRANSACTION_CHECK_TIMES") for message in halves(broker)
            ] == [None, *map(str, range(1, 16))]
            [given_up] = messages_in(broker, TRANSACTION_CHECK_MAX_TOPIC)
            assert (
                given_up.body,
                given_up.properties["REAL_TOPIC"],
                given_up.properties["REAL_QID"],
            ) == (b"half", "orders", "3")
            assert ops(broker) == [b"15,"]
            assert (await ended(peer, half, COMMIT)).code == ResponseCode.ILLEGAL_OPERATION
            assert bodies_in(broker, "orders", 3) == []
            nursery.cancel_scope.cancel()


async def test_what_a_check_carries(autojump_clock: MockClock) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            await begun(peer, b"half", born_timestamp=now_ms(broker), queue_id=3, tag="A", flag=5)
            await trio.sleep(40)
            [check] = asked.requests
            assert (check.code, check.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
            copy = halves(broker)[1]
            assert check.ext_fields == {
                "bname": "broker-a",
                "topic": TRANSACTION_HALF_TOPIC,
                "tranStateTableOffset": "1",
                "commitLogOffset": str(copy.commit_log_offset),
                "msgId": "U-half",
                "transactionId": "U-half",
                "offsetMsgId": copy.offset_message_id,
            }
            message = decode_message(check.body)
            assert (message.topic, message.queue_id, message.body, message.tags, message.flag) == (
                "orders",
                3,
                b"half",
                "A",
                5,
            )
            assert (message.offset, message.commit_log_offset) == (1, copy.commit_log_offset)
            assert copy.flag == 5
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_an_answer_ends_the_transaction_once(outcome: int, autojump_clock: MockClock) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            half = await begun(peer, b"half", born_timestamp=now_ms(broker))
            await trio.sleep(40)
            assert (await peer.ask(end_of_check(asked.requests[0], outcome))).code == 0
            told = 0 if outcome == COMMIT else ResponseCode.ILLEGAL_OPERATION
            assert (await peer.ask(end_of_check(asked.requests[0], COMMIT))).code == told
            assert (await ended(peer, half, COMMIT)).code == told
            await trio.sleep(100)
            assert len(asked.requests) == 1
            assert bodies_in(broker, "orders") == ([b"half"] if outcome == COMMIT else [])
            nursery.cancel_scope.cancel()


async def test_the_word_of_the_sender_counts_also_after_a_check_was_sent(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            half = await begun(peer, b"half", born_timestamp=now_ms(broker))
            await trio.sleep(40)
            assert (await ended(peer, half, COMMIT)).code == 0
            assert (await peer.ask(end_of_check(asked.requests[0], COMMIT))).code == 0
            assert bodies_in(broker, "orders") == [b"half"]
            assert (
                messages_in(broker, "orders")[0].prepared_transaction_offset
                == halves(broker)[1].commit_log_offset
            )
            nursery.cancel_scope.cancel()


async def test_all_members_of_a_group_are_asked_in_turn(autojump_clock: MockClock) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            members = [await producer(broker, nursery, f"c@{number}") for number in range(3)]
            stranger = await producer(broker, nursery, "c@x", "another group")
            for number in range(9):
                await begun(peer, b"%d" % number, born_timestamp=now_ms(broker))
            await trio.sleep(40)
            assert [len(member.requests) for member in members] == [3, 3, 3]
            assert stranger.requests == []
            nursery.cancel_scope.cancel()


async def test_immunity_puts_the_first_check_off(autojump_clock: MockClock) -> None:
    with trio.fail_after(1000):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            nursery.start_soon(keep_alive, asked)
            started = trio.current_time()
            await begun(
                peer,
                b"immune",
                born_timestamp=now_ms(broker),
                properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02",
            )
            await begun(peer, b"usual", born_timestamp=now_ms(broker))
            await trio.sleep(110)
            bodies = [decode_message(request.body).body for request in asked.requests]
            assert bodies.count(b"usual") == 3
            assert b"immune" not in bodies
            await trio.sleep(30)
            [first] = [
                time
                for time, request in zip(asked.times, asked.requests, strict=True)
                if decode_message(request.body).body == b"immune"
            ]
            assert 100 <= first - started <= 131
            copies = [message for message in halves(broker) if message.body == b"immune"]
            assert [copy.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for copy in copies] == [
                None,
                "0",
                "0",
                "0",
                "0",
            ]
            assert [copy.properties.get("TRANSACTION_CHECK_TIMES") for copy in copies] == [
                None,
                None,
                None,
                None,
                "1",
            ]
            nursery.cancel_scope.cancel()


async def test_the_settings_of_checks(autojump_clock: MockClock) -> None:
    settings = {
        "transaction_check_interval": 2000,
        "transaction_time_out": 3000,
        "transaction_check_max": 2,
    }
    with trio.fail_after(300):
        async with open_broker(**settings) as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            started = trio.current_time()
            await begun(peer, b"half", born_timestamp=now_ms(broker))
            await trio.sleep(20)
            assert [round(time - started) for time in asked.times] in ([3, 5], [4, 6])
            assert bodies_in(broker, TRANSACTION_CHECK_MAX_TOPIC) == [b"half"]
            nursery.cancel_scope.cancel()


async def test_checks_pause_after_a_round_however_long_it_took(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float] = []

    async def take_long(_self: object) -> None:
        began.append(trio.current_time() - started)
        await trio.sleep(7)
        if len(began) == 2:
            raise ValueError("odd")

    monkeypatch.setattr(TransactionCheckService, "round", take_long)
    started = trio.current_time()
    async with open_broker(transaction_check_interval=5000):
        await trio.sleep(45)
    assert [round(moment) for moment in began] == [5, 17, 29, 41]


async def test_nobody_to_ask_counts_as_a_check(autojump_clock: MockClock) -> None:
    with trio.fail_after(3000):
        async with open_broker(transaction_check_max=3) as (broker, peer):
            await begun(peer, b"half", born_timestamp=now_ms(broker))
            await trio.sleep(200)
            assert bodies_in(broker, TRANSACTION_CHECK_MAX_TOPIC) == [b"half"]
            assert not broker.parts.transactions.table


async def test_a_message_older_than_the_log_may_be_is_given_up_unasked(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            await begun(peer, b"half", born_timestamp=now_ms(broker) - 73 * 3_600_000)
            await trio.sleep(40)
            assert asked.requests == []
            assert bodies_in(broker, TRANSACTION_CHECK_MAX_TOPIC) == [b"half"]
            nursery.cancel_scope.cancel()


async def test_a_message_given_up_can_be_taken_up_again(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem()
    with trio.fail_after(3000):
        async with open_on(files, transaction_check_max=1) as (broker, peer):
            await begun(peer, b"half", born_timestamp=now_ms(broker))
            await trio.sleep(100)
            [given_up] = messages_in(broker, TRANSACTION_CHECK_MAX_TOPIC)
            header = ResumeCheckHalfMessageRequestHeader(msg_id=given_up.offset_message_id)
            for _ in range(2):
                assert (
                    await peer.ask(Command.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))
                ).code == 0
            assert len(broker.parts.transactions.table) == 1
        async with open_on(files) as (broker, peer), trio.open_nursery() as nursery:
            assert len(broker.parts.transactions.table) == 1
            asked = await producer(broker, nursery)
            await trio.sleep(40)
            assert (await peer.ask(end_of_check(asked.requests[0], COMMIT))).code == 0
            assert bodies_in(broker, "orders") == [b"half"]
            nursery.cancel_scope.cancel()


async def test_checks_of_an_open_message_begin_anew(autojump_clock: MockClock) -> None:
    """Apache's broker puts it back; here it is not there twice then."""
    files = FaultyFileSystem()
    with trio.fail_after(3000):
        async with open_on(files, transaction_check_max=2) as (broker, peer):
            answer = await begun(peer, b"half", born_timestamp=now_ms(broker))
            place = ResumeCheckHalfMessageRequestHeader(msg_id=answer.ext_fields["msgId"])
            resume = Command.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, place)
            for _ in range(5):
                await trio.sleep(40)
                assert (await peer.ask(resume)).code == 0
            assert bodies_in(broker, TRANSACTION_CHECK_MAX_TOPIC) == []
            assert len(broker.parts.transactions.table) == 1
        async with open_on(files) as (broker, peer):
            assert len(broker.parts.transactions.table) == 1
            assert (await ended(peer, answer, COMMIT)).code == 0
            assert bodies_in(broker, "orders") == [b"half"]
            assert (await peer.ask(resume)).code == 1
            assert len(broker.parts.transactions.table) == 0


async def test_the_progress_of_both_queues_moves_on(autojump_clock: MockClock) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer):
            offsets = broker.core.offsets
            answers = [
                await begun(peer, b"%d" % number, born_timestamp=now_ms(broker))
                for number in range(5)
            ]
            for answer in answers[1:]:
                await ended(peer, answer, COMMIT)
            await trio.sleep(6)
            assert offsets.query("CID_RMQ_SYS_TRANS", TRANSACTION_HALF_TOPIC, 0) <= 0
            assert offsets.query("CID_RMQ_SYS_TRANS", TRANSACTION_OP_TOPIC, 0) <= 0
            await ended(peer, answers[0], COMMIT)
            await trio.sleep(20)  # the next write of the offsets after the next flush of the log
            assert offsets.query("CID_RMQ_SYS_TRANS", TRANSACTION_HALF_TOPIC, 0) == 5
            assert offsets.query("CID_RMQ_SYS_TRANS", TRANSACTION_OP_TOPIC, 0) == 5


async def test_a_copy_that_cannot_be_stored_is_tried_in_the_next_round(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            nursery.start_soon(keep_alive, asked)
            await begun(peer, b"half", born_timestamp=now_ms(broker))
            with monkeypatch.context() as patch:
                patch.setattr(
                    broker.store, "put", lambda _message: PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
                )
                await trio.sleep(50)
            assert asked.requests == []
            await trio.sleep(30)
            assert len(asked.requests) == 1
            nursery.cancel_scope.cancel()


async def test_a_half_message_without_room_for_the_counter_is_checked_and_given_up_all_the_same(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(3000):
        async with (
            open_broker(transaction_check_max=2) as (broker, peer),
            trio.open_nursery() as nursery,
        ):
            asked = await producer(broker, nursery)
            nursery.start_soon(keep_alive, asked)
            await begun(peer, b"half", born_timestamp=now_ms(broker))
            used = len(halves(broker)[0].properties_bytes)
            filler = "f\x01" + "v" * (32_767 - used - 5) + "\x02"
            await begun(
                peer, b"half", unique="U-full", born_timestamp=now_ms(broker), properties=filler
            )
            await trio.sleep(70)
            assert sorted(request.ext_fields["msgId"] for request in asked.requests) == [
                "U-full",
                "U-full",
                "U-half",
                "U-half",
            ]
            await trio.sleep(60)
            assert len(bodies_in(broker, TRANSACTION_CHECK_MAX_TOPIC)) == 2
            assert not broker.parts.transactions.table
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "where",
    [
        "",
        "REAL_TOPIC\x01orders\x02",
        "REAL_TOPIC\x01orders\x02REAL_QID\x01-3\x02",
        "REAL_QID\x01x\x02",
    ],
)
async def test_a_half_message_that_belongs_nowhere_is_given_up(
    where: str, autojump_clock: MockClock
) -> None:
    files = FaultyFileSystem()
    with trio.fail_after(3000):
        async with open_on(files) as (broker, _peer):
            text = f"UNIQ_KEY\x01U\x02PGROUP\x01PG\x02{where}"
            assert broker.store.put(
                MessageToStore(
                    TRANSACTION_HALF_TOPIC, 0, b"half", text, born_timestamp=now_ms(broker)
                )
            ).ok
        async with open_on(files) as (broker, _peer):
            assert len(broker.parts.transactions.table) == 1
            await trio.sleep(70)
            assert not broker.parts.transactions.table
            assert bodies_in(broker, TRANSACTION_CHECK_MAX_TOPIC) == [b"half"]


async def test_op_messages_of_every_version_are_understood(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem()
    with trio.fail_after(300):
        async with open_on(files) as (broker, peer):
            for number in range(6):
                await begun(peer, b"%d" % number)
            for body, tag in (
                (b"0", "d"),
                (b"1,3,", "d"),
                (b"x,,-4,5" + b"0" * 30 + b",", "d"),
                (b"4,", "e"),
            ):
                assert broker.store.put(
                    MessageToStore(TRANSACTION_OP_TOPIC, 0, body, f"TAGS\x01{tag}\x02")
                ).ok
        async with open_on(files) as (broker, peer):
            assert broker.parts.transactions.table.open_offsets() == [2, 4, 5]


async def test_many_open_transactions_are_checked_without_holding_others_up(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            asked = await producer(broker, nursery)
            for number in range(500):
                await begun(peer, b"%d" % number, born_timestamp=now_ms(broker))
            other = await connect(broker, nursery)
            await trio.sleep(40)
            assert len(asked.requests) == 500
            for request in asked.requests:
                await other.ask(end_of_check(request, COMMIT))
            assert len(bodies_in(broker, "orders")) == 500
            nursery.cancel_scope.cancel()
