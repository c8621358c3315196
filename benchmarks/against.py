"""The same benchmarks in this tree and in another checkout, in turns, with the ratios.

Each tree runs its own benchmarks in processes of its own; figures of the same name are
compared.
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
        """How many times as fast this tree is, by the medians over the rounds."""
        return self._speedup(statistics.median(self.here), statistics.median(self.there))

    @property
    def ratios(self) -> list[float]:
        """The same for each round."""
        return [self._speedup(*both) for both in zip(self.here, self.there, strict=True)]

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
    """Run benchmarks in both trees in turns; who goes first changes with each round."""
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
    return pairs


def dearer(pairs: Mapping[str, Pair]) -> str:
    """The figures that became more than 5 % worse in every round, or that none did."""
    worse = [name for name, pair in pairs.items() if max(pair.ratios) < DEARER]
    return "\n".join([f"DEARER {name}" for name in worse]) or "nothing became 5 % dearer"


def table(pairs: Mapping[str, Pair]) -> str:
    """A line for each figure: both medians, their ratio, the ratios of the rounds."""
    lines = [f"{'figure':<52} {'here':>12} {'there':>12} {'unit':<8} {'ratio':>6}  rounds"]
    for name, pair in pairs.items():
        here, there = (f"{statistics.median(side):,.2f}" for side in (pair.here, pair.there))
        lines.append(
            f"{name:<52} {here:>12} {there:>12} {pair.unit:<8} {pair.ratio:6.3f}  "
            f"{min(pair.ratios):.2f} to {max(pair.ratios):.2f}"
        )
    return "\n".join(lines)
