"""Apache RocketMQ's own Java client and servers as test peers.

The jars come from Maven once per machine (a directory under the system's temporary one,
so that a second run starts at once). Everything that waits here waits for a line of
output or for the end of a process, with a watchdog that kills the process; nothing
sleeps.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from rocketmq_sdk import Admin
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from support.paths import TESTS
from support.ports import free_port
from support.processes import PATIENCE
from support.programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RELEASES = ("5.5.0", "5.4.0")
"""The releases of Apache's that everything here runs with, the newest first."""
_NAMES = dict(zip(("newest", "previous"), RELEASES, strict=True))
_CHOSEN = os.environ.get("ROCKETMQ_APACHE_RELEASE", "newest")
VERSION = _NAMES.get(_CHOSEN, _CHOSEN)
"""The release of this run, of clients, tools and servers. It can be chosen by
`ROCKETMQ_APACHE_RELEASE` in the environment: `newest`, `previous`, or a number.
"""
SOURCES = TESTS / "interop" / "java"
QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
"""Tests want Java that starts quickly; benchmarks empty this list, as they want Java
that is quick.
"""
IDLES: dict[str, Any] = {"transactionMetricFlushInterval": 500, "timerFlushIntervalMs": 60_000}
"""An idle broker takes 6 % of a processor with these, and 40 % with the defaults: 10 s,
after its start a loop that never sleeps, and 1 s, each time a look through 38 MB.
Benchmarks empty this too.
"""
PLAIN_ONLY = "-Dtls.server.mode=disabled"
"""Apache's servers make a certificate as they start, which is half of the start; no
test speaks TLS with them.
"""
FLUSHES_TIMERS = {"timerFlushIntervalMs": 1000}
"""The default, for brokers whose timers are looked at in their directory."""
STOPS_SOON: dict[str, Any] = {"reviveQueueNum": 1}
"""For brokers that are stopped and pop nothing: a stop waits up to a second for each of
the 8 queues of popped messages.
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


def jars(version: str = VERSION, pom: Path = SOURCES / "pom.xml") -> Path:
    """The directory with the jars of one of Apache's releases; fetched by Maven on
    first use.
    """
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    command = ("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies")

    def fetch(fresh: Path) -> None:
        run(*command, f"-Drocketmq.version={version}", f"-DoutputDirectory={fresh / 'lib'}")

    return made_once(_cached(f"{version}-{digest}"), fetch)


def drivers() -> Path:
    """The jar with our own Java programs."""
    return compiled(sorted(SOURCES.glob("*.java")), jars())


def compiled(sources: list[Path], libraries: Path) -> Path:
    """The jar with the classes of some sources, compiled on first use; its directory's
    name says of which, and for which jars.
    """
    digest = hashlib.sha256(libraries.name.encode())
    for source in sources:
        digest.update(source.read_bytes())

    def compile_into(fresh: Path) -> None:
        classes = str(fresh / "classes")
        run("javac", "-cp", f"{libraries}/lib/*", *map(str, sources), "-d", classes)
        run("jar", "--create", "--file", str(fresh / "programs.jar"), "-C", classes, ".")

    return made_once(_cached(f"programs-{digest.hexdigest()[:16]}"), compile_into) / "programs.jar"


def classpath(version: str = VERSION) -> str:
    """Our programs and Apache's jars, in an order that does not depend on the disk."""
    libraries = (jars(version) / "lib").glob("*.jar")
    return ":".join(map(str, (drivers(), *sorted(libraries))))


@cache
def archived(version: str = VERSION) -> list[str]:
    """Options by which a JVM finds the classes of Apache's servers, clients and tools
    read and checked in an archive; a third of what a start costs is reading them.

    It is made on first use, by a rehearsal. Empty where Java makes no archives. An
    archive that does not fit is not used by the JVM.
    """
    java = Path(shutil.which("java") or "java").resolve()
    known = f"{classpath(version)} {java} {java.stat().st_mtime_ns}"
    digest = hashlib.sha256(known.encode()).hexdigest()[:16]
    archive = made_once(_cached(f"archive-{digest}"), partial(_rehearse, version)) / "classes.jsa"
    if not archive.exists():
        return []
    silent = ["-Xlog:disable", "-Xlog:all=error:stderr"]
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", *silent]


