"""Programs that perform commands: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class ProgramError(Exception):
    """A program could not perform a command; the text is what it threw, class and
    message.
    """


class Program:
    """One running program, with a directory of its own that goes with it.

    It says that it is ready with a first line. Its standard error is not read.
    """

    def __init__(
        self, command: Callable[[str], list[str]], env: Mapping[str, str] | None = None
    ) -> None:
        self._home = tempfile.mkdtemp(prefix="rocketmq-program-")
        self.process = subprocess.Popen(
            command(self._home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._home,
            env=None if env is None else {**env, "HOME": self._home},
            text=True,
            encoding="utf-8",
        )
        self._lock = trio.Lock()
        self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ProgramError(f"the program ended with {self.process.wait()}")
        return json.loads(line)

    def perform(self, command: dict[str, Any]) -> Any:
        """Blocking form of `do`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise ProgramError(f"{answer['error']}: {answer['message']}")
        return answer.get("ok")

    async def do(self, action: str, **command: Any) -> Any:
        """Perform one command and return its answer; raises `ProgramError` with what
        the program threw.
        """
        async with self._lock:
            return await trio.to_thread.run_sync(
                self.perform, {"do": action, **command}, abandon_on_cancel=True
            )

    def kill(self) -> None:
        """SIGKILL: a client says goodbye to nobody."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Let it end by itself, and wait for that; kill it after 20 s."""
        if self.process.poll() is None:
            try:
                self.process.communicate('{"do":"exit"}\n', timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # it died with a command unread
                    stream.close()
        self.process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
