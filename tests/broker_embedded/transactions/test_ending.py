"""Transactions: half messages, their ends, what is stored, and that nothing appears
twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.transactions.table import TransactionTable
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.transactions import ResumeCheckHalfMessageRequestHeader
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_broker, open_on, send_request
from support.transactions import (
    COMMIT,
    OPEN,
    ROLLBACK,
    begun,
    bodies_in,
    end_request,
    ended,
    half_request,
    halves,
    messages_in,
    ops,
)

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem()


async def test_a_half_message_is_stored_as_apache_stores_it(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answer = await begun(peer, b"half", queue_id=2, tag="A", flag=7)
            assert answer.ext_fields["queueId"] == "2"
            assert (answer.ext_fields["queueOffset"], answer.ext_fields["transactionId"]) == (
                "0",
                "U-half",
            )
            half = halves(broker)[0]
            assert (half.topic, half.queue_id, half.sys_flag, half.flag, half.body) == (
                TRANSACTION_HALF_TOPIC,
                0,
                0,
                7,
                b"half",
            )
            properties = half.properties
            assert (
                properties["REAL_TOPIC"],
                properties["REAL_QID"],
                properties["__transactionId__"],
            ) == ("orders", "2", "U-half")
            assert (properties["TRAN_MSG"], properties["PGROUP"], properties["TAGS"]) == (
                "true",
                "PG",
                "A",
            )
            assert broker.store.max_offset("orders", 2) == 0
            assert len(broker.parts.transactions.table) == 1


async def test_a_commit_shows_the_message_and_writes_its_op_record_behind_it(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answer = await begun(peer, b"half", queue_id=2, tag="A", flag=7)
            assert (await ended(peer, answer, COMMIT)).code == 0
            final = messages_in(broker, "orders", 2)[0]
            half = halves(broker)[0]
            assert (final.body, final.flag, final.sys_flag, final.tags) == (b"half", 7, 8, "A")
            assert final.prepared_transaction_offset == half.commit_log_offset
            assert (final.born_timestamp, final.born_host) == (half.born_timestamp, half.born_host)
            assert final.properties == {
                name: value
                for name, value in half.properties.items()
                if name not in ("REAL_TOPIC", "REAL_QID")
            }
            op = messages_in(broker, TRANSACTION_OP_TOPIC)[0]
            assert (op.body, op.properties, op.sys_flag) == (
                b"0,",
                {"WAIT": "true", "TAGS": "d"},
                0,
            )
            assert op.commit_log_offset == final.commit_log_offset + final.store_size
            unit = broker.store.queue_unit("orders", 2, 0)
            assert unit is not None
            assert unit[2] == ord("A")
            assert not broker.parts.transactions.table


async def test_a_rollback_writes_only_an_op_record(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answer = await begun(peer, b"half")
            assert (await ended(peer, answer, ROLLBACK)).code == 0
            assert (bodies_in(broker, "orders"), ops(broker)) == ([], [b"0,"])
            assert not broker.parts.transactions.table


async def test_an_open_end_changes_nothing(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answer = await begun(peer, b"half")
            assert (await ended(peer, answer, OPEN)).code == 0
            assert ops(broker) == []
            assert len(broker.parts.transactions.table) == 1


@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
async def test_ending_what_is_ended_stores_nothing_and_tells_when_it_was_the_other_way(
    first: int, second: int, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answer = await begun(peer, b"half")
            await ended(peer, answer, first)
            end = broker.store.max_physical_offset
            again = await ended(peer, answer, second)
            if second == first:
                assert again.code == 0
            else:
                what = "committed" if first == COMMIT else "rolled back or given up"
                assert (again.code, again.remark) == (
                    ResponseCode.ILLEGAL_OPERATION,
                    f"the transaction was {what} before",
                )
            assert broker.store.max_physical_offset == end


async def test_outcomes_are_forgotten_in_the_order_of_their_ends(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{TransactionTable.__module__}._REMEMBERED", 2)
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            halves = [await begun(peer, b"%d" % number) for number in range(3)]
            for half in halves:
                await ended(peer, half, ROLLBACK)
            codes = [(await ended(peer, half, COMMIT)).code for half in halves]
            assert codes == [0, *[ResponseCode.ILLEGAL_OPERATION] * 2]


async def test_a_half_message_sent_again_after_a_lost_answer_is_one_transaction(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            first = await begun(peer, b"half")
            second = await begun(peer, b"half")
            assert len(broker.parts.transactions.table) == 1
            assert (await ended(peer, first, COMMIT)).code == 0
            assert (await ended(peer, second, COMMIT)).code == 0
            assert bodies_in(broker, "orders") == [b"half"]


async def test_two_messages_under_one_id_are_two_transactions(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answers = [await begun(peer, body, unique="same") for body in (b"one", b"two")]
            for answer in answers:
                await ended(peer, answer, COMMIT)
            assert bodies_in(broker, "orders") == [b"one", b"two"]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producer_group": "another"}, "The producer group wrong"),
        ({"tran_state_table_offset": 5}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -5}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 60}, "Find prepared transaction message failed"),
    ],
)
async def test_an_end_that_does_not_fit_is_refused(
    changes: dict[str, object], remark: str, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            answer = await begun(peer, b"half")
            refusal = await ended(peer, answer, COMMIT, **changes)
            assert (refusal.code, refusal.remark) == (1, remark)
            assert bodies_in(broker, "orders") == []


async def test_an_ordinary_message_cannot_be_committed(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            answer = await peer.ask(send_request("orders", b"x", properties="PGROUP\x01PG\x02"))
            refusal = await ended(peer, answer, COMMIT)
            assert (refusal.code, refusal.remark) == (1, "Find prepared transaction message failed")


async def test_a_producer_past_its_immunity_has_to_wait_for_the_check(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(600):
        async with open_broker(transaction_time_out=2000) as (broker, peer):
            immune = "CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02"
            now = broker.core.clock.now_ms()
            answer = await begun(peer, b"half", properties=immune, born_timestamp=now)
            await trio.sleep(10.5)
            assert (await ended(peer, answer, COMMIT)).code == 604
            assert (await ended(peer, answer, COMMIT, from_transaction_check=True)).code == 0
            assert bodies_in(broker, "orders") == [b"half"]


async def test_a_delayed_transaction_waits_from_its_commit_on(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with open_broker() as (broker, peer):
            answer = await begun(peer, b"half", properties="DELAY\x012\x02")
            assert broker.store.max_offset(SCHEDULE_TOPIC, 1) == 0
            await trio.sleep(20)
            await ended(peer, answer, COMMIT)
            assert bodies_in(broker, SCHEDULE_TOPIC, 1) == [b"half"]
            await trio.sleep(4.5)
            assert bodies_in(broker, "orders") == []
            await trio.sleep(1)
            assert bodies_in(broker, "orders") == [b"half"]
            assert (await ended(peer, answer, COMMIT)).code == 0
            await trio.sleep(10)
            assert bodies_in(broker, "orders") == [b"half"]


async def test_transactions_can_be_refused(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(reject_transaction_message=True) as (_broker, peer):
            answer = await peer.ask(half_request("orders", b"x", unique="U"))
            assert answer.code == 16
            assert "sending transaction message is forbidden" in (answer.remark or "")


async def test_a_half_message_is_measured_like_any_other(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(max_message_size=100) as (broker, peer):
            assert (await peer.ask(half_request("orders", bytes(101), unique="U"))).code == 13
            long = "a\x01" + "v" * 32_700 + "\x02"
            assert (
                await peer.ask(half_request("orders", b"x", unique="U", properties=long))
            ).code == 13
            assert not broker.parts.transactions.table


@pytest.mark.parametrize(
    "poison",
    [
        "REAL_TOPIC\x01../../etc\x02",
        "REAL_QID\x01-7\x02REAL_TOPIC\x01\x02",
        "TRANSACTION_CHECK_TIMES\x01many\x02",
        "__transactionId__\x01x\x02",
        "CHECK_IMMUNITY_TIME_IN_SECONDS\x01never\x02",
        "TIMER_DELIVER_MS\x01soon\x02",
    ],
)
async def test_poison_properties_harm_nobody(
    poison: str, files: FaultyFileSystem, autojump_clock: MockClock
) -> None:
    with trio.fail_after(600):
        async with open_on(files) as (broker, peer):
            answer = await begun(peer, b"half", properties=poison)
            good = await begun(peer, b"good")
        async with open_on(files) as (broker, peer):
            assert len(broker.parts.transactions.table) == 2
            await ended(peer, answer, COMMIT)
            assert (await ended(peer, good, COMMIT)).code == 0
            assert b"good" in bodies_in(broker, "orders")
            await trio.sleep(100)


async def test_what_is_open_and_what_is_ended_survives_a_restart(
    files: FaultyFileSystem, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_on(files) as (broker, peer):
            answers = [await begun(peer, body) for body in (b"one", b"two", b"three", b"four")]
            await ended(peer, answers[1], COMMIT)
            await ended(peer, answers[2], ROLLBACK)
        async with open_on(files) as (broker, peer):
            assert broker.parts.transactions.table.open_offsets() == [0, 3]
            for answer in answers:
                assert (await ended(peer, answer, COMMIT)).code == 0
            assert bodies_in(broker, "orders") == [b"two", b"one", b"four"]
        async with open_on(files) as (broker, peer):
            assert not broker.parts.transactions.table
            assert broker.core.offsets.query("CID_RMQ_SYS_TRANS", TRANSACTION_HALF_TOPIC, 0) == 4
            assert broker.core.offsets.query("CID_RMQ_SYS_TRANS", TRANSACTION_OP_TOPIC, 0) == 4


async def test_synchronous_flush_answers_behind_the_sync(
    files: FaultyFileSystem, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_on(files, flush_disk_type="SYNC_FLUSH") as (broker, peer):
            answer = await begun(peer, b"half")
            assert (await ended(peer, answer, COMMIT)).code == 0
            assert bodies_in(broker, "orders") == [b"half"]
            assert broker.store.flushed.value == broker.store.max_physical_offset


async def test_a_commit_into_a_full_store_leaves_the_transaction_open(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker(
            mapped_file_size_commit_log=64 * 1024,
            memory_limit=200_000,
            memory_full_policy="REFUSE_SENDS",
        ) as (broker, peer):
            answer = await begun(peer, b"half" * 1000)
            while (await peer.ask(send_request("filler", bytes(4000)))).code == 0:
                pass
            end = broker.store.max_physical_offset
            refusal = await ended(peer, answer, COMMIT)
            assert refusal.code != 0
            assert (bodies_in(broker, "orders"), ops(broker)) == ([], [])
            assert broker.store.max_physical_offset == end
            assert len(broker.parts.transactions.table) == 1


async def test_what_cannot_be_resumed_is_refused(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            ordinary = await peer.ask(send_request("orders", b"x"))
            for text in (ordinary.ext_fields["msgId"], "nonsense", ""):
                header = ResumeCheckHalfMessageRequestHeader(msg_id=text)
                answer = await peer.ask(
                    Command.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
                )
                assert (answer.code, answer.remark) == (
                    1,
                    "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.",
                )


async def test_an_outcome_that_does_not_exist_is_refused(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            request = end_request(await begun(peer, b"half"), COMMIT)
            request.ext_fields["commitOrRollback"] = "5"
            answer = await peer.ask(request)
            assert answer.code == 1
            assert "commitOrRollback" in (answer.remark or "")


async def test_many_files_keep_commit_and_op_record_together(
    files: FaultyFileSystem, autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with open_on(files, mapped_file_size_commit_log=4096) as (broker, peer):
            broker.core.topics.put(TopicConfig("orders", 1, 1))
            for number in range(60):
                answer = await begun(peer, b"%d" % number)
                assert (await ended(peer, answer, COMMIT)).code == 0
            finals, op_messages = (
                messages_in(broker, "orders"),
                messages_in(broker, TRANSACTION_OP_TOPIC),
            )
            assert [message.body for message in finals] == [b"%d" % number for number in range(60)]
            for final, op in zip(finals, op_messages, strict=True):
                assert op.commit_log_offset == final.commit_log_offset + final.store_size
                assert op.commit_log_offset // 4096 == final.commit_log_offset // 4096
