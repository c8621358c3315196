"""The rebalance figures of Apache's push consumers and of mixed groups.

Both run on Apache's broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from benchmarks.rebalance import LEAVER, STAYING, Leaver, OurLeaver, OurMembers, Rows, measure, ways
from support import java

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from benchmarks.harness import Report

_PROGRAM = str(Path(__file__).parent / "java" / "Members.java")


class _Java:
    """Push consumers of Apache's in one Java process."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._driver = java.Driver(program=_PROGRAM)

    @property
    def process(self) -> subprocess.Popen[str]:
        return self._driver.process

    async def _join(self, namesrv: str, group: str, topic: str) -> None:
        await self._driver.do("join", names=self._names, group=group, topic=topic, namesrv=namesrv)

    def close(self) -> None:
        self._driver.kill()
        self._driver.close()


class JavaLeaver(_Java):
    """The one that goes."""

    def __init__(self) -> None:
        super().__init__([LEAVER])

    @property
    def process(self) -> subprocess.Popen[str]:
        return self._driver.process

    async def join(self, namesrv: str, group: str, topic: str) -> None:
        await self._join(namesrv, group, topic)

    async def leave(self) -> None:
        await self._driver.do("leave")


class JavaMembers(_Java):
    """Members that stay."""

    async def join(self, stack: AsyncExitStack, namesrv: str, group: str, topic: str) -> None:
        stack.callback(self.close)
        await self._join(namesrv, group, topic)

    async def mark(self) -> None:
        await self._driver.do("mark")

    async def rows(self) -> Rows:
        rows: list[Any] = await self._driver.do("rows")
        return [(name, queue, first / 1e9, last / 1e9) for name, queue, first, last in rows]


async def _java(namesrv: str, way: str) -> float:
    return await measure(namesrv, way, [JavaMembers(STAYING)], JavaLeaver())


async def _mixed(namesrv: str, leaver: Leaver) -> float:
    """Every second member that stays is Apache's."""
    return await measure(
        namesrv, "leaves", [OurMembers(STAYING[::2]), JavaMembers(STAYING[1::2])], leaver
    )


def run(namesrv: str, report: Report, scale: float) -> None:
    """One round."""
    for way in ways(scale):
        report.add(f"java, rebalance, one of 10 {way}", "s", trio.run(_java, namesrv, way))
    report.add("mixed group, rebalance, ours leaves", "s", trio.run(_mixed, namesrv, OurLeaver()))
    report.add(
        "mixed group, rebalance, Java's leaves", "s", trio.run(_mixed, namesrv, JavaLeaver())
    )
