"""Members of one group, each in a process of its own that writes down what comes to it
and when; and what may come twice when queues change hands.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import trio

from support import java
from support.processes import python_process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable
    from pathlib import Path

_PYTHON_MEMBER = """
import os, sys, time, trio
from rocketmq_sdk import ConsumeFrom, PushConsumer
namesrv, topic, path, group, orderly = sys.argv[1:]

async def main():
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def listener(message):
        now = time.time_ns() // 1_000_000
        os.write(out, b"%d %d %s\\n" % (now, message.queue_id, message.body))

    async with PushConsumer(
        group,
        namesrv=namesrv,
        subscriptions={topic: "*"},
        listener=listener,
        orderly=orderly == "True",
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)

trio.run(main)
"""


class Delivery(NamedTuple):
    """One message as it came to one listener; `at` is in epoch milliseconds."""

    at: int
    queue: int
    body: int
    member: str


def now_ms() -> int:
    """The clock that all members write down: they share the machine."""
    return time.time_ns() // 1_000_000


class GroupMembers:
    """The living members of a group, and what came to all that ever were in it."""

    def __init__(
        self, namesrv: str, group: str, topic: str, directory: Path, *, orderly: bool
    ) -> None:
        self._namesrv, self._group, self._topic, self._directory, self._orderly = (
            namesrv,
            group,
            topic,
            directory,
            orderly,
        )
        self._stack = ExitStack()
        self._drivers: dict[str, java.Driver] = {}
        self._pythons: dict[str, subprocess.Popen[str]] = {}
        self._names: list[str] = []

    def alive(self) -> set[str]:
        """Who is in the group now."""
        return {*self._drivers, *self._pythons}

    def _file(self, name: str) -> Path:
        return self._directory / name

    async def start(self, name: str) -> None:
        """A member joins: of Apache's client when its name begins with "java", else one
        of ours.
        """
        self._names.append(name)
        if name.startswith("java"):
            driver = java.Driver()
            self._stack.callback(driver.close)
            self._drivers[name] = driver
            known = {
                "id": name,
                "group": self._group,
                "topic": self._topic,
                "namesrv": self._namesrv,
            }
            await driver.do(
                "consumer",
                **known,
                orderly=self._orderly,
                file=str(self._file(name)),
                count_only=True,
            )
            return
        script = python_process(
            _PYTHON_MEMBER,
            self._namesrv,
            self._topic,
            str(self._file(name)),
            self._group,
            str(self._orderly),
        )
        process = self._stack.enter_context(script)
        self._pythons[name] = process
        assert process.stdout is not None
        if await trio.to_thread.run_sync(process.stdout.readline) != "ready\n":
            raise RuntimeError(f"the member {name} ended with {process.wait()}")

    async def leave(self, name: str) -> None:
        """A member says goodbye and ends."""
        driver = self._drivers.pop(name, None)
        if driver is not None:
            await driver.do("stop", id=name)
            await trio.to_thread.run_sync(driver.close)
            return
        process = self._pythons.pop(name)
        assert process.stdin is not None
        process.stdin.close()
        await trio.to_thread.run_sync(process.wait)

    def kill(self, name: str) -> None:
        """A member ends without a word."""
        driver = self._drivers.pop(name, None)
        if driver is not None:
            driver.kill()
        else:
            process = self._pythons.pop(name)
            process.kill()
            process.wait()

    def deliveries(self) -> list[Delivery]:
        """Everything that came to anybody, in order of time; for each member in its own
        order.
        """
        seen = []
        for name in self._names:
            file = self._file(name)
            for line in file.read_bytes().split(b"\n")[:-1] if file.exists() else []:
                at, queue, body = map(int, line.split())
                seen.append(Delivery(at, queue, body, name))
        return sorted(seen, key=lambda delivery: delivery.at)

    def owners(self, since: int) -> dict[int, set[str]]:
        """To whom each queue has come since a moment."""
        owners: dict[int, set[str]] = defaultdict(set)
        for delivery in self.deliveries():
            if delivery.at >= since:
                owners[delivery.queue].add(delivery.member)
        return owners

    def close(self) -> None:
        """End everybody who is left."""
        self._stack.close()


class Again(NamedTuple):
    """A message that came a second time, and how long its owner before went on with the
    queue after it: that long it was not committed.
    """

    delivery: Delivery
    before: Delivery
    uncommitted_ms: int
    changed_owner: bool


def came_again(deliveries: Iterable[Delivery]) -> list[Again]:
    """Each repeated delivery beside the one before it. Exact as far as messages keep
    coming to each queue.
    """
    queues: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        queues[delivery.queue].append(delivery)
    found = []
    for seen in queues.values():
        last: dict[int, int] = {}
        for place, delivery in enumerate(seen):
            if delivery.body in last:
                since = seen[last[delivery.body] : place + 1]
                before = since[0]
                went_on = max(
                    each.at for each in since if each.member == before.member or each is before
                )
                if delivery.member == before.member:
                    # It came back after another had the queue: what counts is when it
                    # lost it.
                    others = [
                        number for number, each in enumerate(since) if each.member != before.member
                    ]
                    went_on = since[others[0] - 1].at if others else delivery.at
                changed = any(each.member != before.member for each in since)
                found.append(Again(delivery, before, went_on - before.at, changed))
            last[delivery.body] = place
    return found


def out_of_order(deliveries: Iterable[Delivery]) -> list[str]:
    """Where a queue did not come in order: within one owner's time each message follows
    the one before, and no new owner leaves one out.
    """
    found = []
    queues: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        queues[delivery.queue].append(delivery)
    for seen in queues.values():
        bodies = sorted({delivery.body for delivery in seen})
        next_of = dict(itertools.pairwise(bodies))
        furthest = None
        for before, after in itertools.pairwise(seen):
            furthest = before.body if furthest is None else max(furthest, before.body)
            follows = next_of.get(before.body) == after.body
            takes_over = before.member != after.member and (
                after.body <= furthest or next_of.get(furthest) == after.body
            )
            if not follows and not takes_over:
                found.append(f"{after} after {before}")
    return found


def takeover_ms(deliveries: Iterable[Delivery], gone: str, at: int, queues: Iterable[int]) -> int:
    """From a member's end to the first message of the last of its queues that came to
    another.
    """
    first: dict[int, int] = {}
    for delivery in deliveries:
        if delivery.at >= at and delivery.member != gone:
            first.setdefault(delivery.queue, delivery.at)
    return max(first[queue] for queue in queues) - at
