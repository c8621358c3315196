"""`rocketmq broker --metrics`: where it listens, what it says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
import trio

from rocketmq_sdk.cli import broker as broker_command
from support.metrics import get, samples

pytestmark = pytest.mark.real_time
FREE = "127.0.0.1:0"


async def _ask(url: str) -> None:
    address, _, path = url.removeprefix("http://").partition("/")
    assert await get(address, "/readyz") == (200, "ready: taking messages\n")
    status, page = await get(address, f"/{path}")
    assert status == 200
    assert samples(page)["rocketmq_sdk_taking_messages"] == {(): 1}


def test_metrics_and_health_of_a_process() -> None:
    ports = ("--listen", FREE, "--namesrv-listen", FREE, "--metrics", FREE)
    command = [sys.executable, "-m", "rocketmq_sdk", "broker", "--json", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            trio.run(_ask, told["metrics"])
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_metrics_that_others_reach_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    for address in (None, "127.0.0.1:5557", "[::1]:5557", "localhost:5557"):
        broker_command._warn_of_open_metrics(address)
    assert capsys.readouterr().err == ""
    broker_command._warn_of_open_metrics("0.0.0.0:5557")
    assert "whoever reaches 0.0.0.0:5557 reads the metrics" in capsys.readouterr().err
