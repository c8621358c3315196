"""Pop, ack, change of the invisible time and revival in an embedded broker, in virtual
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import (
    InvalidParameterError,
    MessageIllegalError,
    NotFoundError,
    TopicNotFoundError,
)
from rocketmq_sdk.model.enums import PopStatus
from rocketmq_sdk.model.properties import FIRST_POP_TIME, ORIGIN_GROUP
from rocketmq_sdk.names import REVIVE_GROUP
from support.broker import open_broker, open_on
from support.popping import Popper, make_topic

if TYPE_CHECKING:
    from trio.testing import MockClock

MERGE = [
    pytest.param({}, id="stored"),
    pytest.param({"enable_pop_buffer_merge": True}, id="merged"),
]


@pytest.mark.parametrize("settings", MERGE)
async def test_a_pop_takes_messages_of_all_queues_and_none_twice(
    autojump_clock: MockClock, settings: dict[str, bool]
) -> None:
    async with open_broker(**settings) as (_broker, peer):
        await make_topic(peer, "T", 4)
        for number in range(10):
            await peer.send("T", b"%d" % number, queue_id=number % 4)
        popper = Popper(peer, "T")
        first = await popper.pop(max_msg_nums=6)
        assert (len(first.messages), first.rest_count) == (6, 4)
        second = await popper.bodies()
        assert sorted([message.body for message in first.messages] + second) == [
            b"%d" % number for number in range(10)
        ]
        assert (await popper.pop()).status is PopStatus.POLLING_NOT_FOUND


@pytest.mark.parametrize("settings", MERGE)
async def test_what_is_not_acknowledged_comes_again_after_its_time(
    autojump_clock: MockClock, settings: dict[str, bool]
) -> None:
    async with open_broker(**settings) as (broker, peer):
        await make_topic(peer, "T", 2)
        for number in range(5):
            await peer.send("T", b"%d" % number, queue_id=number % 2, tag="A")
        popper = Popper(peer, "T")
        popped = await popper.pop(invisible_time=30_000)
        for message, handle in zip(popped.messages, popped.handles, strict=True):
            if message.body != b"3":
                await popper.ack(handle)
        await trio.sleep(29.5)
        assert await popper.bodies() == []
        await trio.sleep(3)
        again = await popper.pop()
        assert [message.body for message in again.messages] == [b"3"]
        message, handle = again.messages[0], again.handles[0]
        assert (message.topic, message.tags, message.reconsume_times, handle.kind) == (
            "T",
            "A",
            1,
            "1",
        )
        assert message.properties[ORIGIN_GROUP] == "PopGroup"
        assert int(message.properties[FIRST_POP_TIME]) == popped.pop_time
        await popper.ack(handle)
        await trio.sleep(60)
        assert await popper.bodies() == []
        assert broker.core.offsets.query("PopGroup", "%RETRY%PopGroup_T", 0) == 1
        topic = broker.parts.pop.state.records.topic
        assert any(
            broker.core.offsets.query(REVIVE_GROUP, topic, queue_id) >= 0 for queue_id in range(8)
        )


async def test_a_message_goes_round_with_one_attempt_more_each_time_and_one_copy(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"poison")
        popper = Popper(peer, "T")
        for attempt in range(6):
            popped = await popper.pop(invisible_time=5_000, poll_time=20_000)
            assert [message.reconsume_times for message in popped.messages] == [attempt]
        assert broker.core.store.max_offset("%RETRY%PopGroup_T", 0) == 5


async def test_a_suspended_message_comes_again_without_counting_an_attempt(
    autojump_clock: MockClock,
) -> None:
    """As a 5.5 proxy asks for with `suspend`."""
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        popper = Popper(peer, "T")
        [handle] = (await popper.pop()).handles
        for suspend, attempts in (("true", 0), ("true", 0), ("false", 1), ("true", 1)):
            answer = await peer.ask(
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                consumerGroup="PopGroup",
                topic=handle.real_topic("T", "PopGroup"),
                queueId=handle.queue_id,
                extraInfo=str(handle),
                offset=handle.offset,
                invisibleTime=3000,
                suspend=suspend,
            )
            assert answer.code == 0
            await trio.sleep(5)
            popped = await popper.pop()
            assert [message.reconsume_times for message in popped.messages] == [attempts]
            [handle] = popped.handles
        assert broker.store.max_offset("%RETRY%PopGroup_T", 0) == 4


async def test_what_was_lent_to_a_group_that_is_gone_is_dropped(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        await Popper(peer, "T").pop()
        broker.core.groups.delete("PopGroup")
        end = broker.store.max_offset("T", 0)
        await trio.sleep(60)
        assert broker.core.groups.find_existing("PopGroup") is None
        assert broker.store.max_offset("%RETRY%PopGroup_T", 0) == 0
        assert broker.store.max_offset("T", 0) == end


@pytest.mark.parametrize("settings", MERGE)
async def test_batch_acks_end_what_they_name(
    autojump_clock: MockClock, settings: dict[str, bool]
) -> None:
    async with open_broker(**settings) as (_broker, peer):
        await make_topic(peer, "T", 3)
        for number in range(30):
            await peer.send("T", b"%02d" % number, queue_id=number % 3)
        popper = Popper(peer, "T")
        popped = await popper.pop(invisible_time=20_000)
        await popper.ack_all(
            [
                handle
                for message, handle in zip(popped.messages, popped.handles, strict=True)
                if message.body >= b"07"
            ]
        )
        await trio.sleep(25)
        assert await popper.bodies() == [b"%02d" % number for number in range(7)]


@pytest.mark.parametrize("settings", MERGE)
async def test_a_changed_invisible_time_counts_from_the_call_and_replaces_the_handle(
    autojump_clock: MockClock, settings: dict[str, bool]
) -> None:
    async with open_broker(**settings) as (_broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"long")
        await peer.send("T", b"short")
        popper = Popper(peer, "T")
        popped = await popper.pop(invisible_time=20_000)
        longer = await popper.change(popped.handles[0], 100_000)
        await popper.change(popped.handles[1], 3_000)
        await trio.sleep(5)
        again = await popper.pop(invisible_time=500_000)
        assert [message.body for message in again.messages] == [b"short"]
        await popper.ack(popped.handles[0])  # the replaced handle means nothing any more
        await trio.sleep(90)
        assert await popper.bodies() == []
        await trio.sleep(10)
        assert await popper.bodies() == [b"long"]
        await popper.ack(longer)  # late, and taken all the same


async def test_an_ack_with_the_new_handle_ends_the_message(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await peer.send("T", b"x")
        popper = Popper(peer, "T")
        popped = await popper.pop()
        handle = await popper.change(popped.handles[0], 30_000)
        await popper.ack(await popper.change(handle, 40_000))
        await trio.sleep(120)
        assert await popper.bodies() == []


async def test_with_merging_nothing_is_written_for_pops_that_are_acknowledged_soon(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(enable_pop_buffer_merge=True) as (broker, peer):
        await make_topic(peer, "T", 1)
        for number in range(4):
            await peer.send("T", b"%d" % number)
        popper = Popper(peer, "T")
        popped = await popper.pop(max_msg_nums=2)
        later = await popper.pop()
        await popper.ack_all(later.handles)
        assert broker.core.offsets.query("PopGroup", "T", 0) == 0  # the first pop is still open
        await popper.ack_all(popped.handles)
        assert broker.core.offsets.query("PopGroup", "T", 0) == 4
        await trio.sleep(60)
        assert (broker.parts.pop.state.records.written, len(broker.parts.pop.state.buffer)) == (
            0,
            0,
        )
        assert await popper.bodies() == []


async def test_with_merging_a_checkpoint_is_stored_after_ten_seconds_with_its_acks(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(enable_pop_buffer_merge=True) as (broker, peer):
        await make_topic(peer, "T", 1)
        for number in range(3):
            await peer.send("T", b"%d" % number)
        popper = Popper(peer, "T")
        popped = await popper.pop(invisible_time=60_000)
        await popper.ack(popped.handles[1])
        await trio.sleep(9)
        assert broker.parts.pop.state.records.written == 0
        await trio.sleep(2)
        assert (
            broker.parts.pop.state.records.written,
            len(broker.parts.pop.state.buffer),
            broker.core.offsets.query("PopGroup", "T", 0),
        ) == (1, 0, 3)
        await popper.ack(popped.handles[0])
        assert broker.parts.pop.state.records.written == 2
        await trio.sleep(60)
        assert await popper.bodies() == [b"2"]


async def test_a_pop_waits_and_is_woken_by_a_message_that_matches(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 4)
        popper = Popper(peer, "T")
        got: list[tuple[float, list[bytes]]] = []
        began = trio.current_time()

        async def wait(**fields: object) -> None:
            bodies = await popper.bodies(poll_time=20_000, **fields)
            got.append((round(trio.current_time() - began, 1), bodies))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: wait(exp="B"))
            await trio.sleep(2)
            assert await popper.waiting() == 1
            await peer.send("T", b"a", queue_id=2, tag="A")
            await trio.sleep(2)
            assert got == []
            await peer.send("T", b"b", queue_id=3, tag="B")
        assert got == [(4.0, [b"b"])]
        assert await popper.bodies(poll_time=3_000) == []
        assert round(trio.current_time() - began, 1) == 7.0


async def test_waiting_pops_are_served_in_turns(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 2)
        popper = Popper(peer, "T")
        served: list[tuple[int, list[bytes]]] = []

        async def wait(number: int) -> None:
            served.append((number, await popper.bodies(poll_time=20_000)))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(wait, number)
                await trio.sleep(0.1)
            for number in range(3):
                await peer.send("T", b"%d" % number, queue_id=number % 2)
                await trio.sleep(0.1)
        assert served == [(0, [b"0"]), (1, [b"1"]), (2, [b"2"])]


async def test_a_revived_message_wakes_a_waiting_pop(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        popper = Popper(peer, "T")
        began = trio.current_time()
        await popper.pop(invisible_time=5_000)
        assert await popper.bodies(poll_time=30_000) == [b"x"]
        assert trio.current_time() - began < 7.5


async def test_another_group_gets_the_message_too(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await peer.send("T", b"x")
        assert await Popper(peer, "T", "G1").bodies() == [b"x"]
        assert await Popper(peer, "T", "G2").bodies() == [b"x"]


async def test_a_group_without_a_position_begins_where_it_asks_for(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(init_pop_offset_by_check_msg_in_mem=False) as (_broker, peer):
        for number in range(5):
            await peer.send("T", b"%d" % number)
        assert await Popper(peer, "T", "Last").bodies(queue_id=0, init_mode=1) == [b"4"]
        assert await Popper(peer, "T", "First").bodies(queue_id=0, init_mode=0) == [
            b"%d" % number for number in range(5)
        ]
    async with open_broker() as (_broker, peer):
        for number in range(5):
            await peer.send("T", b"%d" % number)
        assert len(await Popper(peer, "T", "Last").bodies(queue_id=0, init_mode=1)) == 5


async def test_retry_topics_of_the_second_generation_are_written_and_both_are_read(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(enable_retry_topic_v2=True) as (broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        popper = Popper(peer, "T")
        await popper.pop(invisible_time=3_000)
        again = await popper.pop(poll_time=20_000, invisible_time=3_000)
        assert [(handle.kind, handle.real_topic("T", "PopGroup")) for handle in again.handles] == [
            ("2", "%RETRY%PopGroup+T")
        ]
        again = await popper.pop(poll_time=20_000)
        assert [message.reconsume_times for message in again.messages] == [2]
        await popper.ack(again.handles[0])
        assert broker.core.topics.get("%RETRY%PopGroup_T") is None


async def test_actual_retry_topics_in_answers_are_understood(autojump_clock: MockClock) -> None:
    async with open_broker(pop_response_return_actual_retry_topic=True) as (_broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        popper = Popper(peer, "T")
        await popper.pop(invisible_time=3_000)
        again = await popper.pop(poll_time=20_000)
        assert (again.messages[0].topic, again.handles[0].kind) == ("T", "1")
        await popper.ack(again.handles[0])
        await trio.sleep(30)
        assert await popper.bodies() == []


async def test_a_retry_without_room_for_a_handle_is_still_popped(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x", properties=f"k\x01{'v' * 32_600}\x02")
        popper = Popper(peer, "T")
        await popper.pop(invisible_time=3_000)
        again = await popper.pop(poll_time=20_000)
        assert [
            (message.topic, handle.kind)
            for message, handle in zip(again.messages, again.handles, strict=True)
        ] == [("T", "1")]
        await popper.ack(again.handles[0])
        await trio.sleep(30)
        assert await popper.bodies() == []


async def test_a_reset_offset_is_where_the_next_pop_begins(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        for number in range(5):
            await peer.send("T", b"%d" % number)
        popper = Popper(peer, "T")
        await popper.ack_all((await popper.pop()).handles)
        broker.core.offsets.assign_reset("PopGroup", "T", 0, 3)
        assert await popper.bodies() == [b"3", b"4"]
        assert await popper.bodies() == []


async def test_what_cannot_be_popped_is_refused_as_apache_refuses_it(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 2)
        popper = Popper(peer, "T")
        with pytest.raises(InvalidParameterError, match="greater than 32"):
            await popper.pop(max_msg_nums=33)
        with pytest.raises(TopicNotFoundError):
            await popper.pop(topic="Nowhere")
        with pytest.raises(InvalidParameterError, match="readQueueNums"):
            await popper.pop(queue_id=2)
        with pytest.raises(InvalidParameterError, match="timerMaxDelaySec"):
            await popper.pop(invisible_time=259_200_001)
        late = await popper.pop(born_time=1_000, poll_time=100)
        assert late.status is PopStatus.POLLING_NOT_FOUND
        await peer.send("T", b"x")
        popped = await popper.pop(invisible_time=259_200_000)
        assert len(popped.messages) == 1


async def test_bad_acks_are_refused_as_apache_refuses_them(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        popper = Popper(peer, "T")
        handle = (await popper.pop()).handles[0]
        for text, error in (
            ("0 1 2 0 0 broker-a 0 9", NotFoundError),
            ("0 1 2 0 0 broker-a 7 0", MessageIllegalError),
            ("0 1 2 77 0 broker-a 0 0", MessageIllegalError),
            ("0 1 2 0 1 broker-a 0 0", TopicNotFoundError),
        ):
            with pytest.raises(error):
                await popper.ack(type(handle).parse(text))
        with pytest.raises(NotFoundError):
            await popper.change(type(handle).parse("0 1 2 0 0 broker-a 0 1"), 5)
        answer = await peer.ask(RequestCode.BATCH_ACK_MESSAGE)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        await popper.ack(handle)


async def test_peek_looks_without_taking(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 1)
        fields: dict[str, Any] = {
            "topic": "T",
            "consumerGroup": "PopGroup",
            "queueId": -1,
            "maxMsgNums": 10,
        }
        assert (
            await peer.ask(RequestCode.PEEK_MESSAGE, **fields)
        ).code == ResponseCode.PULL_NOT_FOUND
        for number in range(3):
            await peer.send("T", b"%d" % number)
        for _ in range(2):
            answer = await peer.ask(RequestCode.PEEK_MESSAGE, **fields)
            assert (answer.code, answer.ext_fields["restNum"]) == (0, "3")
        assert len(await Popper(peer, "T").bodies()) == 3


async def test_notifications_tell_of_messages_and_retries(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await make_topic(peer, "T", 2)
        popper = Popper(peer, "T")
        assert not await popper.has_messages()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def ask() -> None:
                assert await popper.has_messages(hold=10)
                assert trio.current_time() - began == pytest.approx(3)

            await trio.sleep(3)
            await peer.send("T", b"x", queue_id=1)
        assert await popper.has_messages(queue_id=1)
        assert not await popper.has_messages(queue_id=0)
        await popper.pop(invisible_time=4_000)
        assert not await popper.has_messages(hold=1)
        assert await popper.has_messages(hold=10)


async def test_a_clean_stop_hands_nothing_out_twice(
    autojump_clock: MockClock,
) -> None:
    for settings in ({}, {"enable_pop_buffer_merge": True}):
        files = MemoryFileSystem(write_through=True)
        async with open_on(files, **settings) as (_broker, peer):
            await make_topic(peer, "T", 2)
            for number in range(6):
                await peer.send("T", b"%d" % number, queue_id=number % 2)
            popper = Popper(peer, "T")
            popped = await popper.pop(max_msg_nums=4, invisible_time=30_000)
            await popper.ack(popped.handles[0])
        async with open_on(files, **settings) as (_broker, peer):
            popper = Popper(peer, "T")
            rest = await popper.bodies(invisible_time=600_000)
            assert len(rest) == 2
            await trio.sleep(28)
            assert await popper.bodies() == []
            await popper.ack(popped.handles[1])
            await trio.sleep(5)
            again = await popper.bodies()
            assert again == sorted(message.body for message in popped.messages[2:])
