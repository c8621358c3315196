"""The examples of tests in other languages, with their own clients, at the control
endpoint.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def passes(folder: str, place: Path, *commands: list[str]) -> None:
    """Run the commands in a copy of an example, beside the order service that it tests;
    each has to succeed.
    """
    for name in (folder, "orders"):
        shutil.copytree(ROOT / "examples" / "testing" / name, place / name)
    environment = {
        **os.environ,
        "ROCKETMQ_TEST_BROKER": f"{sys.executable} -m rocketmq_sdk test-broker",
        "UVICORN": f"{sys.executable} -W error -m uvicorn",
        "PYTHONPATH": str(ROOT),
    }
    for command in commands:
        done = subprocess.run(
            command,
            cwd=place / folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go(tmp_path: Path) -> None:
    passes("go", tmp_path, ["go", "test", "-count=1", "./..."])


def test_java(tmp_path: Path) -> None:
    passes("java", tmp_path, ["mvn", "-q", "-B", "test"])


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_node(tmp_path: Path) -> None:
    passes("node", tmp_path, ["npm", "install", "--silent"], ["npm", "test"])
