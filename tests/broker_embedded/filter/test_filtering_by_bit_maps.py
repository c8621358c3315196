"""SQL92 reads that the bit maps of queue units decide: what they rule out is not looked
at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.filter.evaluate import CompiledExpression, Properties
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.subscription import SubscriptionData
from support.broker import Peer, heartbeat, open_broker, pull_request

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

EXT = {"enable_consume_queue_ext": True, "enable_calc_filter_bit_map": True}


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The values of `a` of all messages that an expression was evaluated for."""
    seen: list[str] = []
    matches = CompiledExpression.matches

    def noted(self: CompiledExpression, properties: Properties) -> bool:
        seen.append(properties["a"])
        return matches(self, properties)

    monkeypatch.setattr(CompiledExpression, "matches", noted)
    return seen


async def prepared(broker: EmbeddedBroker, peer: Peer) -> None:
    """A group with an expression, and then messages of which two of ten match."""
    await peer.ask(
        heartbeat(
            "c1", "CG", SubscriptionData("orders", "a > 7", sub_version=1, expression_type="SQL92")
        )
    )
    await trio.sleep(1)
    for value in range(10):
        await peer.send("orders", b"%d" % value, properties=f"a\x01{value}\x02", tag="paid")


async def read(peer: Peer) -> list[bytes]:
    answer = await peer.ask(pull_request("orders", 0, expression=None, sub_version=1))
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_messages(answer.body)]


async def test_only_what_may_match_is_evaluated_again(
    autojump_clock: MockClock, evaluated: list[str]
) -> None:
    async with open_broker(**EXT) as (broker, peer):
        await prepared(broker, peer)
        assert evaluated == [str(value) for value in range(10)]
        evaluated.clear()
        assert await read(peer) == [b"8", b"9"]
        assert evaluated == ["8", "9"]


async def test_tags_are_filtered_as_without_bit_maps(autojump_clock: MockClock) -> None:
    async with open_broker(**EXT) as (broker, peer):
        await prepared(broker, peer)
        await peer.send("orders", b"other", tag="open", properties="a\x011\x02")
        answer = await peer.ask(pull_request("orders", 0, expression="open"))
        assert [message.body for message in decode_messages(answer.body)] == [b"other"]


@pytest.mark.parametrize("switched_off", EXT)
async def test_without_one_of_the_switches_each_message_is_evaluated(
    autojump_clock: MockClock, evaluated: list[str], switched_off: str
) -> None:
    async with open_broker(**(EXT | {switched_off: False})) as (broker, peer):
        await prepared(broker, peer)
        evaluated.clear()
        assert await read(peer) == [b"8", b"9"]
        assert len(evaluated) == 10


async def test_messages_from_before_the_group_are_evaluated(
    autojump_clock: MockClock, evaluated: list[str]
) -> None:
    async with open_broker(**EXT) as (_broker, peer):
        for value in range(10):
            await peer.send("orders", b"%d" % value, properties=f"a\x01{value}\x02")
        assert evaluated == []
        await trio.sleep(1)
        await peer.ask(
            heartbeat(
                "c1",
                "CG",
                SubscriptionData("orders", "a > 7", sub_version=1, expression_type="SQL92"),
            )
        )
        assert await read(peer) == [b"8", b"9"]
        assert len(evaluated) == 10
