"""The recorded page of metrics is what Apache's broker exports, and what ours exports
over HTTP for the same traffic, with a store on a disk.
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import EmbeddedBroker
from rocketmq_sdk.broker_embedded.metrics.apache_rows import NOT_HERE
from support import java
from support.metrics import scrape
from support.metrics_traffic import make_traffic
from support.paths import VECTORS
from support.ports import free_port
from tools.metrics_vector import vector_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.both_releases
VECTOR: dict[str, dict[str, Any]] = json.loads((VECTORS / "metrics/apache.json").read_text())
MEMBERS = ("type", "labels", "bounds", "samples")


async def test_apaches_broker_exports_what_was_recorded(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "messageDelayLevel": "1s 2s 1s",
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": port,
        "metricsPromExporterHost": "127.0.0.1",
    }

    def fetch() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            found: str = answer.read().decode()
            return found

    with java.apache_cluster(tmp_path, **settings) as cluster:
        text = await make_traffic(cluster.namesrv, lambda: trio.to_thread.run_sync(fetch))
    found = vector_of(text)
    assert found.keys() == VECTOR.keys()
    for name, expected in VECTOR.items():
        for member in MEMBERS:
            assert (name, found[name].get(member)) == (name, expected.get(member))


async def test_ours_exports_the_same_with_a_store_on_a_disk(tmp_path: Path) -> None:
    async with EmbeddedBroker(
        tmp_path, listen=0, namesrv_listen=0, metrics=0, message_delay_level="1s 2s 1s"
    ) as broker:
        text = await make_traffic(broker.namesrv_address, lambda: scrape(broker))
    found = vector_of(text)
    assert VECTOR.keys() - found.keys() == {name for name in NOT_HERE if name in VECTOR}
    for name in VECTOR.keys() & found.keys():
        for member in MEMBERS:
            assert (name, found[name].get(member)) == (name, VECTOR[name].get(member))
