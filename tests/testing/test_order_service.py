"""The order service of the examples passes its own suite, in its own project."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = ROOT / "examples" / "testing" / "orders"
PUBLIC = {"rocketmq_sdk", "rocketmq_sdk.aio", "rocketmq_sdk.testing"}


def seconds_of_the_suite() -> float:
    """The processor time of one run, which must pass."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"],
        cwd=ORDERS,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


# Minutes of its virtual time take 3 to 5 s of a processor where nothing else runs, and
# twice that beside other work.
@pytest.mark.real_time
def test_the_suite_of_the_order_service_waits_for_nothing() -> None:
    assert seconds_of_the_suite() < 20


@pytest.mark.parametrize("path", sorted(ORDERS.glob("*.py")), ids=lambda path: path.name)
def test_it_imports_what_users_import_and_never_sleeps(path: Path) -> None:
    text = path.read_text("utf-8")
    modules: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    assert {name for name in modules if name.startswith("rocketmq_sdk")} <= PUBLIC
    assert "sleep" not in text
