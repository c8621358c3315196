"""A member that did not run for a while: its loop was blocked, its process stopped, or
its machine suspended. Another member has come meanwhile, and has gone on with a queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ConsumeFrom, LitePullConsumer, PushConsumer, ReceivedMessage
from rocketmq_sdk import clock as clock_module
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.pull.standstill import Standstill
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import UpdateConsumerOffsetRequestHeader
from rocketmq_sdk.testing.interception import intercept
from support.broker import heartbeat, open_broker, send_request, subscription
from support.consuming import Sender, committed, open_sender

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler

GROUP, OTHER = "billing", "~another member"
"""The other one is the last in the order of members, so it gets the last queue."""
COMMITS = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE


async def fill_two_queues(sender: Sender) -> None:
    await sender.create_topic("orders", 2)
    for queue in (0, 1):
        await sender.send("orders", *["x"] * 40, queue=queue)


def other_takes_over(channel: Channel, *, leaves: bool) -> None:
    """All that another member does while nobody else runs: it comes, goes on with
    queue 1, and perhaps leaves. What the broker says to the first one waits for it.
    """
    requests = [
        heartbeat(OTHER, GROUP, subscription("orders"), subscription(f"%RETRY%{GROUP}")),
        Command.request(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP, topic="orders", queue_id=1, commit_offset=30
            ),
        ),
        send_request("orders", b"more", queue_id=1),
        send_request("orders", b"more", queue_id=0),
    ]
    if leaves:
        requests.append(
            Command(
                RequestCode.UNREGISTER_CLIENT,
                ext_fields={"clientID": OTHER, "consumerGroup": GROUP},
            )
        )
    for request in requests:
        assert channel.submit(request, 10).done


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "has left again"])
@pytest.mark.parametrize("how", ["blocked", "suspended"])
async def test_a_member_that_stood_still_takes_no_offset_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, how: str, leaves: bool
) -> None:
    go_on = trio.Event()
    seen: list[tuple[int, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        if message.offset >= 3:
            await go_on.wait()
        seen.append((message.queue_id, message.offset))

    async with open_broker() as (broker, peer), open_sender(broker) as sender:
        await fill_two_queues(sender)
        async with PushConsumer(
            GROUP,
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            concurrency=90,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await trio.sleep(7)
            assert committed(broker, GROUP, "orders", 2) == [3, 3]
            offsets: list[int] = []

            def watch(
                channel: Channel, request: Command, serve: Handler
            ) -> Command | Continuation | None:
                answer = serve(channel, request)
                offsets.append(committed(broker, GROUP, "orders", 2)[1])
                return answer

            with intercept(broker, *COMMITS, by=watch):
                other_takes_over(peer.channel, leaves=leaves)
                if how == "blocked":
                    autojump_clock.jump(60)
                else:
                    slept = clock_module.suspended()
                    monkeypatch.setattr(clock_module, "suspended", lambda: slept + 60)
                await trio.sleep(30)
                assert offsets
                assert min(offsets) >= 30
                go_on.set()
                await trio.sleep(12)
                assert min(offsets) >= 30
            assert committed(broker, GROUP, "orders", 2) == [41, 41 if leaves else 30]
            if leaves:  # its queue again: it went on where the other one was
                assert (1, 40) in seen


@pytest.mark.parametrize("polled_is_done", [False, True])
@pytest.mark.parametrize("auto_commit", [False, True])
async def test_a_program_that_commits_itself_takes_no_offset_back_either(
    autojump_clock: MockClock, auto_commit: bool, polled_is_done: bool
) -> None:
    async with open_broker() as (broker, peer), open_sender(broker) as sender:
        await fill_two_queues(sender)
        async with LitePullConsumer(
            GROUP,
            namesrv=broker,
            subscriptions={"orders": "*"},
            auto_commit=auto_commit,
            polled_is_done=polled_is_done,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            polled = [message for _ in range(2) for message in await consumer.poll(max_messages=10)]
            if not polled_is_done:
                consumer.done(*polled)
            await consumer.commit()
            assert sum(committed(broker, GROUP, "orders", 2)) == 20
            for blocked in (60, 0):
                other_takes_over(peer.channel, leaves=False)
                autojump_clock.jump(blocked)
                await consumer.commit()
                assert committed(broker, GROUP, "orders", 2)[1] == 30
                await trio.sleep(5)
            await consumer.commit()
            assert committed(broker, GROUP, "orders", 2)[1] == 30
            polled = await consumer.poll(5, max_messages=1)  # of what is still its own
            if not polled_is_done:
                consumer.done(*polled)
            before = committed(broker, GROUP, "orders", 2)[0]
            await consumer.commit()
            assert committed(broker, GROUP, "orders", 2) == [before + 1, 30]


async def test_no_offset_is_committed_between_news_of_members_and_the_next_round(
    autojump_clock: MockClock,
) -> None:
    async def listener(message: ReceivedMessage) -> None:
        if message.offset >= 3:
            await trio.sleep(1000)

    async with open_broker() as (broker, peer), open_sender(broker) as sender:
        await fill_two_queues(sender)
        async with PushConsumer(
            GROUP,
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            concurrency=90,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            revoke_grace=1,
        ):
            await trio.sleep(7)
            other_takes_over(peer.channel, leaves=False)
            offsets: set[int] = set()
            with trio.move_on_after(20):
                while True:
                    offsets.add(committed(broker, GROUP, "orders", 2)[1])
                    await trio.sleep(0.01)
            assert offsets == {30}
            # what is still its own goes on
            assert committed(broker, GROUP, "orders", 2)[0] == 3


async def test_a_standstill_is_told_by_what_is_late(autojump_clock: MockClock) -> None:
    standstill = Standstill()
    await trio.sleep(100)
    assert not standstill.happened  # nothing was expected
    standstill.expect(5)
    await trio.sleep(5.5)
    assert not standstill.happened
    autojump_clock.jump(40)
    assert standstill.happened
    assert standstill.lateness == pytest.approx(40.5)
    standstill.expect(5)
    assert not standstill.happened
