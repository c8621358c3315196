"""What a disk that cannot be read does to a running broker, and to one that starts.

Whoever asks for what cannot be read is told so; nobody waits for ever, nothing is
changed, and everything else goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import RocketMQError, StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_on, pull_request
from support.popping import Popper

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.command import Command
    from support.broker import Peer

SETTINGS: dict[str, Any] = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 2000,
    "mapped_file_size_timer_log": 5200,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "hot_bytes": 0,
    "message_delay_level": "1s 100s",
}
COUNT = 150


def disk(seed: int = 1) -> FaultyFileSystem:
    return FaultyFileSystem(seed, blocking=True)


async def fill(broker: EmbeddedBroker, peer: Peer) -> None:
    """Old messages with keys, delayed ones and timers."""
    for number in range(COUNT):
        properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01U{number}\x02"
        await peer.send("orders", b"%d " % number + b"x" * 200, properties=properties)
    due = broker.core.clock.now_ms() + 200_000
    for number in range(20):
        await peer.send("timed", b"%d" % number, properties=f"TIMER_DELIVER_MS\x01{due}\x02")
        await peer.send("delayed", b"%d" % number, properties="DELAY\x012\x02")
    for _ in range(4):
        await peer.send("filler", b"x" * 4000)
    await trio.sleep(5)


# --- a running broker

Ask = Callable[["EmbeddedBroker", "Peer"], Awaitable["Command"]]


def asking(code: RequestCode, **ext: Any) -> Ask:
    return lambda _broker, peer: peer.ask(code, **ext)


async def _view(broker: EmbeddedBroker, peer: Peer) -> Command:
    return await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=position_of(broker, 3))


async def _send_back(broker: EmbeddedBroker, peer: Peer) -> Command:
    return await peer.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK, offset=position_of(broker, 3), group="CG", delayLevel=3
    )


def position_of(broker: EmbeddedBroker, offset: int) -> int:
    """Where an old message lies; asked before the disk fails."""
    found: dict[int, int] = broker.__dict__.setdefault("positions", {})
    if offset not in found:
        unit = broker.store.queue_unit("orders", 0, offset)
        assert unit is not None
        found[offset] = unit[0]
    return found[offset]


REQUESTS: dict[str, Ask] = {
    "pull": lambda _broker, peer: peer.ask(pull_request("orders", 0)),
    "view": _view,
    "send back": _send_back,
    "peek": asking(
        RequestCode.PEEK_MESSAGE, consumerGroup="CG", topic="orders", queueId=0, maxMsgNums=8
    ),
    "query": asking(
        RequestCode.QUERY_MESSAGE,
        topic="orders",
        key="k3",
        maxNum=8,
        beginTimestamp=0,
        endTimestamp=1 << 60,
    ),
    "search by time": asking(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="orders", queueId=0, timestamp=1 << 40
    ),
    "earliest": asking(RequestCode.GET_EARLIEST_MSG_STORETIME, topic="orders", queueId=0),
    "units": asking(RequestCode.QUERY_CONSUME_QUEUE, topic="orders", queueId=0, index=0, count=9),
    "topic's numbers": asking(RequestCode.GET_TOPIC_STATS_INFO, topic="orders"),
    "time span": asking(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="orders", group="CG"),
    "reset": asking(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic="orders",
        group="CG",
        timestamp=1 << 40,
        isForce="true",
    ),
}


SHOWN = ("units", "earliest", "topic's numbers", "time span")
"""Requests whose answers come from memory, or have -1 for a time that is not known."""


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_for_what_cannot_be_read_is_answered(
    name: str, autojump_clock: MockClock
) -> None:
    files, ask = disk(), REQUESTS[name]
    async with open_on(files, **SETTINGS) as (broker, peer):
        await fill(broker, peer)
        position_of(broker, 3)
        await peer.ask(pull_request("orders", 0))
        with files.faults.fail(Operation.READ) as bad:
            began = trio.current_time()
            answer = await ask(broker, peer)
            assert trio.current_time() - began < 30
            if name not in SHOWN:
                assert bad.hits
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "cannot read (Input/output error)" in (answer.remark or "")
            else:
                assert answer.code == ResponseCode.SUCCESS
            assert not bad.on_loop, "a disk that is slow instead would hold up everybody"
            await peer.send("other", b"new")
            assert (await peer.pull("other"))[0].body == b"new"
        answer = await ask(broker, peer)
        assert answer.code == ResponseCode.SUCCESS, answer
        assert broker.health()
        assert not broker.health().reasons


async def test_what_was_popped_in_vain_comes_later(autojump_clock: MockClock) -> None:
    files = disk()
    async with open_on(files, **SETTINGS) as (broker, peer):
        await fill(broker, peer)
        popper = Popper(peer, "orders")
        with files.faults.fail(Operation.READ, "commitlog/*") as bad:
            for _ in range(3):
                with suppress(RocketMQError):
                    assert not (await popper.pop()).messages
            assert bad.hits
        found: set[bytes] = set()
        with trio.fail_after(120):
            while len(found) < COUNT:
                found.update(message.body for message in (await popper.pop()).messages)
                await trio.sleep(1)


# --- a start


def content(files: FaultyFileSystem) -> dict[str, bytes | None]:
    """All files but the mark of a running broker and the log file made ahead."""
    return {
        path: files.read(path) for path in files.names if path not in ("abort", "commitlog.next")
    }


async def stopped(clock: Clock, *, clean: bool) -> FaultyFileSystem:
    """What a broker left, closed or killed."""
    files = disk()
    with suppress(RocketMQError):
        async with open_on(files, clock=clock, **SETTINGS) as (broker, peer):
            await fill(broker, peer)
            await broker.core.offsets.persist()
            if not clean:
                files.halt()
    return files.kill()


async def check_all(broker: EmbeddedBroker, peer: Peer) -> None:
    """Everything is there, and what waits comes once."""
    assert broker.store.max_offset("orders", 0) == COUNT
    offset = 0
    while offset < COUNT:
        for message in await peer.pull("orders", offset):
            assert message.body.startswith(b"%d " % offset)
            offset += 1
    await trio.sleep(400)
    assert {message.body for message in await peer.pull("timed")} == {
        b"%d" % number for number in range(20)
    }
    assert broker.store.max_offset("timed", 0) == broker.store.max_offset("delayed", 0) == 20
    for number in (0, 77, COUNT - 1):
        assert len((await broker.store.query("orders", f"k{number}", 8)).physical_offsets) == 1


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(
    "path",
    [
        "commitlog/*",
        "consumequeue/orders/*",
        "consumequeue/SCHEDULE_TOPIC_XXXX/*",
        "consumequeue/rmq_sys_wheel_timer/*",
        "config/topics.json",
        "config/timercheck",
    ],
)
async def test_a_start_that_cannot_read_what_it_needs_names_it_and_changes_nothing(
    path: str, clean: bool, autojump_clock: MockClock
) -> None:
    clock = TrioClock()
    files = await stopped(clock, clean=clean)
    before = content(files)
    with (
        files.faults.fail(Operation.READ, path),
        pytest.raises(StoreError, match=rf"^{path.rstrip('*')}.*Input/output error"),
    ):
        async with open_on(files, clock=clock, **SETTINGS):
            pass
    after = content(files)
    log = {name: data for name, data in before.items() if name.startswith("commitlog/")}
    assert log.items() <= after.items()
    gone = before.keys() - after.keys()
    assert all(name == "cleanStop.json" or name.startswith("index/") for name in gone)
    async with open_on(files, clock=clock, **SETTINGS) as (broker, peer):
        await check_all(broker, peer)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(
    "path", ["checkpoint", "cleanStop.json", "index/*", "timerlog/*", "timerwheel"]
)
async def test_a_start_does_without_what_can_be_made_again(
    path: str, clean: bool, autojump_clock: MockClock
) -> None:
    clock = TrioClock()
    files = await stopped(clock, clean=clean)
    files.faults.fail(Operation.READ, path)
    async with open_on(files, clock=clock, **SETTINGS):
        files.faults.clear()
        await trio.sleep(1)
    async with open_on(files, clock=clock, **SETTINGS) as (broker, peer):
        await check_all(broker, peer)
