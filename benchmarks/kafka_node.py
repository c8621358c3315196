"""One node of Kafka, for benchmarks beside it (needs Java and Maven)."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support import java
from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 120.0
POMS: Final = Path(__file__).parent / "kafka"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def kafka(partitions: int) -> Iterator[str]:
    """One node of Kafka with an empty store; yields its address.

    New topics have so many partitions.

    Raises `RuntimeError` with its log when it does not start.
    """
    port, control = free_port(), free_port()
    libraries = java.jars("kafka-broker", POMS / "broker" / "pom.xml") / "lib"
    with tempfile.TemporaryDirectory(prefix="rocketmq-bench-") as home:
        configuration, log = Path(home, "server.properties"), Path(home, "log")
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{home}/data",
            "num.partitions": partitions,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        start = ("java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        java_of_kafka = (*start, "-cp", f"{libraries}/*")
        form = ("kafka.tools.StorageTool", "format", "-t", "A" * 21 + "Q")
        java.run(*java_of_kafka, *form, "-c", str(configuration))
        with log.open("w") as written:
            command = (*java_of_kafka, "kafka.Kafka", str(configuration))
            process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + PATIENCE
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
