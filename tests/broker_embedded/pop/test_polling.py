"""Which waiting pops and notifications a message in a retry topic wakes (rule of Apache
RocketMQ since 5.3.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import sentinel

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.pop.polling import ANY_QUEUE, HeldPop, PopHolder
from rocketmq_sdk.broker_embedded.store.messages import Arrival
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.protocol.command import Command
from support.broker import connect, open_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

GROUP, TOPIC = "G_1", "T_x"


def holder_of(
    *queues: int, last_first: bool = False, ordered: bool = False, group: str = GROUP
) -> PopHolder:
    """A holder with one waiting request for each queue."""
    holder = PopHolder(TrioClock(), lambda _pull: None, last_first=last_first)
    for queue_id in queues:
        holder.hold(
            HeldPop(
                sentinel.channel,
                sentinel.request,
                TOPIC,
                group,
                queue_id,
                None,
                float("inf"),
                ordered=ordered,
            )
        )
    return holder


def arrival(topic: str, properties: str = f"ORIGIN_GROUP\x01{GROUP}\x02") -> Arrival:
    return Arrival(topic, 0, 5, 0, 0, 0, 100, properties)


@pytest.mark.parametrize("last_first", [False, True], ids=["pops", "notifications"])
@pytest.mark.parametrize(
    "topic",
    [f"%RETRY%{GROUP}_{TOPIC}", f"%RETRY%{GROUP}+{TOPIC}"],
    ids=["first generation", "second generation"],
)
def test_a_retried_message_wakes_one_request_of_its_group(topic: str, last_first: bool) -> None:
    """Of either generation of names, though both parts hold the sign that parts them; a
    request for any queue comes before one for a queue.
    """
    holder = holder_of(3, ANY_QUEUE, ANY_QUEUE, last_first=last_first)
    left = []
    for _ in range(4):
        holder.on_arrival(arrival(topic))
        left.append((holder.waiting(TOPIC, GROUP, ANY_QUEUE), holder.waiting(TOPIC, GROUP, 3)))
    assert left == [(1, 1), (0, 1), (0, 0), (0, 0)]
    assert not holder.waiting_by_queue


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        pytest.param(f"%RETRY%{GROUP}_{TOPIC}", "KEYS\x01k\x02", id="no property"),
        pytest.param(
            f"%RETRY%{GROUP}_{TOPIC}",
            "ORIGIN_GROUP\x01G\x02",
            id="another group of which the name is a part",
        ),
        pytest.param(f"%RETRY%{GROUP}_{TOPIC}", "ORIGIN_GROUP\x01other\x02", id="another group"),
        pytest.param(
            f"%RETRY%{GROUP}",
            f"ORIGIN_GROUP\x01{GROUP}\x02",
            id="the retry topic of pulling consumers",
        ),
        pytest.param(
            f"%RETRY%{GROUP}_{TOPIC}y", f"ORIGIN_GROUP\x01{GROUP}\x02", id="another topic"
        ),
        pytest.param(f"%DLQ%{GROUP}", f"ORIGIN_GROUP\x01{GROUP}\x02", id="a dead letter"),
    ],
)
def test_what_wakes_nobody(topic: str, properties: str) -> None:
    holder = holder_of(ANY_QUEUE, 0)
    holder.on_arrival(arrival(topic, properties))
    assert (holder.waiting(TOPIC, GROUP, ANY_QUEUE), holder.waiting(TOPIC, GROUP, 0)) == (1, 1)


def test_requests_in_order_and_other_groups_sleep_on() -> None:
    """Ordered pops have no retry topic of their own."""
    for holder in (holder_of(ANY_QUEUE, ordered=True), holder_of(ANY_QUEUE, group="H")):
        holder.on_arrival(arrival(f"%RETRY%{GROUP}_{TOPIC}"))
        assert len(holder.waiting_by_queue) == 1


def pop(queue_id: int = -1, poll_ms: int = 10_000) -> Command:
    fields = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": queue_id,
        "maxMsgNums": 1,
        "invisibleTime": 60_000,
        "pollTime": poll_ms,
        "bornTime": 0,
        "initMode": 0,
    }
    return Command(
        RequestCode.POP_MESSAGE, ext_fields={name: str(value) for name, value in fields.items()}
    )


async def test_a_wake_up_of_a_closing_connection_goes_to_the_next(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
        await peer.send("T", b"first")
        assert (await peer.ask(pop())).code == 0
        others = [await connect(broker, nursery) for _ in range(2)]
        calls = []
        for other in others:
            calls.append(other.channel.submit(pop(), 30))
            await trio.testing.wait_all_tasks_blocked()
        waiting = broker.parts.pop.state.waiting
        [same] = waiting._queues["T", "G", ANY_QUEUE].values()
        next(iter(same)).channel.abort("it ends")
        begin = trio.current_time()
        await peer.send("T", b"second")
        assert (await calls[1].wait()).code == 0
        assert trio.current_time() - begin < 0.1
        nursery.cancel_scope.cancel()


def test_a_request_that_fails_passes_its_wake_up_on() -> None:
    holder = holder_of(ANY_QUEUE, 3, 4)
    holder.wake(TOPIC, GROUP, 0)
    [woken] = holder._woken
    holder._failed(woken, RocketMQError("x"))
    assert (holder.waiting(TOPIC, GROUP, 3), holder.waiting(TOPIC, GROUP, 4)) == (0, 0)


def test_any_queue_is_each_queue_where_nobody_waits_for_any() -> None:
    """After a cold read, or with messages left, by a pop of any queue."""
    holder = holder_of(3, 4, 4)
    holder.wake(TOPIC, GROUP, ANY_QUEUE)
    assert (holder.waiting(TOPIC, GROUP, 3), holder.waiting(TOPIC, GROUP, 4)) == (0, 1)


async def test_a_reset_wakes_a_pop(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        for number in range(3):
            await peer.send("T", bytes([number]))
        for _ in range(3):
            assert (await peer.ask(pop())).code == 0
        call = peer.channel.submit(pop(), 30)
        await trio.testing.wait_all_tasks_blocked()
        begin = trio.current_time()
        answer = await peer.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            topic="T",
            group="G",
            queueId=0,
            timestamp=0,
            isForce="true",
            offset=1,
        )
        assert answer.code == 0
        assert (await call.wait()).code == 0
        assert trio.current_time() - begin < 0.1
