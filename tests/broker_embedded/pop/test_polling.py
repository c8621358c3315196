"""Which waiting pops and notifications a message in a retry topic wakes (rule of Apache
RocketMQ since 5.3.4).
"""

from __future__ import annotations

from unittest.mock import sentinel

import pytest

from rocketmq_sdk.broker_embedded.pop.polling import ANY_QUEUE, HeldPop, PopHolder
from rocketmq_sdk.broker_embedded.store.messages import Arrival
from rocketmq_sdk.clock import TrioClock

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
