"""Apache's proxy in cluster mode, and the official gRPC clients for Python and Java.

The jars come from Maven and the Python client comes from PyPI, once per machine, into
directories under the system's temporary one: nothing is added to the environment of the
tests.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support import java
from support.paths import TESTS
from support.ports import free_port
from support.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = TESTS / "interop" / "grpc"
JAVA_CLIENT = "5.2.0"
PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
LANGUAGES = ("java", "python")


class NotToBeHadError(Exception):
    """A client is not on this machine, and cannot be fetched."""


def grpc_client(language: str) -> Program:
    """A program with the client of a language; its commands are in
    `tests/interop/grpc`.

    Raises `NotToBeHadError` when the client cannot be fetched.
    """
    try:
        home = _java_client() if language == "java" else _python_client()
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise NotToBeHadError(f"no gRPC client for {language}: {error}") from error
    if language == "java":
        return Program(
            lambda own: java.java_command(own, "128m", [], f"{home}:{_jars()}/lib/*", "GrpcClient")
        )
    command = [sys.executable, str(SOURCES / "client.py")]
    return Program(lambda _own: command, {**os.environ, "PYTHONPATH": str(home)})


def _jars() -> Path:
    return java.jars(JAVA_CLIENT, SOURCES / "pom.xml")


def _java_client() -> Path:
    """The jar with the Java program."""
    return java.compiled([SOURCES / "GrpcClient.java"], _jars())


def _python_client() -> Path:
    """The directory with the Python client and what it needs."""
    known = f"{PYTHON_CLIENT} {sys.version}"
    digest = hashlib.sha256(known.encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir()) / f"rocketmq-interop-{os.getuid()}-python-{digest}"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    return java.made_once(home, lambda fresh: java.run(*pip, "--target", str(fresh), PYTHON_CLIENT))


@contextmanager
def apache_proxy(directory: Path, namesrv: str, version: str) -> Iterator[str]:
    """A proxy of Apache's in front of the brokers of a name server; gives the address
    for gRPC clients. Killed at the end.

    Its limits are short, as tests do not wait: invisible times from 1 s, polls of
    0.5 to 3 s; routes and groups are known anew each second.
    """
    address = f"127.0.0.1:{free_port()}"
    (directory / "conf").mkdir()
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "proxyMode": "CLUSTER",
        "namesrvAddr": namesrv,
        "proxyName": directory.name,
        "localServeAddr": "127.0.0.1",
        "grpcServerPort": int(address.rpartition(":")[2]),
        "remotingListenPort": free_port(),
        "grpcClientConsumerMinLongPollingTimeoutMillis": 500,
        "grpcClientConsumerMaxLongPollingTimeoutMillis": 3000,
        "minInvisibleTimeMillsForRecv": 1000,
        "topicRouteServiceCacheRefreshSeconds": 1,
        "metadataCacheRefreshSeconds": 1,
        "transactionHeartbeatPeriodSecond": 1,
    }
    configuration = directory / "rmq-proxy.json"
    configuration.write_text(json.dumps(settings))
    process = java.start_server(
        "org.apache.rocketmq.proxy.ProxyStartup",
        ["-pc", str(configuration)],
        directory,
        "192m",
        [],
        version,
        ready="startup successfully",
    )
    try:
        yield address
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
