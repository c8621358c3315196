"""Producers: a connection that ends leaves all its groups, and what that costs."""

from __future__ import annotations

import sys

from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
from rocketmq_sdk.broker_embedded.members.producers import ProducerManager
from support.administration import FakeChannel, FixedClock


def joined(producers: ProducerManager, name: str, groups: list[str]) -> FakeChannel:
    """A new connection in groups."""
    clock, channel = FixedClock(), FakeChannel()
    for group in groups:
        client = ClientChannel(channel, name, None, 500, clock.monotonic(), clock.now_ms())
        producers.register(group, channel, client)
    return channel


def test_a_client_is_known_until_it_left_its_last_group() -> None:
    producers = ProducerManager(FixedClock())
    one = joined(producers, "one", ["a", "b"])
    two = joined(producers, "two", ["b"])
    producers.unregister("a", one)
    producers.unregister("a", one)
    producers.unregister("c", one)
    assert producers.channel_of("one") is one
    assert producers.members("a") == []
    producers.unregister("b", one)
    assert producers.channel_of("one") is None
    assert [client.client_id for client in producers.members("b")] == ["two"]
    producers.channel_closed(one)
    producers.channel_closed(two)
    assert producers.channel_of("two") is None
    assert producers.all() == {}


def _steps_to_close(groups: int) -> int:
    """Lines of code that run while four connections of many groups each end."""
    producers = ProducerManager(FixedClock())
    channels = [
        joined(producers, str(part), [f"{part}-{number}" for number in range(groups)])
        for part in range(4)
    ]
    steps = 0

    def step(_frame: object, event: str, _argument: object) -> object:
        nonlocal steps
        steps += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)  # type: ignore[arg-type]
    try:
        for channel in channels:
            producers.channel_closed(channel)
    finally:
        sys.settrace(before)
    assert producers.all() == {}
    return steps


def test_closing_costs_as_much_for_each_of_many_groups_as_for_few() -> None:
    assert 0 < _steps_to_close(1600) <= _steps_to_close(100) * 16
