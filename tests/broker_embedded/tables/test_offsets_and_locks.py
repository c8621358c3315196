"""Offsets of groups, ends of queues, locks of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.members import LockBatchRequestBody, LockBatchResponseBody
from rocketmq_sdk.protocol.command import Command
from support.broker import open_broker

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_offsets_of_a_group(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            where: dict[str, Any] = {"consumerGroup": "CG", "topic": "orders", "queueId": 0}
            answer = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, **where)
            assert (answer.code, answer.remark) == (
                22,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
            answer = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **where, commitOffset=5)
            assert (answer.code, answer.remark) == (26, "Group CG not exist!")
            broker.core.groups.get("CG")
            assert (
                await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **where, commitOffset=5)
            ).code == 17
            await peer.send("orders", b"x")
            answer = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, **where)
            assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
            answer = await peer.ask(
                RequestCode.QUERY_CONSUMER_OFFSET, **where, setZeroIfNotFound="false"
            )
            assert (answer.code, answer.remark) == (
                22,
                "Not found, do not set to zero, maybe this group boot first",
            )
            assert (
                await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **where, commitOffset=5)
            ).code == 0
            assert (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, **where)).ext_fields == {
                "offset": "5"
            }
            broker.core.offsets.assign_reset("CG", "orders", 0, 1)
            answer = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **where, commitOffset=9)
            assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
            assert (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, **where)).ext_fields == {
                "offset": "1"
            }
            assert (
                await peer.ask(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    topic="orders",
                    queueId=0,
                    consumerGroup="CG",
                )
            ).code == 1


async def test_ends_of_queues(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with open_broker() as (broker, peer):
            times = []
            for _ in range(3):
                times.append(broker.core.clock.now_ms())
                await peer.send("orders", b"x")
                await trio.sleep(10)
            queue: dict[str, Any] = {"topic": "orders", "queueId": 0}
            assert (await peer.ask(RequestCode.GET_MAX_OFFSET, **queue)).ext_fields == {
                "offset": "3"
            }
            assert (await peer.ask(RequestCode.GET_MIN_OFFSET, **queue)).ext_fields == {
                "offset": "0"
            }
            assert (await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue)).ext_fields == {
                "timestamp": str(times[0])
            }
            for timestamp, offset in ((0, 0), (times[1], 1), (times[1] + 1, 2), (times[2] + 10, 3)):
                answer = await peer.ask(
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **queue, timestamp=timestamp
                )
                assert answer.ext_fields == {"offset": str(offset)}, timestamp
            answer = await peer.ask(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                **queue,
                timestamp=times[1] + 1,
                boundaryType="UPPER",
            )
            assert answer.ext_fields == {"offset": "1"}
            nothing: dict[str, Any] = {"topic": "nothing", "queueId": 0}
            assert (await peer.ask(RequestCode.GET_MAX_OFFSET, **nothing)).ext_fields == {
                "offset": "0"
            }
            assert (
                await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, **nothing)
            ).ext_fields == {"timestamp": "-1"}


async def test_offsets_reach_the_file_within_five_seconds(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"x")
            broker.core.groups.get("CG")
            await peer.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="CG",
                topic="orders",
                queueId=0,
                commitOffset=1,
            )
            assert broker.store.files.read("config/consumerOffset.json") is None
            await trio.sleep(5.1)
            assert b"orders@CG" in (broker.store.files.read("config/consumerOffset.json") or b"")


async def test_locks(autojump_clock: MockClock) -> None:
    queues = tuple(MessageQueue("orders", "broker-a", queue_id) for queue_id in range(2))

    def request(code: RequestCode, client: str) -> Command:
        return Command.request(code, body=LockBatchRequestBody("CG", client, queues).encode())

    with trio.fail_after(600):
        async with open_broker() as (_broker, peer):

            async def lock(client: str) -> tuple[MessageQueue, ...]:
                answer = await peer.ask(request(RequestCode.LOCK_BATCH_MQ, client))
                assert answer.code == 0
                return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set

            assert set(await lock("c1")) == set(queues)
            assert await lock("c2") == ()
            await trio.sleep(50)
            assert set(await lock("c1")) == set(queues)
            await trio.sleep(59)
            assert await lock("c2") == ()
            await trio.sleep(2)
            assert set(await lock("c2")) == set(queues)
            assert (await peer.ask(request(RequestCode.UNLOCK_BATCH_MQ, "c1"))).code == 0
            assert await lock("c1") == ()
            assert (await peer.ask(request(RequestCode.UNLOCK_BATCH_MQ, "c2"))).code == 0
            assert set(await lock("c1")) == set(queues)
