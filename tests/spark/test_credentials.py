"""A session in a process of its own, in an environment that is not activated: its
workers run with the Python that registers the format. Keys and tokens are searched for
in everything that Spark writes down or says while it talks as much as it can.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.paths import TESTS

if TYPE_CHECKING:
    from support.processes import BrokerProcess

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.real_time,
    pytest.mark.slow,
    pytest.mark.timeout(580),
]
CREDENTIALS = {
    "accessKey": "the-hidden-user",
    "secretKey": "the-hidden-key",
    "securityToken": "the-hidden-token",
}


def test_no_event_log_checkpoint_progress_error_or_log_holds_a_secret(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    order = {
        "namesrv": broker.namesrv,
        "topic": topic,
        "credentials": CREDENTIALS,
        "level": "DEBUG",
        "directory": str(tmp_path / "spark"),
    }
    tests, here = str(TESTS), Path(sys.executable).parent
    path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != here]
    dropped = ("PYSPARK_PYTHON", "VIRTUAL_ENV")
    environment = {
        **{name: value for name, value in os.environ.items() if name not in dropped},
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join(
            [tests, str(Path(tests).parent), os.environ.get("PYTHONPATH", "")]
        ),
    }
    said = {name: tmp_path / name for name in ("stdout", "stderr")}
    with said["stdout"].open("wb") as out, said["stderr"].open("wb") as errors:
        command = [sys.executable, "-m", "support.spark_credentials", json.dumps(order)]
        code = subprocess.run(
            command, stdout=out, stderr=errors, env=environment, timeout=500, check=False
        ).returncode
    assert code == 0, said["stderr"].read_text(errors="replace")[-3000:]
    texts = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def whole(pattern: str) -> bytes:
        return b"".join(texts[path] for path in (tmp_path / "spark").glob(pattern) if path in texts)

    # what is searched was there to be searched
    assert texts[said["stdout"]].count(b"failed as it should") == 7
    assert re.search(
        rb"failed as it should, a table: .*CREATE TEMPORARY VIEW", texts[said["stdout"]], re.DOTALL
    ), "a table, for which Spark keeps no options, is refused with the way out"
    assert b"all done" in texts[said["stdout"]]
    assert b'"numInputRows":60,' in texts[said["stdout"]], "what a listener hears"
    assert b"rows by SQL: [Row(count(1)=100)]" in texts[said["stdout"]]
    assert b'"numInputRows": 60,' in texts[said["stdout"]], "what a query tells"
    assert b"DEBUG" in texts[said["stderr"]]
    assert b"failed and is tried again" in texts[said["stderr"]], "what workers log"
    for event in (
        b"SparkListenerSQLExecutionStart",
        b"SparkListenerTaskEnd",
        b"StreamingQueryListener$QueryProgressEvent",
    ):
        assert event in whole("events/**/*"), event
    for pattern in (
        "checkpoints/state/offsets/[0-9]",
        "checkpoints/state/commits/[0-9]",
        "checkpoints/state/metadata",
        "checkpoints/state/state/**/*",
    ):
        assert whole(pattern), pattern
    found = [
        f"{path}: {line[:500]!r}"
        for path, content in texts.items()
        for line in content.splitlines()
        if b"the-hidden" in line
    ]
    assert found == []
