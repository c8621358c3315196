"""Held pulls: what wakes them, when their time is over, what becomes of them with their
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.pull.long_polling import HeldPull, PullHolder
from rocketmq_sdk.broker_embedded.store.messages import Arrival
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.broker import Peer, connect, open_broker, pull_request, send_request

if TYPE_CHECKING:
    from trio.testing import MockClock


class Pending:
    """A pull under way, and when it was answered."""

    def __init__(self) -> None:
        self.answer: Command | None = None
        self.at = -1.0

    async def run(self, peer: Peer, request: Command) -> None:
        self.answer = await peer.ask(request)
        self.at = trio.current_time()

    @property
    def waits(self) -> bool:
        return self.answer is None


async def start(nursery: trio.Nursery, peer: Peer, request: Command) -> Pending:
    pending = Pending()
    nursery.start_soon(pending.run, peer, request)
    await trio.testing.wait_all_tasks_blocked()
    return pending


async def test_a_message_wakes_the_pull_at_once(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first")
            pending = await start(nursery, peer, pull_request("orders", 1, hold=15))
            assert pending.waits
            await trio.sleep(3)
            sent = trio.current_time()
            await peer.send("orders", b"second")
            await trio.testing.wait_all_tasks_blocked()
            assert pending.answer is not None
            assert pending.at == sent
            assert [message.body for message in decode_messages(pending.answer.body)] == [b"second"]


async def test_time_runs_out_exactly(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first")
            begin = trio.current_time()
            pending = await start(nursery, peer, pull_request("orders", 1, hold=15))
            short = await start(nursery, peer, pull_request("orders", 1, hold=2))
            await trio.sleep(20)
            assert pending.answer is not None
            assert (pending.answer.code, pending.answer.remark) == (
                ResponseCode.PULL_NOT_FOUND,
                "OFFSET_OVERFLOW_ONE",
            )
            assert pending.at - begin == pytest.approx(15, abs=0.01)
            assert short.at - begin == pytest.approx(2, abs=0.01)


async def test_other_queues_topics_and_tags_do_not_wake(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first", tag="A")
            pending = await start(
                nursery, peer, pull_request("orders", 1, hold=15, expression="A || B")
            )
            await peer.send("orders", b"another queue", queue_id=1, tag="A")
            await peer.send("others", b"another topic", tag="A")
            await peer.send("orders", b"another tag", tag="C")
            await trio.testing.wait_all_tasks_blocked()
            assert pending.waits
            assert broker.parts.pull.held.held == 1
            await peer.send("orders", b"wanted", tag="B")
            await trio.testing.wait_all_tasks_blocked()
            assert pending.answer is not None
            assert [message.body for message in decode_messages(pending.answer.body)] == [b"wanted"]
            assert pending.answer.ext_fields["nextBeginOffset"] == "3"
            assert broker.parts.pull.held.held == 0


async def test_what_is_filtered_away_is_told_when_the_time_is_over(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first", tag="A")
            pending = await start(nursery, peer, pull_request("orders", 1, hold=5, expression="A"))
            await peer.send("orders", b"another tag", tag="C")
            await trio.sleep(6)
            assert pending.answer is not None
            assert (pending.answer.code, pending.answer.ext_fields["nextBeginOffset"]) == (
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                "2",
            )


async def test_messages_of_one_moment_are_answered_together(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first")
            pending = await start(nursery, peer, pull_request("orders", 1, hold=15))
            calls = [
                peer.channel.submit(send_request("orders", bytes([number])), 5)
                for number in range(10)
            ]
            for call in calls:
                await call.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert pending.answer is not None
            assert len(decode_messages(pending.answer.body)) == 10


async def test_many_pulls_of_one_queue_are_all_woken(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first")
            pulls = [
                await start(nursery, peer, pull_request("orders", 1, hold=15, group=f"CG{number}"))
                for number in range(20)
            ]
            await peer.send("orders", b"second")
            await trio.testing.wait_all_tasks_blocked()
            assert all(pull.answer is not None and pull.answer.code == 0 for pull in pulls)


async def test_a_closed_connection_takes_its_pulls_along(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first")
            other = await connect(broker, nursery)
            call = other.channel.submit(pull_request("orders", 1, hold=15), 60)
            await trio.testing.wait_all_tasks_blocked()
            assert broker.parts.pull.held.held == 1
            await other.channel.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert broker.parts.pull.held.held == 0
            assert call.error is not None


async def test_short_polling(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with (
            open_broker(long_polling_enable=False, short_polling_time_mills=700) as (_broker, peer),
            trio.open_nursery() as nursery,
        ):
            await peer.send("orders", b"first")
            begin = trio.current_time()
            pending = await start(nursery, peer, pull_request("orders", 1, hold=15))
            await trio.sleep(5)
            assert pending.at - begin == pytest.approx(0.7, abs=0.01)


async def test_a_woken_pull_is_never_held_again(autojump_clock: MockClock) -> None:
    """The arrival is told although nothing can be read: the answer is that nothing was
    found.
    """
    with trio.fail_after(60):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first")
            pending = await start(nursery, peer, pull_request("orders", 1, hold=15))
            broker.parts.pull.held.on_arrival(Arrival("orders", 0, 1, 0, 0, 0, 0, ""))
            await trio.testing.wait_all_tasks_blocked()
            assert pending.answer is not None
            assert pending.answer.code == ResponseCode.PULL_NOT_FOUND


async def test_the_limit(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first")
            holder = broker.parts.pull.held
            holder._limit = 1
            await start(nursery, peer, pull_request("orders", 1, hold=15))
            answer = await peer.ask(pull_request("orders", 1, hold=15))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92"])
async def test_what_waits_is_small(autojump_clock: MockClock, expression_type: str) -> None:
    """Neither body nor expression stays; the pull is still answered by its filter."""
    with trio.fail_after(60):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            await peer.send("orders", b"first", tag="A")
            request = pull_request(
                "orders",
                1,
                hold=15,
                expression="A" if expression_type == "TAG" else "TAGS = 'A'",
                expression_type=expression_type,
            )
            request.body = bytes(1_000_000)
            pending = await start(nursery, peer, request)
            held = broker.parts.pull.held
            [waiter] = [pull for pulls in held._channels.values() for pull in pulls]
            assert (waiter.request.body, waiter.request.ext_fields) == (b"", {})
            assert waiter.header is not None
            assert "subscription" not in waiter.header.to_ext()
            await peer.send("orders", b"other", tag="B")
            await peer.send("orders", b"wanted", tag="A")
            await trio.testing.wait_all_tasks_blocked()
            assert pending.answer is not None
            assert [m.body for m in decode_messages(pending.answer.body)] == [b"wanted"]


async def test_no_pull_waits_longer_than_ten_minutes(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await peer.send("orders", b"first")
        begin = trio.current_time()
        answer = await peer.ask(pull_request("orders", 1, hold=10**12), timeout=3600)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert trio.current_time() - begin == pytest.approx(600, abs=0.01)


async def test_old_deadlines_do_not_pile_up(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        holder = PullHolder(TrioClock(), lambda _pull: None)
        for number in range(10_000):
            holder.hold(HeldPull(peer.channel, Command(11), "t", 0, number, None, 1e9))
            holder.on_arrival(Arrival("t", 0, number, 0, 0, 0, 0, ""))
        assert holder.held == 0
        assert len(holder._deadlines) < 200


class CountingFilter:
    """Counts how often it is asked for its verdict on properties."""

    needs_properties = True
    what = "the same for all"

    def __init__(self, verdict: bool) -> None:
        self.verdict = verdict
        self.asked = 0

    def matches_tags_code(self, _tags_code: int | None) -> bool:
        return True

    def work(self, length: int) -> int:
        return length

    def matches_record(self, _properties: object) -> bool:
        self.asked += 1
        return self.verdict


@pytest.mark.parametrize("verdict", [False, True])
async def test_each_filter_is_asked_once_for_an_arrival(
    autojump_clock: MockClock, verdict: bool
) -> None:
    async with open_broker() as (_broker, peer):
        holder = PullHolder(TrioClock(), lambda _pull: None)
        filters = [CountingFilter(verdict) for _ in range(200)]
        for wanted in filters:
            holder.hold(HeldPull(peer.channel, Command(11), "t", 0, 0, wanted, 1e9))
        holder.on_arrival(Arrival("t", 0, 5, 0, 0, 0, 0, ""))
        assert sum(wanted.asked for wanted in filters) == 1
        assert holder.held == (0 if verdict else 200)


async def test_others_have_their_turn_while_thousands_are_woken(
    autojump_clock: MockClock,
) -> None:
    served: list[int] = []

    def rerun(pull: HeldPull) -> Command:
        served.append(pull.offset)
        return Command(0)

    async with open_broker() as (_broker, peer), trio.open_nursery() as nursery:
        holder = PullHolder(TrioClock(), rerun)
        nursery.start_soon(holder.run)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(5000):
            holder.hold(HeldPull(peer.channel, Command(11), "t", 0, number, None, 1e9))
        holder.on_arrival(Arrival("t", 0, 5000, 0, 0, 0, 0, ""))
        steps, before = [], 0
        while len(served) < 5000:
            await trio.lowlevel.checkpoint()
            steps.append(len(served) - before)
            before = len(served)
        assert max(steps) <= 256
        assert served == list(range(5000))
        nursery.cancel_scope.cancel()
