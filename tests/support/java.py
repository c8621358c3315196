"""Apache RocketMQ's own Java client and servers as test peers.

The jars come from Maven once per machine (a directory under the system's temporary one,
so that a second run starts at once). Everything that waits here waits for a line of
output or for the end of a process, with a watchdog that kills the process; nothing
sleeps.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from rocketmq_sdk import Admin
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from support.paths import TESTS
from support.processes import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "5.4.0"
SOURCES = TESTS / "interop" / "java"
QUICK_START = ["-XX:TieredStopAtLevel=1"]
"""Tests want Java that starts quickly; benchmarks empty this list, as they want Java
that is quick.
"""
_OPENS = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
]


def why_not() -> str | None:
    """Why Java tests cannot run here, or None."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} on this machine" if missing else None


def jars(version: str = VERSION) -> Path:
    """The directory with the jars of one of Apache's releases; fetched by Maven on
    first use, complete or not there at all.
    """
    home = Path(tempfile.gettempdir()) / f"rocketmq-interop-{os.getuid()}-{version}"
    if not home.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
        copy = (
            "dependency:copy-dependencies",
            f"-Drocketmq.version={version}",
            f"-DoutputDirectory={fresh / 'lib'}",
        )
        _run("mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *copy)
        _take_name(fresh, home)
    return home


def drivers() -> Path:
    """The directory with our own Java programs, compiled on first use; its name says of
    which sources.
    """
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    home = Path(tempfile.gettempdir()) / f"rocketmq-interop-{os.getuid()}-classes-{digest}"
    if not home.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
        _run("javac", "-cp", f"{jars()}/lib/*", "-d", str(fresh), *map(str, sources))
        _take_name(fresh, home)
    return home


def _take_name(fresh: Path, home: Path) -> None:
    """Give a finished directory its name, unless another run was quicker."""
    try:
        fresh.rename(home)
    except OSError:
        if not home.exists():
            raise
        shutil.rmtree(fresh)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: "
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def classpath(version: str = VERSION) -> str:
    """Our programs and the jars of a release; our programs are compiled against the
    newest one.
    """
    return f"{drivers()}:{jars(version)}/lib/*"


def free_port(*neighbours: int) -> int:
    """A port that is free together with its neighbours (offsets), as Apache's broker
    also takes listenPort - 2 and + 1.

    It lies below those that systems give to outgoing connections, or one of them could
    take it before the broker does.
    """
    lots = random.SystemRandom()
    for _ in range(100):
        port = lots.randrange(12_000, 32_000)
        try:
            for offset in (0, *neighbours):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + offset))
        except OSError:
            continue
        return port
    raise RuntimeError("no free port with free neighbours")


class DriverError(Exception):
    """The Java client threw; the text is its class and message."""


