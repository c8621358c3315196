"""Waiting for what the code under test does, with failures that say what was seen."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.errors import ClosedError, WrongTypeError
from rocketmq_sdk.testing.failures import WaitTimeoutError, checked_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.testing.observation import Observation
    from rocketmq_sdk.testing.traffic.request_faults import RequestFault

WITHIN: Final = 30.0
"""Seconds that a wait takes at most unless it is told otherwise."""
FIRST_STEP: Final = 0.002
LONGEST_STEP: Final = 0.25
"""Seconds between two looks, or a hundredth of the time that has passed."""


async def wait_until(
    condition: Callable[[], object], describe: Callable[[], str], what: str, within: float
) -> None:
    """Look again and again until a condition holds.

    Raises `WaitTimeoutError` with `what` was waited for and `describe` of what was
    there. What raises `ClosedError` does not hold.
    """
    checked_within(within)
    step, began = FIRST_STEP, trio.current_time()
    with trio.move_on_after(within):
        while not holds(condition):
            await trio.sleep(step)
            longest = max(LONGEST_STEP, (trio.current_time() - began) / 100)
            step = min(longest, step * 1.5)
        return
    if holds(condition):
        return
    try:
        found = describe()
    except ClosedError as error:
        found = str(error)
    raise WaitTimeoutError(f"waited {within:g} s for {what}, but {found}")


def checked_within(within: float) -> float:
    """A deadline in seconds, or infinity. Raises `ConfigurationError` for others."""
    return within if within == math.inf else checked_seconds("within", within, math.inf)


def holds(condition: Callable[[], object]) -> bool:
    """Whether a condition holds; what raises `ClosedError` does not.

    Raises `WrongTypeError` for an async function, which would seem to hold at once.
    """
    try:
        found = condition()
    except ClosedError:
        return False
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise WrongTypeError("a condition to wait for is a plain function, and this one is async")
    return bool(found)


class Waits:
    """`broker.wait`: each method returns once something holds.

    Otherwise it raises `WaitTimeoutError` after `within` seconds, of virtual time where
    the test runs in it; the text says what was there instead. A broker that is stopped
    meanwhile is waited for.
    """

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        """A look at what the broker holds now."""

    async def until(
        self, condition: Callable[[], object], what: str, *, within: float = WITHIN
    ) -> None:
        """Wait until a function of the test's own gives something true.

        `what` says in the failure what was waited for.
        """
        await wait_until(condition, lambda: self.seen.report(), what, within)

    async def stored(
        self, topic: str, count: int = 1, *, within: float = WITHIN
    ) -> list[ReceivedMessage]:
        """Until a topic holds at least so many messages; returns all that it holds."""
        await wait_until(
            lambda: self.seen.stored(topic) >= count,
            lambda: self.seen.describe_topic(topic),
            f"{count} messages in {topic!r}",
            within,
        )
        return self.seen.messages(topic)

    async def dead_letter(
        self, group: str, count: int = 1, *, within: float = WITHIN
    ) -> list[ReceivedMessage]:
        """Until a group has given up at least so many messages; returns all of them."""
        await wait_until(
            lambda: len(self.seen.dead_letters(group)) >= count,
            lambda: (
                f"there are {len(self.seen.dead_letters(group))}; {self.seen.describe_group(group)}"
            ),
            f"{count} dead letters of group {group!r}",
            within,
        )
        return self.seen.dead_letters(group)

    async def group(
        self, group: str, members: int = 1, *, quiet: float = 1.0, within: float = WITHIN
    ) -> list[str]:
        """Until a group has so many members and has shared its queues; their ids.

        It has, when for `quiet` seconds nobody came or went, and each queue that the
        group subscribes to was pulled last by a member. Groups that pop need only be
        quiet.
        """
        since = trio.current_time()
        last: tuple[object, object] | None = None

        def stable() -> bool:
            nonlocal since, last
            now = self.seen.members(group), self.seen.owners(group)
            if now != last:
                since, last = trio.current_time(), now
            here, owners = now
            return (
                len(here) == members
                and trio.current_time() - since >= quiet
                and set(owners.values()) <= set(here)
                and self._all_pulled(group, owners)
            )

        def describe() -> str:
            owners = ", ".join(
                f"{topic}/{queue}: {owner}"
                for (topic, queue), owner in sorted(self.seen.owners(group).items())
            )
            return f"{self.seen.describe_group(group)}; queues: {owners or 'nobody pulls'}"

        await wait_until(stable, describe, f"{members} members in group {group!r}", within)
        return self.seen.members(group)

    def _all_pulled(self, group: str, owners: Mapping[tuple[str, int], str]) -> bool:
        if not owners:  # it pops, or its members pull what they like
            return True
        return all(
            (topic, queue) in owners
            for topic in self.seen.subscriptions(group)
            for queue in self.seen.queues(topic)
        )

    async def lag(
        self, group: str, topic: str | None = None, *, most: int = 0, within: float = WITHIN
    ) -> None:
        """Until a group is at most so many messages behind, in a topic or in all.

        All are the topics that it subscribes to or has offsets in, and its retries. A
        group that nobody has joined yet is waited for, and so is a topic.
        """
        await wait_until(
            lambda: (
                self.seen.knows(group, topic) and sum(self.seen.lag(group, topic).values()) <= most
            ),
            lambda: self.seen.describe_group(group, topic),
            f"group {group!r} to be at most {most} behind",
            within,
        )

    async def committed(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int] | None = None,
        *,
        within: float = WITHIN,
    ) -> None:
        """Until a group has committed these offsets by queue, None for all ends."""

        def reached() -> bool:
            now = self.seen.committed(group, topic)
            if offsets is not None:
                return all(now.get(queue, -1) >= offset for queue, offset in offsets.items())
            ends = self.seen.queues(topic)
            return bool(ends) and all(now[queue] >= end for queue, (_, end) in ends.items() if end)

        await wait_until(
            reached,
            lambda: f"the offsets are {self.seen.committed(group, topic)}",
            f"group {group!r} to commit {'all' if offsets is None else dict(offsets)} in {topic!r}",
            within,
        )

    async def hit(self, fault: RequestFault, times: int = 1, *, within: float = WITHIN) -> None:
        """Until a fault has met so many requests in all."""
        await wait_until(
            lambda: fault.hits >= times,
            lambda: f"it is {fault!r}; seen: {self.seen.requests.summary()}",
            f"{times} hits of a fault",
            within,
        )

    async def settled(self, *, within: float = WITHIN) -> None:
        """Until nothing happens any more by itself.

        Groups with members have consumed everything and their retries; no message waits
        for its time; no transaction is open. A group that has not joined yet is not
        known (wait for the `group` first), nor are popped messages that somebody still
        works on.
        """
        await wait_until(
            lambda: not self.seen.activity(),
            lambda: "; ".join(self.seen.activity()) or "it was for moments only",
            "the broker to come to rest",
            within,
        )
