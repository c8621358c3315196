"""Fixtures of the tests against Apache RocketMQ's Java client and servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from support import java
from support.access import LOCKED
from support.processes import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = java.why_not()
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.real_time)
            item.add_marker(pytest.mark.timeout(300))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def json_driver() -> Iterator[java.Driver]:
    """Apache's Java client speaking JSON headers."""
    driver = java.Driver("JSON")
    yield driver
    driver.close()


@pytest.fixture(scope="package")
def binary_driver() -> Iterator[java.Driver]:
    """Apache's Java client speaking ROCKETMQ headers."""
    driver = java.Driver("ROCKETMQ")
    yield driver
    driver.close()


@pytest.fixture(scope="package")
def consumers_driver() -> Iterator[java.Driver]:
    """Apache's lite pull consumer and its push consumer in POP mode."""
    driver = java.Driver(program="Consumers")
    yield driver
    driver.close()


@pytest.fixture(scope="package")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[java.ApacheCluster]:
    """One Apache name server and broker for the session, with short delay levels and
    soon-checked transactions.
    """
    settings: dict[str, Any] = {
        "messageDelayLevel": "1s 2s 1s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 40s 50s 60s",
        "transactionTimeOut": 1000,
        "transactionCheckInterval": 2000,
        "traceTopicEnable": "true",
    }
    with java.apache_cluster(tmp_path_factory.mktemp("apache"), **settings) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def locked_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[java.ApacheCluster]:
    """An Apache broker with users and policies."""
    settings: dict[str, Any] = {"traceTopicEnable": "true", **LOCKED}
    for kind in ("authentication", "authorization"):
        provider = f"org.apache.rocketmq.auth.{kind}.provider.Local{kind.capitalize()}"
        settings[f"{kind}MetadataProvider"] = f"{provider}MetadataProvider"
    with java.apache_cluster(tmp_path_factory.mktemp("apache-locked"), **settings) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def locked_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Our broker with the same users, and TLS at its port."""
    directory = tmp_path_factory.mktemp("locked")
    conf = directory / "broker.conf"
    made = trustme.CA().issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(str(directory / "server.pem"))
    made.private_key_pem.write_to_path(str(directory / "server.key"))
    tls = {
        "tls.server.certPath": directory / "server.pem",
        "tls.server.keyPath": directory / "server.key",
    }
    conf.write_text("".join(f"{name}={value}\n" for name, value in {**LOCKED, **tls}.items()))
    broker = BrokerProcess(arguments=("--config", str(conf)))
    broker.start()
    yield broker
    assert broker.stop() == 0
