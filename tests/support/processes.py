"""Processes of our own as test subjects: the broker of the command line, and scripts
that are killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = {
    "waitTimeMillsInSendQueue": 60_000,
    "waitTimeMillsInPullQueue": 60_000,
    "waitTimeMillsInHeartbeatQueue": 60_000,
}
"""Settings of brokers under test: a machine that is slow for a while is no reason to
refuse anybody.
"""
READY = re.compile(r"ready: name server (\S+), broker (\S+)")
READY_JSON = re.compile(r'\{"ready": true, "namesrv": "(\S+)", "broker": "(\S+)"')


class BrokerProcess:
    """`rocketmq broker`, or another command that serves one, in a process of its own;
    may be killed and started again on its directory and ports.
    """

    def __init__(
        self,
        store: Path | str | None = ":memory:",
        *,
        settings: dict[str, object] | None = None,
        arguments: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        command: str = "broker",
    ) -> None:
        self._command = command
        self._store = store
        self._settings = settings or {}
        self._arguments = arguments
        self._environment = environment or {}
        self.namesrv = f"127.0.0.1:{free_port()}"
        self.address = f"127.0.0.1:{free_port(-2, 1)}"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start and wait for the line that says it is ready; the ports stay."""
        command = [
            sys.executable,
            "-m",
            "rocketmq_sdk",
            self._command,
            "--namesrv-listen",
            self.namesrv,
            "--listen",
            self.address,
        ]
        command += [
            *([] if self._store is None else ["--store", str(self._store)]),
            *self._arguments,
        ]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | self._environment,
        )
        watchdog = threading.Timer(60, self.process.kill)
        watchdog.start()
        try:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            ready = READY.match(line) or READY_JSON.match(line)
            if ready is None:
                assert self.process.stderr is not None
                raise RuntimeError(
                    f"the broker did not become ready: {line!r} "
                    f"{self.process.stderr.read()[-3000:]}"
                )
            self.namesrv, self.address = ready.groups()
        finally:
            watchdog.cancel()
        self.log: list[str] = []
        self._reader = threading.Thread(
            target=self._drain, args=(self.process.stderr,), daemon=True
        )
        self._reader.start()

    def _drain(self, stream: Iterator[str]) -> None:
        try:
            for line in stream:
                self.log.append(line)
        except ValueError:
            return  # closed: the process is gone

    def signal(self, number: int) -> int:
        """Send a signal, wait for the end, return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        self._reader.join(timeout=10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process = None
        return code

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self.signal(signal.SIGTERM)


@contextmanager
def broker_process(store: Path | str = ":memory:", **settings: object) -> Iterator[BrokerProcess]:
    """A broker process with settings by Apache's names, patient ones among them; killed
    at the end if it still runs.
    """
    broker = BrokerProcess(store, settings={**PATIENCE, **settings})
    broker.start()
    try:
        yield broker
    finally:
        if broker.process is not None:
            broker.kill()


@contextmanager
def python_process(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python script given as text, with pipes; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
