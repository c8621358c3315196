"""Acknowledgements of popped messages: joined while a request is under way, and no
broker waits for another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.clock import elapsed
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer.pop.acknowledgements import Acknowledgements
from rocketmq_sdk.consumer.pop.receipt import Receipt
from rocketmq_sdk.consumer.retry_states import State
from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.protocol.bodies.pop import BatchAckMessageRequestBody, decode_bit_set
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle

if TYPE_CHECKING:
    from trio.testing import MockClock


class Brokers:
    """Brokers that take their time: the seconds of each by its name; one without a
    number is gone.
    """

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.answered: list[tuple[float, str, int]] = []

    async def call_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
        any_replica: bool = False,
    ) -> Command:
        assert (command.code, broker_id) == (RequestCode.BATCH_ACK_MESSAGE, 0)
        if broker_name not in self.seconds:
            raise ConnectError("gone", address=broker_name)
        await trio.sleep(self.seconds[broker_name])
        body = BatchAckMessageRequestBody.decode(command.body)
        self.answered.append(
            (
                trio.current_time(),
                broker_name,
                sum(len(decode_bit_set(entry.bit_set, 64)) for entry in body.acks),
            )
        )
        return Command.response(ResponseCode.SUCCESS)


def receipt(broker_name: str, offset: int) -> Receipt:
    return Receipt(
        "orders",
        ReceiptHandle(0, 1000, 30_000, 3, "0", broker_name, 1, offset),
        elapsed() + 30,
        "billing",
    )


async def test_a_slow_or_missing_broker_holds_up_no_other(autojump_clock: MockClock) -> None:
    brokers = Brokers(slow=5, quick=0.1)
    # Nothing else of a client is used.
    acks = Acknowledgements(brokers, "billing")  # type: ignore[arg-type]
    first = [receipt("slow", 0), receipt("gone", 0), receipt("quick", 0)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(acks.run)
        acks.extend(first)
        await trio.sleep(1)
        later = [receipt("slow", 1), receipt("slow", 2), receipt("quick", 1)]
        acks.extend(later)
        await trio.sleep(1)
        assert [round(at, 1) for at, name, _count in brokers.answered if name == "quick"] == [
            0.1,
            1.1,
        ]
        await acks.flush()
        nursery.cancel_scope.cancel()
    assert [(round(at, 1), count) for at, name, count in brokers.answered if name == "slow"] == [
        (5, 1),
        (10, 2),
    ]
    assert [each.state is State.COMMIT for each in first + later] == [
        True,
        False,
        True,
        True,
        True,
        True,
    ]


async def test_the_last_acknowledgements_go_to_all_brokers_at_once(
    autojump_clock: MockClock,
) -> None:
    brokers = Brokers(a=2, b=2, c=2)
    # Nothing else of a client is used.
    acks = Acknowledgements(brokers, "billing")  # type: ignore[arg-type]
    acks.extend(receipt(name, 0) for name in "abc")
    began = trio.current_time()
    await acks.flush()
    assert trio.current_time() - began < 2.5
    assert sorted(name for _at, name, _count in brokers.answered) == ["a", "b", "c"]
    await acks.flush()
    assert len(brokers.answered) == 3


async def test_what_a_broker_could_not_take_is_acknowledged_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    brokers = Brokers()
    # Nothing else of a client is used.
    acks = Acknowledgements(brokers, "billing")  # type: ignore[arg-type]
    early, late = receipt("a", 0), receipt("a", 1)
    early._until = elapsed() + 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(acks.run)
        acks.extend([early, late])
        await trio.sleep(10)
        brokers.seconds["a"] = 0.1
        await trio.sleep(2)
        assert [count for _at, _name, count in brokers.answered] == [1]
        assert (early.state is State.COMMIT, late.state is State.COMMIT) == (False, True)
        nursery.cancel_scope.cancel()
