"""Nothing of a broker waits on the loop for a disk to make something durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.bad_disk import open_on_disk
from support.broker import heartbeat, subscription
from support.popping import Popper

if TYPE_CHECKING:
    from trio.testing import MockClock

    from support.broker import Peer

DURABLE = (Operation.SYNC, Operation.SYNC_DIRECTORY)
SETTINGS = {
    "mapped_file_size_commit_log": 1 << 16,
    "flush_disk_type": "SYNC_FLUSH",
    "enable_consume_queue_ext": True,
    "transaction_check_interval": 1000,
    "clean_resource_interval": 1000,
    "file_reserved_time": 0,
}


async def use_everything(peer: Peer) -> None:
    """Requests that change what is on the disk, of each kind."""
    for number in range(40):
        await peer.send("orders", bytes(4000), tag="A", properties=f"KEYS\x01k{number}\x02")
    await peer.send("orders", b"delayed", properties="DELAY\x011\x02")
    await peer.send("orders", b"timed", properties="TIMER_DELAY_MS\x012000\x02")
    half = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01u\x02"
    await peer.send("orders", b"half", properties=half, sys_flag=4)
    await peer.ask(heartbeat("c", "CG", subscription("orders")))
    await peer.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup="CG",
        topic="orders",
        queueId=0,
        commitOffset=1,
    )
    popper = Popper(peer, "orders", "PG")
    await popper.pop()
    for number in range(3):
        fields = {"topic": f"t{number}", "defaultTopic": "TBW102", "readQueueNums": 4}
        fields |= {
            "writeQueueNums": 4,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        answer = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)
        assert answer.code == 0, answer
        await peer.send(f"t{number}", b"x", tag="A")
    await trio.sleep(30)
    answer = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="t0")
    assert answer.code == 0, answer
    for code in (
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
    ):
        assert (await peer.ask(code)).code == 0
    await trio.sleep(120)


async def test_the_loop_syncs_nothing(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem(blocking=True)
    async with open_on_disk(files, **SETTINGS) as (_broker, peer, _deliveries):
        await peer.send("orders", b"the first file of a log is made durable by its first message")
        syncs = [files.faults.slow(operation, "*", delay=0) for operation in DURABLE]
        await use_everything(peer)
        for sync in syncs:
            assert sync.hits > 20
            assert sync.on_loop == 0
