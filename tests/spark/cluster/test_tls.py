"""A cluster behind TLS, read and written through the options of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import trio
import trustme

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import UnreachableError
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.read.batch import TaskReader
from rocketmq_sdk.spark.read.edges import batch_ranges
from rocketmq_sdk.spark.schema import BY_NAME
from rocketmq_sdk.spark.write.rows import RowMaker
from rocketmq_sdk.spark.write.sending import SendPlan, Tally, send_all
from support.processes import BrokerProcess

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


def written(options: dict[str, str], bodies: list[bytes]) -> int:
    settings = parse({**options, "topic": "T", "retryTimeout": "20s"}, Use.SINK)
    made = RowMaker(
        ["body"],
        topic="T",
        scope="s",
        partition=0,
        max_body=1 << 20,
        skip_bad=False,
        next_ids=lambda count: [f"{number:032X}" for number in range(count)],
    )
    tally = Tally()

    async def send() -> None:
        sending, receiving = trio.open_memory_channel[Any](10)
        async with sending:
            for part in made.parts(pa.RecordBatch.from_arrays([pa.array(bodies)], ["body"])):
                await sending.send(part)
        await send_all(receiving, SendPlan.of(settings, ClusterAccess.of(settings)), tally)

    bridge.run(send, timeout=60)
    return tally.acknowledged


def read(options: dict[str, str], **more: str) -> list[bytes]:
    given = {**options, "subscribe": "T", "retryTimeout": "2s", **more}
    settings = parse(given, Use.BATCH)
    ranges = bridge.run(batch_ranges, settings, timeout=60)
    found: list[bytes] = []
    for batch in TaskReader(settings, [BY_NAME["body"]]).read(ranges):
        found += batch.column(0).to_pylist()
    return sorted(found)


def test_rows_are_written_and_read(cluster: dict[str, str]) -> None:
    bodies = [b"%03d" % number for number in range(100)]
    assert written(cluster, bodies) == 100
    assert read(cluster) == bodies


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
            read(options)
    elsewhere = {**cluster, "namesrvAddr": cluster["namesrvAddr"].replace("127.0.0.1", "localhost")}
    with pytest.raises(UnreachableError):
        read(elsewhere)
    assert len(read(elsewhere, tlsCheckHostname="false")) == 100
    with pytest.raises(ConfigurationError, match=r"the certificates of /nowhere cannot be used"):
        read({**cluster, "tlsCaFile": "/nowhere"})
