"""Forged timers and delays whose real topic is none that a message may come back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.names import TIMER_TOPIC
from support.broker import send_request
from support.timers import open_watched

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "../../x",
        "a+b",
    ],
)
@pytest.mark.parametrize("delay", ["", "DELAY\x011\x02"])
async def test_a_forged_real_topic_is_dropped_once(
    topic: str, delay: str, autojump_clock: MockClock
) -> None:
    with trio.fail_after(600):
        async with open_watched() as (broker, peer, _):
            out = broker.core.clock.now_ms() + 2000
            forged = f"TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02{delay}"
            await peer.send("orders", b"before", properties="TIMER_DELAY_SEC\x012\x02", queue_id=0)
            await peer.ask(send_request(TIMER_TOPIC, b"forged", properties=forged))
            await peer.send("orders", b"after", properties="TIMER_DELAY_SEC\x012\x02", queue_id=0)
            await trio.sleep(20)
            end = broker.store.max_physical_offset
            await trio.sleep(100)
            assert broker.store.max_physical_offset == end
            assert [m.body for m in await peer.pull("orders", queue_id=0)] == [b"before", b"after"]