class Driver:
    """One Java process that performs JSON commands, by default with Apache's client."""

    def __init__(
        self, encoding: str = "JSON", memory: str = "256m", program: str = "Driver"
    ) -> None:
        self._home = tempfile.mkdtemp(prefix="rocketmq-driver-")
        self.process = subprocess.Popen(
            [
                "java",
                f"-Xms{memory}",
                f"-Xmx{memory}",
                "-XX:+UseSerialGC",
                *QUICK_START,
                f"-Duser.home={self._home}",
                f"-Drocketmq.serialize.type={encoding}",
                "-Drocketmq.client.logUseSlf4j=false",
                "-Drocketmq.client.rebalance.waitInterval=2000",
                *_OPENS,
                "-cp",
                classpath(),
                program,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._home,
            text=True,
            encoding="utf-8",
        )
        self._lock = trio.Lock()
        self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise DriverError(f"the Java driver ended with {self.process.wait()}")
        return json.loads(line)

    def perform(self, command: dict[str, Any]) -> Any:
        """Blocking form of `do`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise DriverError(f"{answer['error']}: {answer['message']}")
        return answer.get("ok")

    async def do(self, action: str, **command: Any) -> Any:
        """Perform one command and return its answer; raises `DriverError` with what
        Java threw.
        """
        async with self._lock:
            return await trio.to_thread.run_sync(
                self.perform, {"do": action, **command}, abandon_on_cancel=True
            )

    def kill(self) -> None:
        """SIGKILL: the client says goodbye to nobody."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            try:
                self.process.communicate('{"do":"exit"}\n', timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


@attrs.define
class ApacheCluster:
    """A running Apache name server and broker."""

    directory: Path
    namesrv: str
    broker: str
    processes: dict[str, subprocess.Popen[str]]

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        for name in list(self.processes):
            self.stop(name, signal.SIGKILL)


async def dispatched(cluster: ApacheCluster) -> None:
    """Wait until a broker has put into its queues what it acknowledged, which no
    producer waits for.
    """
    with trio.fail_after(200):
        async with Admin(namesrv=cluster.namesrv) as admin:
            while int((await admin.cluster.runtime_info(cluster.broker))["dispatchBehindBytes"]):
                await trio.sleep(0.05)


def _start(
    main: str,
    configuration: Path,
    directory: Path,
    memory: str,
    settings: dict[str, Any],
    options: list[str],
    version: str = VERSION,
) -> subprocess.Popen[str]:
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = subprocess.Popen(
        [
            *("java", f"-Xms{memory}", f"-Xmx{memory}", "-XX:MaxDirectMemorySize=512m"),
            *(*QUICK_START, *options, *_OPENS, f"-Duser.home={directory}"),
            *("-cp", classpath(version), main, "-c", str(configuration)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "ROCKETMQ_HOME": str(directory)},
    )
    watchdog = threading.Timer(90, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        seen: list[str] = []
        for line in process.stdout:
            seen.append(line)
            if "boot success" in line:
                threading.Thread(target=_swallow, args=(process.stdout,), daemon=True).start()
                return process
        process.stdout.close()
        raise RuntimeError(f"{main} ended with {process.wait()}: {''.join(seen)[-2000:]}")
    finally:
        watchdog.cancel()


def _swallow(stream: Any) -> None:
    try:
        for _ in stream:
            pass
    except ValueError:
        return  # closed while reading: the process is gone


def start_namesrv(cluster: ApacheCluster) -> None:
    port = cluster.namesrv.rpartition(":")[2]
    cluster.processes["namesrv"] = _start(
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        cluster.directory / "namesrv.conf",
        cluster.directory,
        "128m",
        {"listenPort": port},
        ["-XX:+UseSerialGC"],
    )


def start_broker(
    cluster: ApacheCluster,
    memory: str = "512m",
    encoding: str = "JSON",
    version: str = VERSION,
    **settings: Any,
) -> None:
    port = cluster.broker.rpartition(":")[2]
    defaults: dict[str, Any] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": cluster.namesrv,
        "storePathRootDir": cluster.directory / "store",
        "autoCreateTopicEnable": "true",
        "enablePropertyFilter": "true",
        "mappedFileSizeCommitLog": 16 * 1024 * 1024,
        "mappedFileSizeConsumeQueue": 20 * 10000,
        "maxHashSlotNum": 10000,
        "maxIndexNum": 40000,
        "diskMaxUsedSpaceRatio": 99,
        **PATIENCE,
    }
    options = [
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        f"-Drocketmq.serialize.type={encoding}",
    ]
    cluster.processes["broker"] = _start(
        "org.apache.rocketmq.broker.BrokerStartup",
        cluster.directory / "broker.conf",
        cluster.directory,
        memory,
        defaults | settings,
        options,
        version,
    )
    _wait_registered(cluster.namesrv, cluster.broker)


class Asker:
    """One blocking connection that asks one thing after the other."""

    def __init__(self, address: str, seconds: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=seconds)
        self._stream = self._connection.makefile("rb")

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stream.close()
        self._connection.close()

    def ask(self, request: Command) -> Command:
        self._connection.sendall(encode_frame(request))
        return decode_frame(self._stream.read(int.from_bytes(self._stream.read(4), "big")))


def _wait_registered(namesrv: str, broker: str, seconds: float = 60.0) -> None:
    """Until the name server knows the broker, which it may learn only after the broker
    says that it has started.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with Asker(namesrv, seconds) as asker:
            answer = asker.ask(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))
        if f'"{broker}"'.encode() in answer.body:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{namesrv} did not learn of {broker} in {seconds:g} s")


@contextmanager
def apache_cluster(
    directory: Path, memory: str = "512m", encoding: str = "JSON", **settings: Any
) -> Iterator[ApacheCluster]:
    """Start a name server and a broker of Apache's; kill both at the end."""
    cluster = ApacheCluster(
        directory, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port(-2, 1)}", {}
    )
    try:
        start_namesrv(cluster)
        start_broker(cluster, memory, encoding, **settings)
        yield cluster
    finally:
        cluster.close()
