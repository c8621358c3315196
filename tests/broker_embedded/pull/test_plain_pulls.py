"""Pulls that arrive together get the same answers as one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.pull import plain_pulls
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, HeaderEncoding
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.broker import heartbeat, open_broker, open_on, pull_request, subscription
from support.chunks import exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

FEW: dict[str, Any] = {
    "max_transfer_count_on_message_in_memory": 4,
    "max_transfer_count_on_message_in_disk": 4,
}


class Outcome(NamedTuple):
    """What requests did to a broker, and its answers."""

    answers: dict[int, tuple[bytes, list[tuple[int, bytes]]]]
    """Headers as they are, and offsets and bodies of messages."""
    found: tuple[int, int]
    counts: dict[tuple[str, str], list[tuple[int, int, int, int]]]
    pulled: dict[str, dict[int, int]]
    offsets: dict[str, dict[int, int]]
    groups: set[str]


def taken_apart(frame: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    end = 8 + int.from_bytes(frame[5:8], "big")
    return frame[4:end], [(each.offset, each.body) for each in decode_messages(frame[end:])]


def outcome(broker: EmbeddedBroker, answers: dict[int, bytes]) -> Outcome:
    core = broker.core
    stats, offsets = core.stats, core.offsets
    return Outcome(
        {opaque: taken_apart(frame) for opaque, frame in answers.items()},
        (stats.pull_found, stats.pull_missed),
        {
            key: sorted(
                (queue_id, counts.times, counts.messages, counts.bytes)
                for queue_id, counts in group.queues.items()
            )
            for key, group in stats.groups.items()
        },
        offsets._pulled,
        dict(offsets._table),
        set(core.groups.all()),
    )


async def outcome_of(chunks: Sequence[Sequence[Command]], reset: bool) -> Outcome:
    """What a new broker with a few messages does with chunks of requests."""
    files = MemoryFileSystem(write_through=True)
    async with open_on(files, **FEW) as (broker, peer):
        broker.core.topics.put(TopicConfig("other"))
        for number in range(24):
            tag = f"TAGS\x01{number % 3}\x02"
            await peer.send("plain", b"%d" % number, queue_id=number % 2, properties=tag)
        for group in ("CG", "reset"):
            await peer.ask(pull_request("plain", 0, group=group))
        for group, wanted in (("CG", "*"), ("reset", "1 || 2")):
            await peer.ask(heartbeat(group, group, subscription("plain", wanted, version=0)))
        if reset:
            broker.core.offsets.assign_reset("reset", "plain", 0, 3)
        return outcome(broker, await exchange(broker, chunks))


def run(chunks: Sequence[Sequence[Command]], *, reset: bool) -> Outcome:
    return trio.run(outcome_of, chunks, reset, clock=trio.testing.MockClock(autojump_threshold=0))


def numbered(command: Command, number: int) -> Command:
    """A copy whose opaque is the number."""
    own = Command(command.code, ext_fields=dict(command.ext_fields), body=command.body)
    own.opaque = number
    return own


ODD = ["0", "1", "2", "3", "4", "-1", "x", "", " 2", "4294967296", "9" * 20, "٣", "plain", "*"]
FIELDS = sorted(
    {*pull_request("plain", 0).ext_fields, "expressionType", "requestSource", "maxMsgBytes"}
)


@st.composite
def pulls(draw: st.DrawFn) -> list[Command]:
    """Pulls that arrive together, of one queue for the most part."""
    requests = []
    topic = draw(st.sampled_from(["plain", "plain", "plain", "other", "nothing"]))
    group = draw(st.sampled_from(["CG", "CG", "reset", "bad group!"]))
    expression = draw(st.sampled_from(["*", "*", "", "0 || 1", None, None, None]))
    following = 0
    commits = expression is None and draw(st.booleans())
    for number in range(1, draw(st.integers(2, 12)) + 1):
        offset = draw(st.sampled_from([following, following, following, number]))
        most = draw(st.sampled_from([2, 2, 4, 32, 0]))
        following = offset + most
        command = pull_request(topic, offset, group=group, expression=expression, max_msg_nums=most)
        if commits and (number == 1 or draw(st.integers(0, 5)) == 0):
            command.ext_fields |= {"sysFlag": "1", "commitOffset": str(draw(st.integers(0, 9)))}
        what = draw(st.integers(0, 19))
        if what == 0:
            command.ext_fields[draw(st.sampled_from(FIELDS))] = draw(st.sampled_from(ODD))
        elif what == 1:
            command.ext_fields.pop(draw(st.sampled_from(FIELDS)), None)
        elif what == 2:
            command.body = b"x"
        elif what == 3:
            command.code = draw(st.sampled_from([RequestCode.LITE_PULL_MESSAGE, 4711]))
        command = numbered(command, number)
        if what == 4:
            command.flag = FLAG_ONEWAY
        elif what == 5:
            command.encoding = HeaderEncoding.ROCKETMQ
        requests.append(command)
    return requests


@settings(max_examples=15, deadline=None)
@given(pulls(), st.booleans())
def test_a_chunk_gets_the_same_answers_as_its_pulls_one_by_one(
    requests: list[Command], reset: bool
) -> None:
    alone = run([[request] for request in requests], reset=reset)
    assert run([requests], reset=reset) == alone


async def test_an_answer_that_is_too_long_is_refused_as_to_one_that_comes_alone(
    autojump_clock: MockClock,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_on(files, max_transfer_bytes_on_message_in_memory=1 << 26) as (broker, peer):
        for number in range(9):
            await peer.send("plain", bytes(17 << 17 if number < 8 else 1))
        await peer.ask(pull_request("plain", 8))
        offsets = enumerate((0, 0, 5, 8))
        pulls = [numbered(pull_request("plain", offset), opaque) for opaque, offset in offsets]
        alone = await exchange(broker, [[pull] for pull in pulls])
        assert await exchange(broker, [pulls]) == alone
        codes = [decode_frame(alone[opaque][4:]).code for opaque in range(4)]
        assert codes == [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR, 0, 0]


async def test_a_run_of_a_consumer_is_served_together_with_its_commit(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(60):
        async with open_broker(**FEW) as (broker, peer):
            for number in range(12):
                await peer.send("plain", b"%d" % number)
            await peer.ask(pull_request("plain", 0))  # makes the group
            await peer.ask(heartbeat("one", "CG", subscription("plain", version=0)))
            alone = list[Command]()
            monkeypatch.setattr(
                broker.parts.pull._pulls, "pull", lambda _channel, request: alone.append(request)
            )
            requests = [
                numbered(pull_request("plain", offset, expression=None), number)
                for number, offset in enumerate((0, 4, 8), 1)
            ]
            requests[0].ext_fields |= {"sysFlag": "1", "commitOffset": "3"}
            answers = [
                decode_frame(each[4:]) for each in (await exchange(broker, [requests])).values()
            ]
            bodies = [each.body for answer in answers for each in decode_messages(answer.body)]
            assert bodies == [b"%d" % number for number in range(12)]
            assert not alone
            assert broker.core.offsets.query("CG", "plain", 0) == 3


async def test_pulls_of_a_queue_are_checked_once_and_end_before_what_finds_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(60):
        async with open_broker(**FEW) as (broker, peer):
            for number in range(10):
                await peer.send("plain", b"%d" % number)
            await peer.ask(pull_request("plain", 0))  # makes the group
            pulls, checked = broker.parts.pull._pulls, list[int]()
            check = pulls._check_topic

            def watch(*given: Any) -> Any:
                checked.append(1)
                return check(*given)

            monkeypatch.setattr(pulls, "_check_topic", watch)
            requests = [
                numbered(pull_request("plain", offset), number)
                for number, offset in enumerate((0, 4, 8, 10), 1)
            ]
            answers = [
                decode_frame(each[4:]) for each in (await exchange(broker, [requests])).values()
            ]
            assert [answer.code for answer in answers] == [0, 0, 0, ResponseCode.PULL_NOT_FOUND]
            bodies = [each.body for answer in answers[:3] for each in decode_messages(answer.body)]
            assert bodies == [b"%d" % number for number in range(10)]
            assert len(checked) == 2  # the last one was served alone
            monkeypatch.setattr(plain_pulls, "RUN_BYTES", 1)  # one at a time
            again = await exchange(broker, [requests])
            assert [decode_frame(each[4:]).code for each in again.values()] == [0, 0, 0, 19]
            assert len(checked) == 6
