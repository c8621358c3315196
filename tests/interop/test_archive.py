"""The archive of classes with which Apache's programs start here."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from support import java

if TYPE_CHECKING:
    from pathlib import Path


def test_a_program_finds_its_classes_in_the_archive(tmp_path: Path) -> None:
    options = java.archived()
    if not options:
        pytest.skip("this Java makes no archives of classes")
    log = tmp_path / "classes.txt"
    options = [*options, f"-Xlog:class+load:file={log}"]
    command = java.java_command(str(tmp_path), "64m", options, java.classpath(), "Driver")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, b'{"ready":true}')
    loaded = log.read_text().splitlines()
    ours = [line for line in loaded if " Driver source: " in line]
    assert ours
    assert all("shared objects file (top)" in line for line in ours)
    assert sum("shared objects file" in line for line in loaded) > 0.9 * len(loaded)
