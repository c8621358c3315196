"""Producers: a connection that ends leaves all its groups, and what that costs."""

from __future__ import annotations

import time

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


def _seconds_to_close(groups: int) -> float:
    producers = ProducerManager(FixedClock())
    channels = [
        joined(producers, str(part), [f"{part}-{number}" for number in range(groups)])
        for part in range(4)
    ]
    before = time.perf_counter()
    for channel in channels:
        producers.channel_closed(channel)
    elapsed = time.perf_counter() - before
    assert producers.all() == {}
    return elapsed


def test_closing_costs_as_much_for_each_of_many_groups_as_for_few() -> None:
    few = min(_seconds_to_close(500) for _ in range(3))
    many = min(_seconds_to_close(8000) for _ in range(3))
    assert many < few * 16 * 6
