"""`rocketmq test-broker` as a process, with its ready file and control endpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Message, Producer
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.real_time


@contextmanager
def test_broker(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "rocketmq_sdk", "test-broker", *arguments],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


test_broker.__test__ = False  # type: ignore[attr-defined]


def ask(address: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        address + path,
        None if body is None else json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


async def test_a_delay_of_half_an_hour_is_over_when_the_clock_is_moved(tmp_path: Path) -> None:
    ready, seed = tmp_path / "ready.json", tmp_path / "seed.json"
    seed.write_text('{"topics": {"orders": 1}}')
    with test_broker(
        "--control=127.0.0.1:0",
        f"--ready-file={ready}",
        f"--seed={seed}",
        "--virtual-clock",
        "--set=brokerName=shop",
        "--emulate=5.1.4",
    ) as process:
        await until(ready.exists)
        where = json.loads(ready.read_text())
        assert where["pid"] == process.pid
        async with Producer("shop", namesrv=where["namesrv"]) as producer:
            await producer.send(Message("orders", b"late", delay=1800))
            control = where["control"]

            def use() -> Any:
                assert ask(control, "/v1/broker")["emulates"] == "5.1.4"
                ask(control, "/v1/clock", {"advance": 1801})
                return ask(control, "/v1/wait", {"for": "stored", "topic": "orders"})

            found = await trio.to_thread.run_sync(use)
            assert [message["body"] for message in found["messages"]] == ["late"]
            # The connection has outlived the jump.
            await producer.send(Message("orders", b"2"))
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(60):
            while process.poll() is None:
                await trio.sleep(0.05)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--control=0.0.0.0:0"], b"--control-open"),
        (["--set=brokerName"], b"name=value"),
        (["--seed=nowhere.json"], b"nowhere.json cannot be read"),
    ],
)
def test_options_that_are_not_acceptable_end_it(arguments: list[str], text: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rocketmq_sdk", "test-broker", *arguments],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert text in done.stderr
