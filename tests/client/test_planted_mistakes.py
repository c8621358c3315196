"""The model of random lives finds mistakes that are planted into the clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.consumer.group.rebalance import Rebalancer
from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
from support.lives_model import run_life

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.consumer.group.owned_queue import OwnedQueue
    from support.lives_model import Step, World

PRODUCER: dict[str, Any] = {}
SEEDS = 5
"""Lives that are tried: the order of sets of names differs between processes, so that
one life does not always show a mistake.
"""


async def cut_off(world: World) -> None:
    """A member is cut off for a minute; the other one goes on with its queues."""
    member = world.members[0]
    member.switch.cut()
    await trio.sleep(20)
    for _ in range(2):
        await world.send("send", 8, 0)
    await trio.sleep(40)
    member.switch.connect(world.cluster.source(member.host))
    await trio.sleep(60)


def script(kind: str) -> list[Step]:
    """Two members share the queues, then one is cut off and comes back."""
    return [
        lambda world: world.join(kind, False),
        lambda world: world.join(kind, False),
        lambda world: world.wait(40),
        lambda world: world.send("send", 8, 0),
        lambda world: world.send("send", 8, 0),
        lambda world: world.wait(20),
        cut_off,
        lambda world: world.send("send", 8, 0),
        lambda world: world.wait(10),
    ]


async def commits_late(self: Rebalancer, owned: OwnedQueue) -> None:
    """A former owner commits what it has done, whoever owns the queue by now."""
    await self._context.offsets.commit(
        owned.queue, owned.process_queue.commit_offset, confirmed=True
    )


def passes_by(self: ProcessQueue) -> int:
    """What is taken counts as done."""
    return self.pending[0].offset if self.pending else self.next_offset


PLANTED: list[tuple[type, str, object, str, str]] = [
    (Rebalancer, "_commit_last", commits_late, "push", "went back from"),
    (ProcessQueue, "commit_offset", property(passes_by), "push", "is not finished"),
    (Rebalancer, "_commit_last", commits_late, "lite", "went back from"),
]


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_without_a_mistake_nothing_is_found(kind: str) -> None:
    assert run_life(script(kind), ordered=False, producer=PRODUCER) == []


@pytest.mark.parametrize(
    ("owner", "name", "mistake", "kind", "found"),
    PLANTED,
    ids=["commits late", "passes by", "commits late, lite"],
)
def test_a_planted_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    mistake: Callable[..., object],
    kind: str,
    found: str,
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    seen: list[str] = []
    for seed in range(SEEDS):
        seen += run_life(script(kind), ordered=False, producer=PRODUCER, seed=seed)
        if any(found in problem for problem in seen):
            return
    pytest.fail(f"in {SEEDS} lives only {seen}")
