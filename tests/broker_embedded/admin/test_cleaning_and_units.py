"""Cleaning on request, and units of queues, at a whole broker."""

from __future__ import annotations

from rocketmq_sdk.protocol.bodies.queries import QueryConsumeQueueResponseBody
from rocketmq_sdk.protocol.subscription import tags_code
from support.broker import heartbeat, open_broker, subscription


async def test_queues_of_topics_that_do_not_exist_are_dropped(autojump_clock: object) -> None:
    async with open_broker() as (broker, peer):
        await peer.send("Kept", b"1")
        await peer.send("Lost", b"2")
        broker.core.topics.delete("Lost")
        assert (await peer.ask(316)).code == 0
        assert "Lost" not in broker.store.topics()
        assert [message.body for message in await peer.pull("Kept")] == [b"1"]


async def test_log_and_queues_are_cleaned_now(autojump_clock: object) -> None:
    async with open_broker(mapped_file_size_commit_log=4096, file_reserved_time=1) as (
        broker,
        peer,
    ):
        for number in range(40):
            await peer.send("T", b"x" * 200 + bytes([number]))
        assert (await peer.ask(329)).code == 0
        assert (await peer.ask(306)).code == 0
        assert broker.store.min_physical_offset == 0, "nothing is old enough"
        assert len(await peer.pull("T")) == 32


async def test_units_of_a_queue(autojump_clock: object) -> None:
    async with open_broker() as (_broker, peer):
        for tag in ("a", "b", "a"):
            await peer.send("T", b"hello", tag=tag)
        await peer.ask(heartbeat("c1", "CG", subscription("T", "a")))
        answer = await peer.ask(321, topic="T", queueId=0, index=1, count=10, consumerGroup="CG")
        body = QueryConsumeQueueResponseBody.decode(answer.body)
        assert (body.min_queue_index, body.max_queue_index) == (0, 3)
        assert [unit.tags_code for unit in body.queue_data or ()] == [
            tags_code("b"),
            tags_code("a"),
        ]
        assert body.subscription_data is not None
        offline = QueryConsumeQueueResponseBody.decode(
            (await peer.ask(321, topic="T", queueId=0, index=0, count=1, consumerGroup="x")).body
        )
        assert (offline.filter_data, len(offline.queue_data or ())) == ("x@T is not online!", 1)


async def test_units_that_are_not_there(autojump_clock: object) -> None:
    async with open_broker() as (_broker, peer):
        await peer.send("T", b"hello")
        missing = await peer.ask(321, topic="T", queueId=3, index=0, count=1)
        assert (missing.code, missing.remark) == (1, "3@T is not exist!")
        beyond = await peer.ask(321, topic="T", queueId=0, index=7, count=1)
        assert (beyond.code, beyond.remark) == (0, "Index 7 of 0@T is not exist!")
        negative = await peer.ask(321, topic="T", queueId=0, index=0, count=-5)
        assert QueryConsumeQueueResponseBody.decode(negative.body).queue_data == ()
