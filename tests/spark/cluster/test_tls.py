"""A cluster behind TLS, read and written through the options of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trustme

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.cluster.retry import UnreachableError
from support.processes import BrokerProcess
from support.spark_calls import read, written

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker that takes nothing but TLS with certificates of its authority."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    for name in ("server", "client"):
        made = authority.issue_cert("127.0.0.1")
        made.private_key_pem.write_to_path(str(directory / f"{name}.key"))
        made.cert_chain_pems[0].write_to_path(str(directory / f"{name}.pem"))

    def path(name: str) -> str:
        return str(directory / name)

    broker = BrokerProcess(
        arguments=(
            *("--tls-cert", path("server.pem"), "--tls-key", path("server.key")),
            *("--tls-client-ca", path("ca.pem"), "--require-tls"),
        )
    )
    broker.start()
    try:
        yield {
            "namesrvAddr": broker.namesrv,
            "tls": "true",
            "tlsCaFile": path("ca.pem"),
            "tlsCertFile": path("client.pem"),
            "tlsKeyFile": path("client.key"),
        }
    finally:
        broker.kill()


def test_rows_are_written_and_read(cluster: dict[str, str]) -> None:
    bodies = [b"%03d" % number for number in range(100)]
    assert written({**cluster, "topic": "T"}, bodies) == 100
    assert read({**cluster, "subscribe": "T"}) == bodies


def without(cluster: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in cluster.items() if name not in names}


def test_who_is_not_who_they_should_be_is_refused(cluster: dict[str, str]) -> None:
    own = ("tlsCertFile", "tlsKeyFile")
    for options in (
        without(cluster, "tls", "tlsCaFile", *own),
        without(cluster, "tlsCaFile"),
        without(cluster, *own),
    ):
        with pytest.raises(UnreachableError):
            read({**options, "subscribe": "T"})
    elsewhere = {**cluster, "namesrvAddr": cluster["namesrvAddr"].replace("127.0.0.1", "localhost")}
    with pytest.raises(UnreachableError):
        read({**elsewhere, "subscribe": "T"})
    assert len(read({**elsewhere, "subscribe": "T"}, tlsCheckHostname="false")) == 100
    with pytest.raises(ConfigurationError, match=r"the certificates of /nowhere cannot be used"):
        read({**cluster, "subscribe": "T", "tlsCaFile": "/nowhere"})
