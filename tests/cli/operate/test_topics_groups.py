"""Commands for topics and groups: what they change, and what they print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import ConfigurationError, GroupNotFoundError, TopicNotFoundError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from support.command_line import Shell, shell
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


async def test_topics_are_made_listed_and_deleted(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await sh.run("updateTopic", "-t", "bills", "-r", "3", "-w", "2", "-p", "4")
        assert await sh.rows("topicList") == [{"topic": "bills"}, {"topic": "orders"}]
        assert (await sh.run("topicList")).lines == ["topic", "bills", "orders"]
        assert await sh.rows("topicList", "-c") == [
            {"cluster": "DefaultCluster", "topic": "bills"},
            {"cluster": "DefaultCluster", "topic": "orders"},
        ]
        [route] = await sh.rows("topicRoute", "-t", "bills")
        assert (route["readQueues"], route["writeQueues"], route["perm"]) == (3, 2, 4)
        await sh.run("updateTopicPerm", "-t", "bills", "-p", "6")
        [route] = await sh.rows("topicRoute", "-t", "bills")
        assert (route["readQueues"], route["writeQueues"], route["perm"]) == (3, 2, 6)
        for existed in (True, False):
            [done] = await sh.rows("deleteTopic", "-t", "bills")
            assert (done["topic"], done["existed"]) == ("bills", existed)
            assert done["done"].startswith("there was no") is not existed
        assert await sh.rows("topicList") == [{"topic": "orders"}]
        with pytest.raises(TopicNotFoundError):
            await sh.run("updateTopicPerm", "-t", "bills", "-p", "6")


async def test_a_permission_keeps_the_attributes_of_a_topic(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await sh.run("updateTopic", "-t", "fifo", "-a", "+message.type=FIFO")
        await sh.run("updateTopicPerm", "-t", "fifo", "-p", "4")
        config = sh.broker.core.topics.get("fifo")
        assert config is not None
        assert (config.perm, config.attributes) == (4, {"message.type": "FIFO"})
        with pytest.raises(ConfigurationError, match="neither"):
            await sh.run("updateTopic", "-t", "fifo", "-a", "message.type=FIFO")


async def test_the_ends_of_queues(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await sh.producer.send(Message("orders", b"x"))
        rows = await sh.rows("topicStatus", "-t", "orders")
        assert [row["queue"] for row in rows] == [0, 1]
        assert sum(row["maxOffset"] for row in rows) == 1
        assert sum(row["lastUpdated"] is not None for row in rows) == 1
        table = (await sh.run("topicStatus", "-t", "orders")).lines
        assert len({line.index(line.split()[1]) + len(line.split()[1]) for line in table}) == 1


async def consume(sh: Shell, group: str, messages: int) -> None:
    taken: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        taken.append(message)

    async with PushConsumer(
        group,
        namesrv=sh.broker,
        subscriptions={"orders": "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await until(lambda: len(taken) == messages)
        [member] = await sh.rows("consumerConnection", "-g", group)
        assert member["language"] == "PYTHON"
        assert (await sh.rows("lag", group))[0]["members"] == 1


async def test_progress_lag_and_its_limit(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        for number in range(4):
            await sh.producer.send(Message("orders", b"%d" % number))
        await consume(sh, "billing", 4)
        for number in range(3):
            await sh.producer.send(Message("orders", b"%d" % number))
        rows = await sh.rows("consumerProgress", "-g", "billing", "-t", "orders")
        assert sum(row["lag"] for row in rows) == 3
        assert sum(row["consumerOffset"] for row in rows) == 4
        assert [(row["group"], row["lag"]) for row in await sh.rows("consumerProgress")] == [
            ("billing", 3)
        ]
        assert (await sh.run("lag", "--fail-above", "3")).code == 0
        assert (await sh.run("lag", "--fail-above", "2")).code == 1
        assert (await sh.run("lag", "billing", "--fail-above", "2")).code == 1
        with pytest.raises(GroupNotFoundError):
            await sh.run("lag", "nobody")


async def test_lag_is_watched(autojump_clock: MockClock, capsys: object) -> None:
    async with shell() as sh:
        await sh.run("updateSubGroup", "-g", "billing")
        start = trio.current_time()
        with trio.move_on_after(10.5):
            await sh.run("lag", "--watch", "2", "--json")
        assert trio.current_time() - start == pytest.approx(10.5)


async def test_offsets_are_reset_skipped_and_cloned(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        for number in range(4):
            await sh.producer.send(Message("orders", b"%d" % number))
        await consume(sh, "billing", 4)

        async def lag(group: str) -> int:
            return int((await sh.rows("lag", group))[0]["lag"])

        rows = await sh.rows("resetOffsetByTime", "-g", "billing", "-t", "orders", "-s", "0")
        assert [row["offset"] for row in rows] == [0, 0]
        assert await lag("billing") == 4
        place = ("-b", "broker-a", "-q", "1", "-o", "1")
        await sh.run("resetOffsetByTime", "-g", "billing", "-t", "orders", *place)
        assert await lag("billing") == 3
        await sh.run("updateSubGroup", "-g", "copy")
        await sh.run("cloneGroupOffset", "-s", "billing", "-d", "copy", "-t", "orders")
        assert await lag("copy") == 3
        with pytest.raises(GroupNotFoundError):
            await sh.run("cloneGroupOffset", "-s", "nope", "-d", "copy", "-t", "orders")
        with pytest.raises(ConfigurationError, match="same group"):
            await sh.run("cloneGroupOffset", "-s", "copy", "-d", "copy", "-t", "orders")
        await sh.run("skipAccumulatedMessage", "-g", "billing", "-t", "orders")
        assert await lag("billing") == 0
        assert await lag("copy") == 3


@pytest.mark.parametrize(
    "arguments",
    [[], ["-s", "0", "-o", "1"], ["-o", "1"], ["-o", "1", "-q", "0"], ["-s", "0", "-q", "1"]],
)
async def test_a_reset_that_is_not_clear_is_refused(
    arguments: list[str], autojump_clock: MockClock
) -> None:
    async with shell() as sh:
        with pytest.raises(ConfigurationError):
            await sh.run("resetOffsetByTime", "-g", "billing", "-t", "orders", *arguments)


async def test_producers_that_are_connected(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        nobody = await sh.run("producerConnection", "-g", "shop", "-t", "orders")
        assert nobody.code == 1
        await sh.producer.send(Message("orders", b"x"))
        [row] = await sh.rows("producerConnection", "-g", "shop", "-t", "orders")
        assert row["language"] == "PYTHON"


async def test_how_much_a_topic_takes_and_gives(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        [row] = await sh.rows("statsAll", "-t", "orders")
        assert (row["group"], row["inDay"]) == (None, 0)
        await sh.producer.send(Message("orders", b"x"))
        await consume(sh, "billing", 1)
        await trio.sleep(30)
        [row] = await sh.rows("statsAll")
        assert (row["topic"], row["group"]) == ("orders", "billing")
        assert (row["inDay"], row["outDay"]) == (1, 1)
        with pytest.raises(TopicNotFoundError):
            await sh.run("statsAll", "-t", "nope")


async def test_texts_at_the_name_server(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await sh.run("updateKvConfig", "-s", "NS", "-k", "a", "-v", "b")
        assert await sh.rows("getKvConfig", "-s", "NS") == [{"key": "a", "value": "b"}]
        await sh.run("deleteKvConfig", "-s", "NS", "-k", "a")
        for space in ("NS", "nope"):
            again = await sh.run("deleteKvConfig", "-s", space, "-k", "a")
            assert again.lines == [f"a in {space} was not there"]
        assert (await sh.run("getKvConfig", "-s", "NS")).lines == []


async def test_groups_are_made_changed_and_deleted(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await sh.run("updateSubGroup", "-g", "billing", "-r", "3", "-s", "false")
        await sh.run("updateSubGroup", "-g", "billing", "-q", "2")
        config = sh.broker.core.groups.find_existing("billing")
        assert config is not None
        # What is not said stays as it was.
        assert (config.retry_max_times, config.retry_queue_nums) == (3, 2)
        assert not config.consume_enable
        assert await sh.rows("groupList") == [{"group": "billing"}]
        await sh.run("deleteSubGroup", "-g", "billing")
        assert await sh.rows("groupList") == []
        with pytest.raises(ConfigurationError):
            await sh.run("updateSubGroup", "-g", "no such name")
