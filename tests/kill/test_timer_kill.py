"""Timers and kill -9: at every start of the broker some are due, some wait, and some
are being sent.
"""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import EmbeddedBroker, Message, Producer, RocketMQError
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.processes import broker_process
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]
TOPIC = "Timed"


async def _send_until_it_dies(namesrv: str, acknowledged: set[bytes], first: int) -> None:
    """Timers due within six seconds, each body unique."""
    async with Producer("timers", namesrv=namesrv, send_timeout=5) as producer:
        try:
            for number in range(first, first + 1_000_000):
                moment = producer.client.clock.now_ms() + random.Random(number).randrange(200, 6000)
                body = b"%d %d" % (moment, number)
                await producer.send(Message(TOPIC, body, deliver_at=moment))
                acknowledged.add(body)
        except RocketMQError:
            return  # the broker is dead


def _delivered(broker: EmbeddedBroker) -> list[tuple[bytes, int]]:
    """Body and store time of each message that consumers see."""
    store = broker.store
    return [
        (item.body, item.store_timestamp)
        for queue_id in store.queue_ids(TOPIC)
        for offset in range(store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id))
        for item in decode_messages(store.get(TOPIC, queue_id, offset, 1).body)
    ]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_no_acknowledged_timer_is_lost_and_none_is_early(flush: str, tmp_path: Path) -> None:
    acknowledged: set[bytes] = set()
    with broker_process(
        tmp_path, flushDiskType=flush, timerFlushIntervalMs=200, mappedFileSizeTimerLog=5200
    ) as broker:
        for number in range(3):
            before = len(acknowledged)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    _send_until_it_dies, broker.namesrv, acknowledged, number * 1_000_000
                )
                await until(
                    lambda before=before, number=number: (
                        len(acknowledged) >= before + 150 + 70 * number
                    ),
                    seconds=120,
                )
                broker.signal(signal.SIGKILL)
                nursery.cancel_scope.deadline = trio.current_time() + 20
            broker.start()
        assert broker.stop() == 0
    async with EmbeddedBroker(tmp_path, mapped_file_size_timer_log=5200) as last:
        # What a kill left in the log alone is in no slot yet when the broker opens.
        await until(
            lambda: (
                last.parts.timers.service.timers.next_slot is None
                and acknowledged <= {body for body, _time in _delivered(last)}
            ),
            seconds=120,
            step=0.5,
        )
        found = _delivered(last)
    assert all(time >= int(body.split()[0]) for body, time in found)
    assert verify_directory(tmp_path).findings == []
