"""SQL92 at the broker: what is checked at registration and in pulls, and what an
expression that cannot be compiled leads to.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import SubscriptionError
from rocketmq_sdk.protocol.bodies.members import CheckClientRequestBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.subscription import SubscriptionData
from support.broker import heartbeat, open_broker, pull_request
from support.popping import Popper, make_topic

if TYPE_CHECKING:
    from trio.testing import MockClock


def sql(topic: str, expression: str, version: int = 1, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type=kind)


def check(subscription: SubscriptionData) -> Command:
    return Command.request(
        RequestCode.CHECK_CLIENT_CONFIG,
        body=CheckClientRequestBody("c1", "CG", None, subscription).encode(),
    )


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_messages(answer.body)]


async def test_a_subscription_is_checked_with_position_and_reason(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        assert (await peer.ask(check(sql("orders", "a > 3")))).code == 0
        answer = await peer.ask(check(sql("orders", "a = = 1")))
        assert answer.code == 23
        assert answer.remark == (
            "the SQL92 expression 'a = = 1' cannot be used, at position 5: '=' stands where a "
            "value, a property or an expression in parentheses "
            "is expected"
        )
        assert (await peer.ask(check(sql("orders", "anything", kind="XPATH")))).code == 23


async def test_all_is_refused_where_property_filters_are_off(autojump_clock: MockClock) -> None:
    remark = "The broker does not support consumer to filter message by SQL92"
    async with open_broker(enable_property_filter=False) as (_broker, peer):
        await peer.send("orders", b"x")
        await peer.ask(heartbeat("c1", "CG", sql("orders", "a > 3")))
        for request in (
            check(sql("orders", "a > 3")),
            pull_request("orders", 0, expression="a > 3", expression_type="SQL92"),
            pull_request("orders", 0, expression=None, expression_type="SQL92", sub_version=1),
        ):
            answer = await peer.ask(request)
            assert (answer.code, answer.remark) == (1, remark)


async def test_a_pull_by_the_registered_expression(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        for value in range(6):
            await peer.send("orders", b"%d" % value, properties=f"a\x01{value}\x02")
        await peer.ask(heartbeat("c1", "CG", sql("orders", "a > 3", version=5)))
        assert bodies(
            await peer.ask(pull_request("orders", 0, expression=None, sub_version=5))
        ) == [b"4", b"5"]
        newer = await peer.ask(pull_request("orders", 0, expression=None, sub_version=6))
        assert (newer.code, newer.remark) == (25, "the consumer's subscription not latest")
        await peer.ask(heartbeat("c1", "CG", sql("orders", "a < 1", version=6)))
        assert bodies(
            await peer.ask(pull_request("orders", 0, expression=None, sub_version=6))
        ) == [b"0"]


async def test_a_registered_expression_with_an_error_refuses_pulls(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        await peer.send("orders", b"x")
        await peer.ask(heartbeat("c1", "CG", sql("orders", "a = = 1")))
        answer = await peer.ask(pull_request("orders", 0, expression=None, sub_version=1))
        assert (answer.code, answer.remark) == (
            27,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )


async def test_an_expression_in_a_pull_that_cannot_be_compiled_filters_nothing_and_is_told_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    request = pull_request("orders", 0, expression="a = = 1", expression_type="SQL92")
    with caplog.at_level(logging.WARNING):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x")
            for _ in range(3):
                assert bodies(await peer.ask(request)) == [b"x"]
    told = [
        record.message
        for record in caplog.records
        if "reads topic orders unfiltered" in record.message
    ]
    assert len(told) == 1
    assert "at position 5" in told[0]


async def test_a_subscription_of_blanks_lets_nothing_through(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await peer.send("orders", b"x")
        await peer.send("orders", b"y", tag="paid")
        assert (await peer.ask(pull_request("orders", 0, expression="  "))).code == 20


async def test_filtered_reads_go_on_behind_what_does_not_match(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(mapped_file_size_consume_queue=60_000) as (_broker, peer):
            for value in range(1000):
                await peer.send("orders", b"%d" % value, properties=f"a\x01{value}\x02")
            request = pull_request("orders", 0, expression="a = 999", expression_type="SQL92")
            first = await peer.ask(request)
            assert first.code == 20
            offset = int(first.ext_fields["nextBeginOffset"])
            assert offset == 800
            assert bodies(
                await peer.ask(
                    pull_request("orders", offset, expression="a = 999", expression_type="SQL92")
                )
            ) == [b"999"]


@pytest.mark.parametrize(("switched_on", "expected"), [(False, [b"0", b"5"]), (True, [b"5"])])
async def test_retries_are_filtered_on_request(
    autojump_clock: MockClock, switched_on: bool, expected: list[bytes]
) -> None:
    async with open_broker(filter_support_retry=switched_on) as (_broker, peer):
        await peer.ask(heartbeat("c1", "CG", sql("orders", "a > 3"), SubscriptionData("%RETRY%CG")))
        for value in (0, 5):
            await peer.send(
                "%RETRY%CG", b"%d" % value, properties=f"RETRY_TOPIC\x01orders\x02a\x01{value}\x02"
            )
        assert bodies(await peer.ask(pull_request("%RETRY%CG", 0, expression=None))) == expected
        assert bodies(await peer.ask(pull_request("%RETRY%CG", 0, expression="*"))) == expected


@pytest.mark.parametrize("switched_on", [True, False])
async def test_a_pop_by_an_expression(autojump_clock: MockClock, switched_on: bool) -> None:
    async with open_broker(enable_property_filter=switched_on) as (_broker, peer):
        await make_topic(peer, "orders", 1)
        for value in range(6):
            await peer.send("orders", b"%d" % value, properties=f"a\x01{value}\x02")
        popper = Popper(peer, "orders", exp="a > 3", exp_type="SQL92")
        assert await popper.bodies() == [b"4", b"5"]
        with pytest.raises(
            SubscriptionError, match=r"parse the consumer's subscription failed: .* at position 5"
        ):
            await popper.pop(exp="a = = 1")


HUGE = "\x01".join(("filler", "x" * 32_000)) + "\x02"


async def test_pulls_go_on_where_the_work_on_huge_properties_ended_one(
    autojump_clock: MockClock,
) -> None:
    """Such a pull is answered at once though it might be held, with where to go on;
    step by step it comes to the message that it is for.
    """
    async with open_broker() as (_broker, peer):
        for _index in range(40):
            await peer.send("orders", b"no", properties=HUGE)
        await peer.send("orders", b"yes", properties="a\x011\x02")
        offsets = [0]
        while True:
            request = pull_request(
                "orders", offsets[-1], expression="a = 1", expression_type="SQL92", hold=15.0
            )
            began = trio.current_time()
            answer = await peer.ask(request)
            offsets.append(int(answer.ext_fields["nextBeginOffset"]))
            if answer.code == 0:
                break
            assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
            assert trio.current_time() - began < 1
            assert offsets[-2] < offsets[-1] <= offsets[-2] + 20
        assert bodies(answer) == [b"yes"]
        assert (len(offsets), offsets[-1]) == (4, 41)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("merge", [False, True])
async def test_a_waiting_pop_goes_on_behind_what_its_expression_lets_not_through(
    autojump_clock: MockClock, order: bool, merge: bool
) -> None:
    """The message that it is for was there before it came, so that no arrival wakes
    it.
    """
    async with open_broker(enable_pop_buffer_merge=merge) as (broker, peer):
        await make_topic(peer, "orders", 1)
        await peer.send("orders", b"first", properties="a\x011\x02")
        for _index in range(40):
            await peer.send("orders", b"no", properties=HUGE)
        await peer.send("orders", b"last", properties="a\x011\x02")
        popper = Popper(
            peer,
            "orders",
            exp="a = 1",
            exp_type="SQL92",
            order=order,
            poll_time=15_000,
            invisible_time=60_000,
        )
        began = trio.current_time()
        popped = await popper.pop()
        assert [message.body for message in popped.messages] == [b"first"]
        if order:
            await popper.ack_all(popped.handles)
        assert await popper.bodies() == [b"last"]
        assert trio.current_time() - began < 1
        assert broker.parts.pop.state.waiting.held == 0
