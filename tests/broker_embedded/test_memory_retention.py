"""A broker in memory in the long run: it stays within its limit, loses nothing that is
needed, and refuses nothing unless it is told to.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.codes import RequestCode, ResponseCode
from support.broker import Peer, open_broker, pull_request, send_request
from support.popping import Popper
from support.store import bodies
from support.transactions import COMMIT, end_request, half_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

MIB = 1024 * 1024
LIMIT = MIB
"""Small enough to be filled several times in a moment."""


class Client:
    """Sends to and consumes one broker in memory."""

    def __init__(self, broker: EmbeddedBroker, peer: Peer) -> None:
        self.broker = broker
        self.peer = peer
        self.sent = 0
        assert isinstance(broker.store.files, MemoryFileSystem)
        self.files = broker.store.files

    async def send(self, topic: str, body: bytes, **fields: Any) -> int:
        answer = await self.peer.ask(send_request(topic, body, queue_id=0, **fields))
        return answer.code

    async def commit(self, topic: str, offset: int, group: str = "CG") -> None:
        answer = await self.peer.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group,
            topic=topic,
            queueId=0,
            commitOffset=offset,
        )
        assert answer.code == 0, answer

    async def pass_traffic(self, volume: int = 4 * LIMIT, topic: str = "busy") -> None:
        """Send some bytes that are consumed as they come."""
        body = bytes(1000)
        for _ in range(volume // 1300):
            assert await self.send(topic, body) == 0
            self.sent += 1
            if self.sent % 20 == 0:
                await self.commit(topic, self.broker.store.max_offset(topic, 0))
                assert self.files.used_bytes <= LIMIT


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Client]:
    async with open_broker(memory_limit=LIMIT, **settings) as (broker, peer):
        for group in ("CG", "Another"):
            assert broker.core.groups.get(group) is not None
        yield Client(broker, peer)


async def test_popped_and_acknowledged_messages_leave_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """At most 400 bytes beside each message; in the long run no more than others."""
    async with open_broker(memory_limit=16 * MIB) as (broker, peer):
        client, popper = Client(broker, peer), Popper(peer, "T", invisible_time=60_000)
        for number in range(3000):
            assert await client.send("T", bytes(100)) == 0
            if number % 10 == 9:
                result = await popper.pop()
                for handle in result.handles:
                    await popper.ack(handle)
        assert client.files.used_bytes <= 3000 * (100 + 400)
        assert len(broker.parts.pop.state.buffer) == 0
        assert broker.store.topics() == {"T"}, "no record of a pop was stored"
    async with opened() as client:
        popper = Popper(client.peer, "busy", invisible_time=60_000)
        for number in range(6000):
            assert await client.send("busy", bytes(100)) == 0
            if number % 32 == 31:
                while handles := (await popper.pop()).handles:
                    await popper.ack_all(handles)
        store = client.broker.store
        assert client.files.used_bytes <= LIMIT
        assert store.min_offset("busy", 0) > 2000
        assert len(client.files.file_sizes("consumequeue/busy/0")) < 30
        assert store._memory is not None
        assert store._memory.lost == 0
        answer = await client.peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="busy")
        assert answer.code == 0


async def test_what_a_group_has_not_consumed_stays(autojump_clock: trio.testing.MockClock) -> None:
    """Consumed messages go first, wherever they lie; also what nobody asked for yet."""
    async with opened() as client:
        expected = [b"%d" % number for number in range(150)]
        for number, body in enumerate(expected):
            assert await client.send("slow", body) == 0
            assert await client.send("nobody", body) == 0
            if number % 3 == 0:
                await client.pass_traffic(10_000)
        await client.commit("slow", 50)
        await client.commit("slow", 10, "Another")
        await client.pass_traffic()
        store = client.broker.store
        assert store.min_physical_offset > 2 * LIMIT
        assert store.min_offset("slow", 0) == 10
        assert bodies(store, "slow") == expected[10:]
        assert bodies(store, "nobody") == expected
        assert [message.body for message in await client.peer.pull("slow", 50)] == expected[50:82]
        await client.commit("slow", 150)
        await client.commit("slow", 150, "Another")
        held = len(store._memory._kept.segments)
        await trio.sleep(2)
        await client.pass_traffic()
        assert store.min_offset("slow", 0) == 150
        assert len(store._memory._kept.segments) <= held
        assert bodies(store, "nobody") == expected
        assert store._memory is not None
        assert store._memory.lost == 0


async def test_unconsumed_messages_push_out_the_oldest(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened() as client:
        count = 5 * LIMIT // 1300
        for number in range(count):
            assert await client.send("T", b"%d " % number + bytes(1000)) == 0
            assert client.files.used_bytes <= LIMIT
        store = client.broker.store
        left = [int(body.split()[0]) for body in bodies(store, "T")]
        assert left == list(range(count - len(left), count))
        assert 300 < len(left) < LIMIT // 1000
        assert "are removed, although they are not consumed" in caplog.text
        assert (await client.peer.pull("T", left[0]))[0].offset == left[0]
        early = await client.peer.ask(pull_request("T", 0))
        assert early.code == ResponseCode.PULL_OFFSET_MOVED
        assert int(early.ext_fields["nextBeginOffset"]) == left[0]


async def test_or_sends_are_refused_until_they_are_consumed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(memory_full_policy="REFUSE_SENDS") as client:
        store, number = client.broker.store, 0
        for _round in range(3):
            while (code := await client.send("T", b"%d " % number + bytes(1000))) == 0:
                number += 1
                assert number < 5000
            assert code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR)
            assert not client.broker.health()
            first = store.min_offset("T", 0)
            assert [int(body.split()[0]) for body in bodies(store, "T")] == list(
                range(first, number)
            )
            await client.commit("T", number - 100)
            await trio.sleep(2)
            assert client.broker.health().taking_messages
        assert number > 1500


async def test_what_the_broker_works_with_stays(autojump_clock: trio.testing.MockClock) -> None:
    """Delays, timers, half messages and popped messages, however much passes by."""
    async with opened() as client:
        broker, peer = client.broker, client.peer
        popper = Popper(peer, "jobs", invisible_time=3000)
        long_popper = Popper(peer, "jobs", "Slow", invisible_time=200_000)
        now = broker.core.clock.now_ms()
        for number in range(20):
            await peer.send("delayed", b"%d" % number, properties="DELAY\x016\x02", queue_id=0)
            await peer.send(
                "timed",
                b"%d" % number,
                properties=f"TIMER_DELIVER_MS\x01{now + 100_000 + 7000 * number}\x02",
                queue_id=0,
            )
            await peer.send(
                "half",
                b"%d" % number,
                properties=f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U{number}\x02",
                sys_flag=4,
                queue_id=0,
            )
            await peer.send("jobs", b"%d" % number, queue_id=0)
            await client.pass_traffic(20_000)
        assert len((await popper.pop()).messages) == 20
        assert len((await long_popper.pop()).messages) == 20
        await client.pass_traffic()
        assert broker.store.min_physical_offset > 2 * LIMIT
        assert len(broker.parts.transactions.table) == 20
        halves = list(broker.parts.transactions.table.places(0, 1 << 60))
        assert all(broker.store.record_at(*place) is not None for place in halves)
        with trio.fail_after(600):
            while len(bodies(broker.store, "delayed")) < 20:
                await client.pass_traffic(100_000)
                await trio.sleep(5)
            while len(bodies(broker.store, "timed")) < 20:
                await client.pass_traffic(100_000)
                await trio.sleep(5)
            again = 0
            while again < 20:
                again += len((await popper.pop(invisible_time=60_000)).messages)
                await trio.sleep(1)
            again = 0
            while again < 20:
                again += len((await long_popper.pop()).messages)
                await trio.sleep(5)
        assert sorted(bodies(broker.store, "timed")) == sorted(b"%d" % n for n in range(20))


async def test_what_is_kept_can_be_ended_and_sent_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A half message is committed, and a message sent back, behind much traffic."""
    async with opened() as client:
        broker, peer = client.broker, client.peer
        now = broker.core.clock.now_ms()
        half = await peer.ask(half_request("T", b"half", unique="U", born_timestamp=now))
        await peer.send("failing", b"again")
        (message,) = await peer.pull("failing", group="Another")
        await client.pass_traffic()
        assert broker.store.min_physical_offset > message.commit_log_offset
        assert (await peer.ask(end_request(half, COMMIT))).code == 0
        assert bodies(broker.store, "T") == [b"half"]
        assert (await peer.send_back(message, "Another", level=1)).code == 0
