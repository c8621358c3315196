"""Pulls: the order of the checks, what is read, what is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.filter.message_filters import TagFilter
from rocketmq_sdk.broker_embedded.store.messages import GetResult, GetStatus
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.broker import Peer, heartbeat, open_broker, pull_request, subscription

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command


async def refusal(peer: Peer, request: Command) -> tuple[int, str | None, str | None]:
    answer = await peer.ask(request)
    assert not answer.body
    return answer.code, answer.remark, answer.ext_fields.get("forbiddenType")


def remark_is(
    found: tuple[int, str | None, str | None], code: int, start: str, forbidden: str | None = None
) -> None:
    assert found[0] == code
    assert (found[1] or "").startswith(start), found
    assert found[2] == forbidden


async def test_checks_of_group_and_topic(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            core = broker.core
            await peer.send("orders", b"x")
            remark_is(
                await refusal(peer, pull_request("orders", 0, group="bad group!")),
                26,
                "subscription group [bad group!] does not exist",
            )
            core.groups.update(SubscriptionGroupConfig("off", consume_enable=False))
            remark_is(
                await refusal(peer, pull_request("orders", 0, group="off")),
                16,
                "subscription group no permission, off",
                "2",
            )
            remark_is(
                await refusal(peer, pull_request("nothing", 0)),
                17,
                "topic[nothing] not exist, apply first please!",
            )
            core.topics.put(TopicConfig("closed", 1, 1, 2))
            remark_is(
                await refusal(peer, pull_request("closed", 0)),
                16,
                "the topic[closed] pulling message is forbidden",
                "3",
            )
            for queue_id in (4, 99, -1):
                remark_is(
                    await refusal(peer, pull_request("orders", 0, queue_id=queue_id)),
                    29,
                    f"queueId[{queue_id}] is illegal, topic:[orders]",
                )
            remark_is(
                await refusal(peer, pull_request("orders", 0, expression="||")),
                23,
                "parse the consumer's subscription failed",
            )
            empty = pull_request("orders", 0, expression="", expression_type="SQL92")
            remark_is(await refusal(peer, empty), 23, "parse the consumer's subscription failed")


async def test_checks_of_the_registered_subscription(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            core = broker.core
            await peer.send("orders", b"x")
            request = pull_request("orders", 0, expression=None, sub_version=5)
            remark_is(await refusal(peer, request), 24, "the consumer's group info not exist")
            await peer.ask(heartbeat("c1", "CG", subscription("others")))
            remark_is(await refusal(peer, request), 24, "the consumer's subscription not exist")
            await peer.ask(heartbeat("c1", "CG", subscription("orders", version=4)))
            remark_is(await refusal(peer, request), 25, "the consumer's subscription not latest")
            await peer.ask(heartbeat("c1", "CG", subscription("orders", version=6)))
            assert len(await peer.pull("orders", expression=None, sub_version=5)) == 1
            core.groups.set_forbidden("CG", "orders", True)
            remark_is(
                await refusal(peer, request),
                16,
                "the consumer group[CG] is forbidden for topic[orders]",
                "5",
            )
            core.groups.set_forbidden("CG", "orders", False)
            core.groups.update(SubscriptionGroupConfig("CG", consume_broadcast_enable=False))
            await peer.ask(
                heartbeat(
                    "c1", "CG", subscription("orders", version=6), model=MessageModel.BROADCASTING
                )
            )
            remark_is(
                await refusal(peer, request),
                16,
                "the consumer group[CG] can not consume by broadcast way",
                "4",
            )


async def test_checks_of_the_broker(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(broker_permission=2) as (_broker, peer):
            remark_is(
                await refusal(peer, pull_request("orders", 0)),
                16,
                "the broker[127.0.0.1:10911] pulling message is forbidden",
                "1",
            )
        async with open_broker(lite_pull_message_enable=False) as (_broker, peer):
            request = pull_request("orders", 0)
            request.code = RequestCode.LITE_PULL_MESSAGE
            remark_is(
                await refusal(peer, request),
                16,
                "the broker[127.0.0.1:10911] for lite pull consumer is forbidden",
                "1",
            )


async def test_lite_pull(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.send("orders", b"x")
            request = pull_request("orders", 0)
            request.code = RequestCode.LITE_PULL_MESSAGE
            assert len(decode_messages((await peer.ask(request)).body)) == 1


async def test_positions(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for number in range(3):
                await peer.send("orders", str(number).encode(), tag="A" if number else "B")
            cases = [
                (0, 0, 0, "FOUND", "3"),
                (3, 0, 19, "OFFSET_OVERFLOW_ONE", "3"),
                (99, 0, 21, "OFFSET_OVERFLOW_BADLY", "3"),
                (-5, 0, 21, "OFFSET_TOO_SMALL", "0"),
                (0, 1, 19, "NO_MESSAGE_IN_QUEUE", "0"),
                (7, 1, 21, "NO_MESSAGE_IN_QUEUE", "0"),
            ]
            for offset, queue_id, code, status, following in cases:
                answer = await peer.ask(pull_request("orders", offset, queue_id=queue_id))
                assert (answer.code, answer.remark, answer.ext_fields["nextBeginOffset"]) == (
                    code,
                    status,
                    following,
                )
                assert answer.ext_fields["suggestWhichBrokerId"] == "0"
            answer = await peer.ask(pull_request("orders", 0, expression="C"))
            assert (answer.code, answer.remark, answer.ext_fields["nextBeginOffset"]) == (
                20,
                "NO_MATCHED_MESSAGE",
                "3",
            )
            assert [message.body for message in await peer.pull("orders", expression="A || C")] == [
                b"1",
                b"2",
            ]


async def test_at_most_32_messages_and_256_kib(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for _ in range(40):
                await peer.send("small", b"x")
                await peer.send("large", bytes(60_000))
            assert len(await peer.pull("small", max_msg_nums=1000)) == 32
            assert len(await peer.pull("small", max_msg_nums=3)) == 3
            assert len(await peer.pull("large")) == 4
            assert len(await peer.pull("small", 20)) == 20


async def test_offsets_are_committed_once(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            offsets = broker.core.offsets
            await peer.send("orders", b"x")
            request = pull_request(
                "orders", 1, sys_flag=1 | 2 | 4, commit_offset=1, suspend_timeout_millis=2000
            )
            call = peer.channel.submit(request, 10)
            assert offsets.query("CG", "orders", 0) == 1
            offsets.commit("CG", "orders", 0, 77)
            assert (await call.wait()).code == 19
            assert offsets.query("CG", "orders", 0) == 77
            await peer.ask(pull_request("orders", 0, sys_flag=1 | 4, commit_offset=-1))
            await peer.ask(pull_request("orders", 0, sys_flag=4, commit_offset=5))
            assert offsets.query("CG", "orders", 0) == 77
            assert offsets.pulled("CG", "orders", 0) == 1


async def test_a_reset_is_not_undone_by_the_pull_that_delivers_it(
    autojump_clock: MockClock,
) -> None:
    flags = int(PullSysFlag.COMMIT_OFFSET | PullSysFlag.SUBSCRIPTION)
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            for _ in range(10):
                await peer.send("orders", b"x")
            offsets = broker.core.offsets
            offsets.commit("CG", "orders", 0, 9)
            offsets.assign_reset("CG", "orders", 0, 2)
            pull = pull_request("orders", 9, sys_flag=flags, commit_offset=9)
            assert (await peer.ask(pull)).ext_fields["nextBeginOffset"] == "2"
            assert offsets.offsets_of("CG", "orders") == {0: 2}
            await peer.ask(pull_request("orders", 2, sys_flag=flags, commit_offset=3))
            assert offsets.offsets_of("CG", "orders") == {0: 3}


async def test_a_reset_is_told_once(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"x")
            await peer.send("orders", b"y")
            broker.core.offsets.assign_reset("CG", "orders", 0, 0)
            answer = await peer.ask(pull_request("orders", 2, hold=15))
            assert (answer.code, answer.remark, answer.ext_fields["nextBeginOffset"]) == (
                21,
                "OFFSET_RESET",
                "0",
            )
            assert answer.ext_fields["maxOffset"] == "2"
            assert (await peer.ask(pull_request("orders", 2))).code == 19


async def test_missing_fields_are_named(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for name in set(pull_request("orders", 0).ext_fields) - {"subscription"}:
                request = pull_request("orders", 0)
                del request.ext_fields[name]
                answer = await peer.ask(request)
                assert answer.code == 1
                assert name in (answer.remark or "")


async def test_a_closing_broker_is_busy(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
            peer = Peer()
            peer.channel = await broker.open_channel(broker.core.address(), peer.handle, nursery)
            await peer.send("orders", b"x")
            broker.parts.pull.held.release_all()
            assert (await peer.ask(pull_request("orders", 1, hold=15))).code == 2
            nursery.cancel_scope.cancel()


def test_tags_match_by_the_low_32_bits() -> None:
    code = java_hash("TagA")
    negative = java_hash("polygenelubricants")
    assert negative == -(1 << 31)
    wanted = TagFilter(frozenset({code, negative}))
    assert wanted.matches_tags_code(code)
    assert wanted.matches_tags_code(code + (5 << 32))
    assert wanted.matches_tags_code(negative & 0xFFFFFFFF)
    assert wanted.matches_tags_code(None)
    assert not wanted.matches_tags_code(code + 1)
    assert not wanted.matches_tags_code(0)
    assert wanted.matches_record({})


async def test_cold_messages_are_read_outside_of_the_loop(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"old", tag="A")
            monkeypatch.setattr(broker.store, "read_nowait", lambda *_where: None)
            assert [message.body for message in await peer.pull("orders", expression="A")] == [
                b"old"
            ]
            call = peer.channel.submit(pull_request("orders", 1, hold=15), 20)
            await trio.testing.wait_all_tasks_blocked()
            assert broker.parts.pull.held.held == 1
            await peer.send("orders", b"new")
            answer = await call.wait()
            assert [message.body for message in decode_messages(answer.body)] == [b"new"]


async def test_a_gap_in_a_queue_is_told_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's broker looks again after five seconds; there is nothing to wait for."""
    gap = GetResult(GetStatus.OFFSET_FOUND_NULL, 300_000, 0, 300_001)
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.send("orders", b"x")
            monkeypatch.setattr(broker.parts.pull._pulls, "_store", StoreWithGap(gap))
            begin = trio.current_time()
            answer = await peer.ask(pull_request("orders", 0, hold=15))
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (19, "300000")
            assert trio.current_time() - begin < 0.1


class StoreWithGap:
    """Finds nothing where there should be something."""

    def __init__(self, gap: GetResult) -> None:
        self._gap = gap

    def read_nowait(self, *_arguments: object) -> GetResult:
        return self._gap