def _rehearse(version: str, fresh: Path) -> None:
    """Use name server, broker, clients and tools in one JVM, which archives classes as
    it ends.
    """
    with tempfile.TemporaryDirectory(prefix="rocketmq-rehearsal-") as home:
        directory = Path(home)
        namesrv, broker = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port(-2, 1)}"
        cluster = ApacheCluster(directory, namesrv, broker, {})
        configurations = [
            _configured(directory / "namesrv.conf", {"listenPort": _port(namesrv)}),
            _configured(directory / "broker.conf", broker_settings(cluster)),
        ]
        run(
            *("java", "-Xmx512m", PLAIN_ONLY, *QUICK_START, *_OPENS, f"-Duser.home={home}"),
            *(f"-Drocketmq.home.dir={home}", "-Drocketmq.client.logUseSlf4j=false"),
            f"-XX:ArchiveClassesAtExit={fresh / 'classes.jsa'}",
            *("-cp", classpath(version), "Rehearsal", namesrv, *map(str, configurations)),
        )


def _cached(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"rocketmq-interop-{os.getuid()}-{name}"


def made_once(home: Path, make: Callable[[Path], None]) -> Path:
    """A directory that is made on first use, complete or not there at all.

    One process makes at a time: Maven's own directory is not for two.
    """
    if home.exists():
        return home
    with _cached("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            fresh = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
            try:
                make(fresh)
                fresh.rename(home)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return home


def run(*command: str) -> None:
    """Run a tool to its end; raises `RuntimeError` with what it said when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: "
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


class Driver(Program):
    """One Java process that performs commands, by default with Apache's client."""

    def __init__(
        self, encoding: str = "JSON", memory: str = "256m", program: str = "Driver"
    ) -> None:
        options = [
            f"-Drocketmq.serialize.type={encoding}",
            "-Drocketmq.client.logUseSlf4j=false",
            "-Drocketmq.client.rebalance.waitInterval=2000",
            *_OPENS,
        ]
        options += archived()
        super().__init__(lambda home: java_command(home, memory, options, classpath(), program))


def java_command(
    home: str, memory: str, options: list[str], libraries: str, main: str
) -> list[str]:
    """How a small Java program is started, with a directory that it takes for the
    user's.
    """
    return [
        *("java", f"-Xms{memory}", f"-Xmx{memory}", "-XX:+UseSerialGC", *QUICK_START),
        *(f"-Duser.home={home}", *options, "-cp", libraries, main),
    ]


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
    arguments = ["-c", str(_configured(configuration, settings))]
    return start_server(main, arguments, directory, memory, options, version)


def _configured(path: Path, settings: dict[str, Any]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def start_server(
    main: str,
    arguments: list[str],
    directory: Path,
    memory: str,
    options: list[str],
    version: str = VERSION,
    ready: str = "boot success",
) -> subprocess.Popen[str]:
    """Start a server of Apache's and wait until it says that it is ready."""
    process = subprocess.Popen(
        [
            *("java", f"-Xms{memory}", f"-Xmx{memory}", "-XX:MaxDirectMemorySize=512m"),
            *(
                PLAIN_ONLY,
                *QUICK_START,
                *archived(version),
                *options,
                *_OPENS,
                f"-Duser.home={directory}",
            ),
            *("-cp", classpath(version), "QuickServer", main, *arguments),
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
            if ready in line:
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
    cluster.processes["namesrv"] = _start(
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        cluster.directory / "namesrv.conf",
        cluster.directory,
        "128m",
        {"listenPort": _port(cluster.namesrv)},
        ["-XX:+UseSerialGC"],
    )


def start_broker(
    cluster: ApacheCluster,
    memory: str = "512m",
    encoding: str = "JSON",
    version: str = VERSION,
    **settings: Any,
) -> None:
    options = [
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        f"-Drocketmq.serialize.type={encoding}",
    ]
    cluster.processes["broker"] = _start(
        "org.apache.rocketmq.broker.BrokerStartup",
        cluster.directory / "broker.conf",
        cluster.directory,
        memory,
        broker_settings(cluster) | settings,
        options,
        version,
    )
    _wait_registered(cluster.namesrv, cluster.broker)


def broker_settings(cluster: ApacheCluster) -> dict[str, Any]:
    """What brokers of Apache's are told, unless a test tells them something else."""
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": _port(cluster.broker),
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
        **IDLES,
    }


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
