"""The same benchmarks in this tree and in another checkout, in turns, with the ratios.

Each tree runs its own benchmarks in processes of its own; figures of the same name are
compared. What a machine does beside them changes within seconds. So programs that stay
(`resident`) can take many short turns instead of a few long ones: then the two turns of
a pair meet nearly the same machine, and the median of the ratios of pairs counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HERE: Final = Path(__file__).parents[1]
DEARER: Final = 1 / 1.05
"""A ratio below which something became more than 5 % dearer."""
MANY: Final = 8
"""So many ratios are told by their quartiles."""

Medians = dict[str, tuple[str, float]]
"""Unit and median of each figure of one run, by name."""


@attrs.define
class Pair:
    """One figure in both trees, a median for each round."""

    unit: str
    here: list[float] = attrs.field(factory=list)
    there: list[float] = attrs.field(factory=list)

    @property
    def ratio(self) -> float:
        """How many times as fast this tree is: the median over the rounds or turns."""
        return statistics.median(self.ratios)

    @property
    def ratios(self) -> list[float]:
        """The same for each round."""
        return [self._speedup(*both) for both in zip(self.here, self.there, strict=True)]

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest ratio; of many the first and the last quartile."""
        ratios = self.ratios
        if len(ratios) < MANY:
            return min(ratios), max(ratios)
        first, _median, last = statistics.quantiles(ratios, n=4)
        return first, last

    def _speedup(self, here: float, there: float) -> float:
        above, below = (here, there) if self.unit.endswith("/s") else (there, here)
        return above / below if below else float("nan")


@contextmanager
def checkout(name: str) -> Iterator[Path]:
    """A directory that has another state of the code, for the length of a block.

    `name` is such a directory, or a commit. Raises `CalledProcessError` for neither.
    """
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="rocketmq-bench-") as directory:
        tree = Path(directory, "tree")
        git = ("git", "-C", str(HERE), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), name], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def measure(tree: Path, name: str, scale: float) -> Medians:
    """One round of one benchmark of a tree.

    Raises `CalledProcessError` when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="rocketmq-bench-") as directory:
        figures = Path(directory, "figures.json")
        command = [sys.executable, "-m", "benchmarks", name, "--rounds", "1"]
        subprocess.run(
            [*command, "--scale", str(scale), "--json", str(figures)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return {
            figure["name"]: (figure["unit"], figure["median"])
            for figure in json.loads(figures.read_text())
        }


def compare(other: Path, names: Sequence[str], rounds: int, scale: float) -> dict[str, Pair]:
    """Run benchmarks in both trees in turns; who goes first changes with each round.

    A figure that one of them lacks is told, and left out.
    """
    pairs: dict[str, Pair] = {}
    for number in range(1, rounds + 1):
        for name in names:
            found: dict[Path, Medians] = {}
            for tree in (HERE, other) if number % 2 else (other, HERE):
                print(f"{name} in {tree}, round {number} of {rounds}", file=sys.stderr, flush=True)
                found[tree] = measure(tree, name, scale)
            for figure, (unit, value) in found[HERE].items():
                if figure in found[other]:
                    pair = pairs.setdefault(figure, Pair(unit))
                    pair.here.append(value)
                    pair.there.append(found[other][figure][1])
            if lonely := found[HERE].keys() ^ found[other].keys():
                print(f"not in both trees: {', '.join(sorted(lonely))}", file=sys.stderr)
    return pairs


def compare_in_turns(
    other: Path, names: Sequence[str], turns: int, scale: float
) -> dict[str, Pair]:
    """Let programs that stay take short turns; who goes first changes with each."""
    pairs: dict[str, Pair] = {}
    for name in names:
        with _resident(HERE, name, scale) as here, _resident(other, name, scale) as there:
            for number in range(1, turns + 1):
                print(f"{name}, turn {number} of {turns}", end="\r", file=sys.stderr, flush=True)
                order = (here, there) if number % 2 else (there, here)
                found = {process.pid: _turn(process) for process in order}
                for figure, (unit, value) in found[here.pid].items():
                    pair = pairs.setdefault(figure, Pair(unit))
                    pair.here.append(value)
                    pair.there.append(found[there.pid][figure][1])
    return pairs


@contextmanager
def _resident(tree: Path, name: str, scale: float) -> Iterator[subprocess.Popen[str]]:
    """A program of `resident` that measures a tree, once it is ready for turns."""
    # The package comes from the tree in which it runs, the benchmark from here.
    program = (
        f"import sys, rocketmq_sdk; sys.path.insert(0, {str(HERE)!r}); "
        f"from benchmarks.resident import serve; serve({name!r}, {scale!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        if _line(process) != "ready\n":
            raise RuntimeError(f"{name} has not started in {tree}")
        yield process


def _turn(process: subprocess.Popen[str]) -> Medians:
    """One turn of a program that stays."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return {name: (unit, value) for name, (unit, value) in json.loads(_line(process)).items()}


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def dearer(pairs: Mapping[str, Pair]) -> str:
    """The figures that became more than 5 % worse in every round, or that none did.

    Of many turns three quarters count as all.
    """
    worse = [name for name, pair in pairs.items() if pair.spread[1] < DEARER]
    return "\n".join([f"DEARER {name}" for name in worse]) or "nothing became 5 % dearer"


def table(pairs: Mapping[str, Pair]) -> str:
    """A line for each figure: both medians, their ratio, the spread of the ratios."""
    lines = [f"{'figure':<52} {'here':>12} {'there':>12} {'unit':<8} {'ratio':>6}  spread"]
    for name, pair in pairs.items():
        here, there = (f"{statistics.median(side):,.2f}" for side in (pair.here, pair.there))
        lines.append(
            f"{name:<52} {here:>12} {there:>12} {pair.unit:<8} {pair.ratio:6.3f}  "
            f"{pair.spread[0]:.2f} to {pair.spread[1]:.2f}"
        )
    return "\n".join(lines)
