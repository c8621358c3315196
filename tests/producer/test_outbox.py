"""Messages of one tick leave together, and as they would leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import ClosedError, SendTimeout
from rocketmq_sdk.model.message import Message
from support.peers import SILENT, open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.producer.producer import Producer

ODD: list[dict[str, Any]] = [
    {},
    {"tags": "TagA", "keys": ("k1", "k2")},
    {"properties": {"quotes": 'a "b" \\ %s %d {x}', "line": "one\ntwo\ttab\x7f"}},
    {"properties": {"text": "значение €\u2028", "emoji": "🚀", "lone": "\ud800"}},
    {"properties": {"opaque": '","opaque":7'}, "wait_store_ok": False},
    {"delay_level": 3},
    {"priority": 1},
    {"flag": 5},
    {"sharding_key": "s"},
]


async def told(producer: Producer, cluster: Any, *, together: bool) -> list[tuple[Any, ...]]:
    """What the broker is told of messages, sent alone or all in one tick."""
    sends = cluster.brokers[0].sends
    sends.clear()
    messages = [
        Message("t", body, **options) for options in ODD for body in (b"body", bytes(70_000))
    ]
    if together:
        for handle in [producer.submit(one) for one in messages]:
            await handle
    else:
        for one in messages:
            await producer.send(one)
    sends.sort(key=lambda sent: sent[2].properties.split("\x02")[0])
    found = []
    for _moment, command, header in sends:
        rest = header.properties.partition("\x02")[2]
        fields = {**command.ext_fields, "g": "", "i": rest}
        if header.properties.find("SHARDING") < 0:
            fields["e"] = ""
        found.append((command.code, command.flag, command.version, fields, command.body))
    return found


async def test_requests_are_the_same_together_and_alone(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, compress_over=50_000) as producer,
    ):
        await producer.send(message())
        alone = await told(producer, cluster, together=False)
        assert await told(producer, cluster, together=True) == alone
        assert len(alone) == 2 * len(ODD)


async def test_messages_of_one_tick_leave_in_order_over_all_queues(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.send(message())
        broker = cluster.brokers[0]
        broker.sends.clear()
        handles = [producer.submit(message(b"%d" % number)) for number in range(50)]
        queue = (await producer.publish_queues("t"))[0]
        handles += [
            producer.submit(message(b"%d" % number), queue=queue if number % 3 else None)
            for number in range(50, 100)
        ]
        for handle in handles:
            await handle
        assert [command.body for _, command, _ in broker.sends] == [
            b"%d" % number for number in range(100)
        ]
        assert len({header.queue_id for _, _, header in broker.sends[:50]}) > 1


async def test_a_message_given_up_in_the_box_does_not_leave(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.send(message())
        broker = cluster.brokers[0]
        broker.sends.clear()
        first = producer.submit(message(b"first"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.send(message(b"second"))
        await first
        assert [command.body for _, command, _ in broker.sends] == [b"first"]
        assert producer.in_flight == 0


async def test_a_silent_broker_and_one_that_goes(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, retry_times=0) as producer:
        await producer.send(message())
        broker = cluster.brokers[0]
        broker.script = [SILENT, 0, SILENT]
        handles = [producer.submit(message(), timeout=2.0) for _ in range(3)]
        begin = trio.current_time()
        await handles[1]
        for handle in (handles[0], handles[2]):
            with pytest.raises(SendTimeout) as caught:
                await handle
            assert caught.value.outcome_unknown
        assert trio.current_time() - begin == pytest.approx(2.0, abs=0.2)


async def test_what_is_in_the_box_when_the_producer_is_given_up(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(brokers=1) as cluster:
        handles = []
        with pytest.raises(KeyError):  # noqa: PT012 - it ends the block around the messages
            async with Running(cluster) as producer:
                await producer.send(message())
                handles = [producer.submit(message()) for _ in range(3)]
                raise KeyError
        for handle in handles:
            with pytest.raises(ClosedError):
                await handle
