"""A slave's calls to its master: tables in parts, and masters that do not keep their
word.
"""

from __future__ import annotations

import pytest
import trio.testing

from rocketmq_sdk import EmbeddedBroker
from rocketmq_sdk.broker_embedded.replication import master_calls as calls
from rocketmq_sdk.errors import BrokerError, NotSupportedError, RemoteProtocolError
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketmq_sdk.protocol.command import Command
from support.broker import connect


class _Answers:
    """A master that answers by a list, and repeats the last answer."""

    def __init__(self, *answers: Command) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []

    async def call(self, address: str | None, command: Command, timeout: float) -> Command:
        self.asked.append(dict(command.ext_fields))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def _part(*names: str, total: int | None, version: int = 1) -> Command:
    wrapper = TopicConfigSerializeWrapper(
        {name: TopicConfig(name) for name in names}, DataVersion(0, version, version)
    )
    ext = {} if total is None else {"totalTopicNum": str(total)}
    return Command(0, flag=1, ext_fields=ext, body=wrapper.encode())


async def test_a_table_comes_in_as_many_parts_as_the_master_makes(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PAGE_SIZE", 7)
    async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
        peer = await connect(broker, nursery)
        for number in range(30):
            broker.core.topics.put(TopicConfig(f"topic{number}"))
            broker.core.groups.update(SubscriptionGroupConfig(f"group{number}"))

        class _Caller:
            count = 0

            async def call(self, address: str | None, command: Command, timeout: float) -> Command:
                self.count += 1
                return await peer.channel.call(command, timeout)

        caller = _Caller()
        topics = await calls.all_topics(caller, "master:1")
        assert topics.topic_config_table == broker.core.topics.all()
        assert topics.data_version == broker.core.topics.data_version
        assert caller.count > 5
        groups = await calls.all_groups(caller, "master:1")
        assert groups.subscription_group_table == broker.core.groups.all()
        nursery.cancel_scope.cancel()


async def test_a_whole_answer_without_a_total_is_taken_as_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers = _Answers(_part("a", "b", total=None))
    found = await calls.all_topics(answers, "master:1")
    assert set(found.topic_config_table) == {"a", "b"}
    assert answers.asked == [{"topicSeq": "0", "maxTopicNum": "2000"}]


async def test_a_master_that_repeats_a_page_does_not_keep_the_slave_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with trio.fail_after(10), pytest.raises(RemoteProtocolError, match="the same 1 again"):
        await calls.all_topics(_Answers(_part("a", total=5)), "master:1")


async def test_a_table_that_changes_between_its_parts_is_fetched_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers = _Answers(
        _part("a", total=2),
        _part("z", total=2, version=2),
        _part("y", total=2, version=2),
        _part("z", total=2, version=2),
    )
    found = await calls.all_topics(answers, "master:1")
    assert (set(found.topic_config_table), found.data_version) == ({"y", "z"}, DataVersion(0, 2, 2))
    with trio.fail_after(10), pytest.raises(RemoteProtocolError, match="again and again"):
        await calls.all_topics(
            _Answers(*(_part(str(number), total=50, version=number) for number in range(40))),
            "master:1",
        )


async def test_a_refusal_is_raised_by_its_code(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(NotSupportedError):
        await calls.all_offsets(_Answers(Command(3, flag=1, remark="no")), "master:1")
    with pytest.raises(BrokerError, match="broken"):
        await calls.delay_offsets(_Answers(Command(1, flag=1, remark="broken")), "master:1")
