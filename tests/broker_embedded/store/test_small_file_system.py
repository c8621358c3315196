"""A real small file system filled to the last byte; skipped where a test may not mount
one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time
CHILD = Path(__file__).parent / "small_file_system.py"
NAMESPACES = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])


@cache
def namespace() -> list[str] | None:
    """A command that gives its child a mount namespace of its own in which it may
    mount; None where there is none.
    """
    if not shutil.which("unshare") or not shutil.which("mount"):
        return None
    for command in NAMESPACES:
        probe = [*command, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
        if subprocess.run(probe, capture_output=True, check=False, timeout=60).returncode == 0:
            return command
    return None


@pytest.mark.parametrize(
    ("scenario", "status"),
    [
        ("write", "SERVICE_NOT_AVAILABLE"),
        ("next_file", "CREATE_MAPPED_FILE_FAILED"),
        ("ratio", "SERVICE_NOT_AVAILABLE"),
        ("close_full", "SERVICE_NOT_AVAILABLE"),
        ("config", "StoreFullError"),
        ("without_fallocate", "SERVICE_NOT_AVAILABLE"),
        ("edge", "SERVICE_NOT_AVAILABLE"),
    ],
)
def test_a_full_file_system_is_refused_survived_and_left_behind(
    scenario: str, status: str, tmp_path: Path
) -> None:
    command = namespace()
    if command is None:
        pytest.skip("this user may not mount a file system in a namespace of its own")
    done = subprocess.run(
        [*command, sys.executable, str(CHILD), str(tmp_path), scenario],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found == {
        "refused": status,
        "alive": True,
        "again": True,
        "kept": True,
        "taken": True,
        "findings": [],
    }, done.stderr[-5000:]
