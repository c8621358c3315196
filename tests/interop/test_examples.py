"""The examples of tests in other languages, with their own clients, at the control
endpoint.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from support.paths import ROOT

PLACE = ROOT / "examples" / "testing"


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "ROCKETMQ_TEST_BROKER": f"{sys.executable} -m rocketmq_sdk test-broker",
    }


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go() -> None:
    done = subprocess.run(
        ["go", "test", "-count=1", "./..."],
        cwd=PLACE / "go",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
