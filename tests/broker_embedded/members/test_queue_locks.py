"""Locks of queues, by steps of random clients against a plain model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.members.queue_locks import QueueLocks
from rocketmq_sdk.model.queue import MessageQueue
from support.administration import FixedClock

QUEUES = [MessageQueue("t", "broker-a", queue_id) for queue_id in range(3)]


def test_one_owner_for_sixty_seconds() -> None:
    clock = FixedClock()
    locks = QueueLocks(clock)
    assert locks.lock("g", QUEUES, "one") == QUEUES
    assert locks.lock("g", QUEUES[:2], "two") == []
    assert locks.lock("other group", QUEUES[:2], "two") == QUEUES[:2]
    clock.time_ms += 59_000
    assert locks.lock("g", QUEUES[:1], "one") == QUEUES[:1]
    clock.time_ms += 2_000
    assert locks.lock("g", QUEUES, "two") == QUEUES[1:]
    assert locks.any_alive("g")
    assert not locks.any_alive("nobody")


def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks(FixedClock())
    locks.lock("g", QUEUES, "one")
    locks.unlock("g", QUEUES, "two")
    assert locks.owner("g", QUEUES[0]) == "one"
    locks.unlock("g", QUEUES, "one")
    assert locks.owner("g", QUEUES[0]) is None
    assert not locks.any_alive("g")


STEP = st.tuples(
    st.sampled_from(["lock", "unlock", "wait", "expire"]),
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.integers(1, 90),
)


@settings(deadline=None, max_examples=80)
@given(st.lists(STEP, max_size=40))
def test_against_a_model(steps: list[tuple[str, str, int, int]]) -> None:
    clock = FixedClock()
    locks = QueueLocks(clock)
    model: dict[int, tuple[str, int]] = {}
    for step, client, queue_id, seconds in steps:
        queue = QUEUES[queue_id]
        if step == "lock":
            owner = model.get(queue_id)
            granted = owner is None or owner[0] == client or clock.time_ms - owner[1] > 60_000
            assert locks.lock("g", [queue], client) == ([queue] if granted else [])
            if granted:
                model[queue_id] = (client, clock.time_ms)
        elif step == "unlock":
            locks.unlock("g", [queue], client)
            if queue_id in model and model[queue_id][0] == client:
                del model[queue_id]
        elif step == "wait":
            clock.time_ms += seconds * 1000
        else:
            locks.expire()
        alive = {number for number, (_, since) in model.items() if clock.time_ms - since <= 60_000}
        assert locks.any_alive("g") == bool(alive)
        assert {number for number in range(3) if locks.owner("g", QUEUES[number])} == alive
