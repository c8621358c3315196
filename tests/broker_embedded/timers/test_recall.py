"""RECALL_MESSAGE: checks in Apache's order, messages taken back through all turns of
the wheel, both forms of the key.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.names import TIMER_TOPIC
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.recall_handle import RecallHandle, decode_recall_handle
from support.broker import Peer, open_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

HOUR = 3_600_000


@asynccontextmanager
async def with_a_timer(
    wait_ms: int = HOUR, **settings: Any
) -> AsyncIterator[tuple[EmbeddedBroker, Peer, str]]:
    """A broker with one timer, and the handle of it."""
    async with open_broker(**settings) as (broker, peer):
        due = broker.core.clock.now_ms() + wait_ms
        answer = await peer.send(
            "orders", b"x", properties=f"UNIQ_KEY\x01K1\x02TIMER_DELIVER_MS\x01{due}\x02"
        )
        yield broker, peer, answer.ext_fields["recallHandle"]


async def recall(peer: Peer, handle: str, topic: str = "orders") -> tuple[int, str | None]:
    answer = await peer.ask(
        RequestCode.RECALL_MESSAGE, producerGroup="PG", topic=topic, recallHandle=handle
    )
    return answer.code, answer.ext_fields.get("msgId") if answer.code == 0 else answer.remark


async def test_only_timers_get_a_handle(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with with_a_timer() as (broker, peer, handle):
            parts = decode_recall_handle(handle)
            assert (parts.topic, parts.broker_name, parts.unique_key) == (
                "orders",
                "broker-a",
                "K1",
            )
            out_ms = (broker.core.clock.now_ms() + HOUR - 1) // 1000 * 1000
            assert parts.timestamp == str(out_ms + 1)
            for properties in ("", "DELAY\x013\x02", "TIMER_DELIVER_MS\x011\x02"):
                assert (
                    "recallHandle"
                    not in (await peer.send("orders", b"x", properties=properties)).ext_fields
                )


@pytest.mark.parametrize("wait_ms", [5000, HOUR])
async def test_a_message_taken_back_does_not_come(wait_ms: int, autojump_clock: MockClock) -> None:
    """Also when both go through the wheel several times."""
    with trio.fail_after(2 * HOUR):
        async with with_a_timer(wait_ms, timer_roll_window_slot=500) as (broker, peer, handle):
            due = decode_recall_handle(handle).timestamp
            await peer.send(
                "orders", b"stays", properties=f"UNIQ_KEY\x01K2\x02TIMER_DELIVER_MS\x01{due}\x02"
            )
            assert await recall(peer, handle) == (0, "K1")
            await trio.sleep(wait_ms / 1000 + 2)
            assert broker.store.max_offset("orders", 0) == 1
            assert [message.body for message in await peer.pull("orders")] == [b"stays"]
            assert broker.parts.timers.service.timers.metrics.count("orders") == 0


async def test_what_is_stored_is_what_apache_stores(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with with_a_timer() as (broker, peer, handle):
            await recall(peer, handle)
            unit = broker.store.queue_unit(TIMER_TOPIC, 0, 1)
            assert unit is not None
            record = broker.store.record_at(unit[0])
            assert record is not None
            message = decode_message(record, inflate=False)
            parts = decode_recall_handle(handle)
            assert message.body == b"0"
            assert {
                name: value
                for name, value in message.properties.items()
                if name != "BORN_TIMESTAMP"
            } == {
                "TAGS": "_RECALL_TAG_",
                "TIMER_DEL_UNIQKEY": "K1",
                "UNIQ_KEY": "K1",
                "TIMER_DELIVER_MS": parts.timestamp,
                "TIMER_OUT_MS": str(int(parts.timestamp) - 1),
                "PGROUP": "PG",
                "REAL_TOPIC": "orders",
                "REAL_QID": "0",
            }


@pytest.mark.parametrize(
    ("key", "taken_back"), [("K1", True), ("orders+K1", True), ("other+K1", False), ("K2", False)]
)
async def test_both_forms_of_the_key_count(
    key: str, taken_back: bool, autojump_clock: MockClock
) -> None:
    """5.3.2 to 5.3.4 write topic and key, 5.4 the key alone."""
    with trio.fail_after(10_000):
        async with with_a_timer() as (broker, _peer, handle):
            due = decode_recall_handle(handle).timestamp
            text = f"TIMER_DEL_UNIQKEY\x01{key}\x02UNIQ_KEY\x01K1\x02TIMER_DELIVER_MS\x01{due}\x02"
            assert broker.parts.timers.intake.put(MessageToStore("orders", 0, b"0", text)).ok
            await trio.sleep(3602)
            assert broker.store.max_offset("orders", 0) == (0 if taken_back else 1)


async def test_a_recall_is_refused_with_apaches_codes(autojump_clock: MockClock) -> None:
    illegal = ResponseCode.ILLEGAL_OPERATION
    with trio.fail_after(10_000):
        async with with_a_timer() as (broker, peer, handle):
            parts = decode_recall_handle(handle)
            now = broker.core.clock.now_ms()
            await peer.send("bills", b"x")
            assert await recall(peer, handle, "unknown") == (
                ResponseCode.TOPIC_NOT_EXIST,
                "recall failed, the topic[unknown] not exist",
            )
            assert await recall(peer, handle, "bills") == (
                illegal,
                "recall failed, topic not match",
            )
            assert await recall(peer, "nonsense") == (illegal, "recall handle is invalid")
            other = RecallHandle("orders", "broker-b", parts.timestamp, "K1").encode()
            assert await recall(peer, other) == (
                illegal,
                "recall failed, broker service not available",
            )
            for timestamp in ("soon", str(now), str(now + 259_200_001), "9" * 30):
                late = RecallHandle("orders", "broker-a", timestamp, "K1").encode()
                assert await recall(peer, late) == (illegal, "recall failed, timestamp invalid"), (
                    timestamp
                )
            poison = RecallHandle(
                "orders", "broker-a", parts.timestamp, "K1\x02REAL_QID\x0199999\x02"
            ).encode()
            assert await recall(peer, poison) == (illegal, "recall handle is invalid")
            assert broker.store.max_offset(TIMER_TOPIC, 0) == 1


async def test_recalls_can_be_switched_off(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with with_a_timer(recall_message_enable=False) as (_broker, peer, handle):
            assert await recall(peer, handle) == (
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden",
            )
        async with with_a_timer(broker_permission=4) as (_broker, peer, handle):
            assert await recall(peer, handle) == (0, "K1")
        async with with_a_timer(
            broker_permission=4, allow_recall_when_broker_not_writeable=False
        ) as (_broker, peer, handle):
            assert (await recall(peer, handle))[0] == ResponseCode.SERVICE_NOT_AVAILABLE
