"""What an account needs to read and write with Spark where access is controlled: what
the page says is enough, at Apache's broker and at ours, and less is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin
from rocketmq_sdk.client.api.offsets import query_consumer_offset
from rocketmq_sdk.errors import NotPermittedError
from rocketmq_sdk.remoting.credentials import Credentials
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.read.broker_offsets import BrokerOffsets
from support import java
from support.processes import BrokerProcess
from support.spark_calls import read, written

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(200)]
ADMIN = ("admin", "the secret of the admin")
SETTINGS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN[0], "password": ADMIN[1]}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "inner", "secretKey": "the inner secret"}
    ),
}
PROVIDERS = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
POLICIES = {
    "reader": {"Topic:T": ["Sub", "Get"], "Group:readers": ["Sub"]},
    "publisher": {"Topic:T": ["Sub", "Get"], "Group:shown": ["Sub", "Get", "Update"]},
    "writer": {"Topic:T": ["Pub", "Get"]},
}
"""Of the table in docs/spark.md."""


@pytest.fixture(scope="module", params=["apache", "ours"])
def namesrv(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("spark-access")
    if request.param == "apache":
        providers = {
            f"{kind}MetadataProvider": PROVIDERS.format(kind, kind.capitalize())
            for kind in ("authentication", "authorization")
        }
        with java.apache_cluster(directory, **SETTINGS, **providers) as cluster:
            trio.run(_prepare, cluster.namesrv)
            yield cluster.namesrv
        return
    conf = directory / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    broker = BrokerProcess(arguments=("--config", str(conf)))
    broker.start()
    trio.run(_prepare, broker.namesrv)
    yield broker.namesrv
    broker.kill()


async def _prepare(namesrv: str) -> None:
    async with Admin(namesrv=namesrv, credentials=Credentials(*ADMIN)) as admin:
        await admin.topics.create("T", queues=2)
        for group in ("readers", "shown"):
            await admin.groups.create(group)
        for name, policies in POLICIES.items():
            await admin.users.create(name, f"{name}-secret")
            for resource, actions in policies.items():
                await admin.acls.create(name, [resource], actions)


def account(namesrv: str, name: str) -> dict[str, str]:
    return {"namesrvAddr": namesrv, "accessKey": name, "secretKey": f"{name}-secret"}


def test_what_the_page_says_is_enough_and_less_is_not(namesrv: str) -> None:
    bodies = [b"%03d" % number for number in range(100)]
    writing = {**account(namesrv, "writer"), "topic": "T"}
    assert written(writing, bodies) == 100
    reading = {**account(namesrv, "reader"), "subscribe": "T", "retryTimeout": "20s"}
    assert read(reading, readGroup="readers") == bodies
    with pytest.raises(NotPermittedError):
        read(reading)  # TOOLS_CONSUMER, which this account may not use
    with pytest.raises(NotPermittedError):
        written({**account(namesrv, "reader"), "topic": "T"}, bodies)
    with pytest.raises(NotPermittedError):
        read({**account(namesrv, "writer"), "subscribe": "T", "readGroup": "readers"})


def test_offsets_to_look_at(namesrv: str) -> None:
    options = {
        **account(namesrv, "publisher"),
        "subscribe": "T",
        "consumerGroup": "shown",
        "commitOffsetsToBroker": "true",
    }
    queue = QueueKey("T", "broker-a", 1)
    bridge.run(BrokerOffsets(parse(options, Use.STREAM)).write, {queue: 1}, timeout=30)

    async def shown() -> int | None:
        async with Admin(namesrv=namesrv, credentials=Credentials(*ADMIN)) as admin:
            await admin.client.route("T")
            return await query_consumer_offset(admin.client, "broker-a", "shown", "T", 1)

    assert trio.run(shown) == 1
