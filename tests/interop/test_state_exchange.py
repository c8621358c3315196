"""A directory with open transactions, popped messages and timers moves from our broker
to Apache's and back; each goes on where it was left.
"""

from __future__ import annotations

from signal import SIGTERM
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    ConsumeFrom,
    EmbeddedBroker,
    Message,
    PoppedMessage,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.broker_embedded.transactions.table import op_offsets
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.transactions import EndTransactionRequestHeader
from rocketmq_sdk.protocol.message_id import position_of
from support import java
from support.chunks import exchange
from support.ports import free_port
from support.transactions import COMMIT, ops
from support.waiting import unique

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.client.config import NamesrvSource

pytestmark = pytest.mark.both_releases

SIZES: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "mappedFileSizeTimerLog": 5200,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
SOON = {"transactionTimeOut": 1000, "transactionCheckInterval": 1500, "transactionCheckMax": 1000}
"""Apache's broker needs 13 s and more to stop and checks meanwhile; the 15 checks of
the default are over before ours is there to ask.
"""
NOT_YET = {"transactionTimeOut": 600_000, "transactionCheckInterval": 600_000}
COMMITTED, POPPED = "StateCommitted", "StatePopped"
INVISIBLE, TIMER = 8.0, 8000
"""Seconds and milliseconds; all is over, or nearly, when the next broker is there."""


def our_broker(root: Path, **settings: object) -> EmbeddedBroker:
    config, _warnings = BrokerConfig().with_settings(
        {
            name: str(value)
            for name, value in (SIZES | {"diskMaxUsedSpaceRatio": 95} | settings).items()
        }
    )
    return EmbeddedBroker(root, config=config)


TOGETHER = {b"together %d" % number for number in range(6)}
NOTHING: set[bytes] = set()


class Here:
    """A producer of the transactions and a receiver of both topics, at one broker after
    the other; what came while it was this one's turn.
    """

    def __init__(self, namesrv: NamesrvSource, *, undecided: bytes = b"nothing") -> None:
        self.asked: set[bytes] = set()
        self.came: dict[bytes, int] = {}
        self._undecided = undecided
        topics = [COMMITTED, POPPED]
        self.producer = TransactionProducer(
            "state-producer", self._check, topics=topics, namesrv=namesrv, send_timeout=20
        )
        options: Any = {"consume_from": ConsumeFrom.FIRST_OFFSET, "min_invisible_duration": 1.0}
        self.consumer = SimpleConsumer(
            "state-group", namesrv=namesrv, subscriptions=dict.fromkeys(topics, "*"), **options
        )

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        self.asked.add(message.body)
        if message.body.endswith(self._undecided):
            return TransactionState.UNKNOWN
        return (
            TransactionState.COMMIT
            if message.body.startswith(b"commit")
            else TransactionState.ROLLBACK
        )

    async def leave_under_way(self, where: bytes) -> None:
        """Two open half messages, a timer, and two popped messages of which one is
        acknowledged.
        """
        await self.producer.send(
            Message(
                POPPED, b"timer of " + where, deliver_at=self.producer.client.clock.now_ms() + TIMER
            )
        )
        done, left = b"done at " + where, b"left at " + where
        for body in (done, left):
            await self.producer.send(Message(POPPED, body))
        seen: dict[bytes, PoppedMessage] = {}
        while not seen.keys() >= {done, left}:
            seen |= {
                message.body: message for message in await self.consumer.receive(32, INVISIBLE, 2)
            }
        await self.consumer.ack(seen[done])
        for word in (b"commit ", b"roll back "):
            async with self.producer.transaction(Message(COMMITTED, word + where)) as transaction:
                transaction.unknown()

    async def commit_together(self, broker: EmbeddedBroker) -> None:
        """Commit some transactions so that one op record lists all of them."""
        ends = []
        for opaque, body in enumerate(sorted(TOGETHER)):
            async with self.producer.transaction(Message(COMMITTED, body)) as transaction:
                transaction.unknown()
            half = transaction.half
            header = EndTransactionRequestHeader(
                producer_group="state-producer",
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=position_of(half.offset_message_id),
                commit_or_rollback=COMMIT,
                msg_id=half.message_id,
            )
            ends.append(Command.request(RequestCode.END_TRANSACTION, header))
            ends[-1].opaque = opaque
        await exchange(broker, [ends[:1], ends[1:]])  # the first ones make the queues
        assert len(op_offsets(ops(broker)[-1])) > 1

    async def receive_what_was_under_way(self, where: bytes, also: set[bytes] = NOTHING) -> None:
        """Receive and acknowledge until all came that shall come, and the check of what
        shall not was answered.
        """
        wanted = expected(where) | also
        with trio.move_on_after(120):
            while not (self.came.keys() >= wanted and b"roll back " + where in self.asked):
                for message in await self.consumer.receive(32, 60.0, 1):
                    self.came[message.body] = self.came.get(message.body, 0) + 1
                    await self.consumer.ack(message)
            return
        raise AssertionError(
            f"after two minutes these have come: {self.came}, and these were asked about: "
            f"{self.asked}"
        )


def expected(where: bytes) -> set[bytes]:
    """Of what was left under way, what has to come."""
    return {b"commit " + where, b"timer of " + where, b"left at " + where}


async def test_what_is_under_way_moves_there_and_back(
    apache: java.ApacheCluster, tmp_path: Path
) -> None:
    # Records of pops are in a topic that has the cluster's name.
    root, names = (
        tmp_path / "store",
        {"brokerName": unique("broker"), "brokerClusterName": unique("cluster")},
    )
    async with our_broker(root, **names, **NOT_YET) as broker:
        for topic in (COMMITTED, POPPED):
            broker.core.topics.put(TopicConfig(topic, 2, 2))
        await broker.core.topics.save()  # routes name them from then on
        ours = Here(broker)
        async with ours.producer, ours.consumer:
            await ours.leave_under_way(b"ours")
            await ours.commit_together(broker)
    assert verify_directory(root).findings == []

    cluster = java.ApacheCluster(tmp_path, apache.namesrv, f"127.0.0.1:{free_port(-2, 1)}", {})
    try:
        java.start_broker(cluster, **SIZES, **SOON, **java.FLUSHES_TIMERS, **names)
        theirs = Here(apache.namesrv, undecided=b"theirs")
        async with theirs.producer, theirs.consumer:
            await theirs.receive_what_was_under_way(b"ours", TOGETHER)
            await theirs.leave_under_way(b"theirs")
        cluster.stop("broker", SIGTERM)
    finally:
        cluster.close()
    assert theirs.came.keys() == expected(b"ours") | TOGETHER
    assert not theirs.asked & TOGETHER  # their op record was understood
    assert verify_directory(root).findings == []

    async with our_broker(root, **names, **SOON) as broker:
        again = Here(broker)
        async with again.producer, again.consumer:
            await again.receive_what_was_under_way(b"theirs")
    # Apache can have committed more than one of the copies that its checks have made,
    # and what it has not handed out is there now.
    assert again.came.keys() - {b"commit ours"} == expected(b"theirs")
    assert all(again.came[body] == 1 for body in expected(b"theirs"))
    assert again.asked >= {b"commit theirs", b"roll back theirs"}
