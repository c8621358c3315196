"""Credentials are searched for in all that Spark writes down, with its logs at their most talkative."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import BrokerProcess

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]
SECRETS = {"accessKey": "user", "secretKey": "very-hidden-key", "securityToken": "very-hidden-token"}


def test_no_log_event_plan_or_checkpoint_holds_a_secret(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    events.mkdir()
    order = {"namesrv": broker.namesrv, "topic": topic, "secrets": SECRETS, "directory": str(events), "checkpoint": str(checkpoint)}
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, str(Path(tests).parent), os.environ.get("PYTHONPATH", "")])}
    environment.update(KEYS_ACCESS_KEY="user", KEYS_SECRET_KEY=SECRETS["secretKey"])
    with (tmp_path / "said").open("w+") as said:
        command = [sys.executable, "-m", "support.spark_secrets", json.dumps(order)]
        code = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, env=environment, timeout=240, check=False).returncode
    text = (tmp_path / "said").read_text(errors="replace")
    assert code == 0, text[-3000:]
    assert "100 rows" in text
    written = {path: path.read_bytes() for root in (events, checkpoint) for path in root.rglob("*") if path.is_file()}
    assert any(b"SparkListenerSQLExecutionStart" in content for content in written.values()), "the event log tells of plans"
    assert any(path.parent.name == "offsets" for path in written), "the stream had a checkpoint"
    written[tmp_path / "said"] = text.encode()
    assert [f"{path}: {line[:300]!r}" for path, content in written.items() for line in content.splitlines() if b"very-hidden" in line] == []
