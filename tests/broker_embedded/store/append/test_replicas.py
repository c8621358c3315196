"""When a message has enough copies."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.append.replicas import InSyncRules, Replica, Replicas
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.errors import ConfigurationError


def _replicas(rules: InSyncRules, *acknowledged: int) -> tuple[Replicas, list[Replica]]:
    replicas = Replicas(rules)
    slaves = [Replica(f"slave{number}") for number in range(len(acknowledged))]
    for slave, position in zip(slaves, acknowledged, strict=True):
        replicas.add(slave)
        replicas.acknowledge(slave, position)
    return replicas, slaves


@pytest.mark.parametrize(
    ("rules", "in_sync", "needed", "enough"),
    [
        (InSyncRules(), 1, 1, True),
        (InSyncRules(2), 1, 2, True),
        (InSyncRules(3, 2), 1, 3, False),
        (InSyncRules(3, 2), 2, 3, True),
        (InSyncRules(3, 1, auto=True), 1, 1, True),
        (InSyncRules(3, 2, auto=True), 1, 2, False),
        (InSyncRules(3, 1, auto=True), 2, 2, True),
        (InSyncRules(3, 1, auto=True), 5, 3, True),
        (InSyncRules(1, 1, all_ack=True), 3, 3, True),
        (InSyncRules(1, 1, all_ack=True), 1, 1, True),
    ],
)
def test_how_many_copies_a_message_needs(
    rules: InSyncRules, in_sync: int, needed: int, enough: bool
) -> None:
    assert rules.needed(in_sync) == needed
    assert rules.enough(in_sync) == enough


def test_the_default_waits_for_nobody() -> None:
    assert InSyncRules.of(StoreConfig()).trivial
    assert not InSyncRules.of(StoreConfig(total_replicas=2, in_sync_replicas=2)).trivial


@pytest.mark.parametrize("numbers", [(1, 2, 1), (2, 1, 2), (1, 1, 2)])
def test_numbers_of_replicas_that_contradict_each_other_are_refused(
    numbers: tuple[int, int, int],
) -> None:
    with pytest.raises(ConfigurationError, match="minInSyncReplicas"):
        StoreConfig(
            total_replicas=numbers[0], in_sync_replicas=numbers[1], min_in_sync_replicas=numbers[2]
        ).check_replicas()


def test_a_slave_too_far_behind_or_silent_is_not_in_sync() -> None:
    replicas, slaves = _replicas(InSyncRules(max_gap=500), 1000, 500)
    replicas.add(Replica("silent"))
    assert replicas.in_sync(1000) == 2
    assert replicas.in_sync(999) == 3
    assert replicas.in_sync(1500) == 1
    replicas.remove(slaves[0], 0.0)
    assert replicas.in_sync(999) == 2


async def test_a_message_waits_for_as_many_slaves_as_it_needs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    replicas, slaves = _replicas(InSyncRules(3), 10, 0)
    ended: list[tuple[int, bool]] = []

    async def wait(position: int) -> None:
        ended.append((position, await replicas.wait(position, 3)))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 5)
            await trio.sleep(0.1)
            assert not ended, "one slave alone is not enough"
            replicas.acknowledge(slaves[1], 5)
            await trio.sleep(0.1)
            assert ended == [(5, True)]
            nursery.start_soon(wait, 8)
            began = trio.current_time()
    assert ended == [(5, True), (8, False)]
    assert trio.current_time() - began == pytest.approx(3)


async def test_what_a_slave_acknowledged_stays_so_when_it_is_gone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    replicas, (slave,) = _replicas(InSyncRules(2), 10)
    assert await replicas.wait(10, 1)
    replicas.remove(slave, 0.0)
    assert await replicas.wait(10, 1)
    assert not await replicas.wait(11, 1)
    assert replicas.most_acknowledged == 10
