"""The endpoint of metrics and health: what it says while a broker opens, works, refuses
messages and closes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import EmbeddedBroker, Message, Producer
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.errors import ConfigurationError, StoreError
from support.broker import open_broker
from support.metrics import get, samples, scrape
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time


async def test_metrics_health_and_nothing_else_are_served() -> None:
    async with open_broker(metrics=0, broker_name='a"b\\', metrics_label="zone:north") as (
        broker,
        peer,
    ):
        address = broker.metrics_address
        assert address is not None
        assert await get(address, "/readyz") == (200, "ready: taking messages\n")
        assert await get(address, "/healthz") == (200, "the broker runs\n")
        assert "/metrics" in (await get(address, "/"))[1]
        assert (await get(address, "/other"))[0] == 404
        assert (await get(address, "/metrics", "POST", **{"content-length": "0"}))[0] == 405
        assert await get(address, "/metrics", "HEAD") == (200, "")
        assert (await get(address, "/metrics", origin="http://example.org"))[0] == 403
        await peer.send("orders", b"1")
        text = await scrape(broker)
        assert 'cluster="DefaultCluster"' in text
        assert 'zone="north"' in text
        assert samples(text)["rocketmq_messages_in_total"] == {
            ("false", "normal", "orders", "north"): 1
        }
    with pytest.raises(OSError, match="connect"):
        await get(address, "/readyz")


async def test_without_being_asked_nothing_is_served_or_counted() -> None:
    async with open_broker() as (broker, peer):
        await peer.send("orders", b"1")
        assert broker.metrics_address is None
        assert broker.core.stats.figures is None


async def test_apaches_settings_ask_for_it() -> None:
    text = "metricsExporterType=PROM\nmetricsPromExporterHost=127.0.0.1\nmetricsPromExporterPort=0"
    config, warnings = BrokerConfig.from_properties(text)
    assert not warnings
    async with EmbeddedBroker(config=config) as broker:
        assert broker.metrics_address is not None
        assert (await get(broker.metrics_address, "/healthz"))[0] == 200
    for other in ("OTLP_GRPC", "LOG"):
        with pytest.raises(ConfigurationError, match="write DISABLE or PROM"):
            BrokerConfig.from_properties(f"metricsExporterType={other}")
    with pytest.raises(ConfigurationError, match="is no label"):
        BrokerConfig.from_properties("metricsLabel=zone")
    with pytest.raises(ConfigurationError, match="70000"):
        EmbeddedBroker(metrics=70000)


async def test_a_port_that_is_taken_is_named() -> None:
    async with EmbeddedBroker(metrics=0) as broker:
        with pytest.raises(ConfigurationError, match="in use"):
            async with EmbeddedBroker(metrics=broker.metrics_address):
                pass


async def test_a_long_start_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, go_on, told = MessageStore._load, threading.Event(), threading.Event()

    def slow(store: MessageStore) -> None:
        assert store.on_recovery is not None
        store.on_recovery(300, 900)
        told.set()
        assert go_on.wait(30)
        load(store)

    monkeypatch.setattr(MessageStore, "_load", slow)
    seen: list[tuple[int, int]] = []
    broker = EmbeddedBroker(tmp_path, metrics=0)
    broker.on_recovery = lambda done, total: seen.append((done, total))

    async def look() -> None:
        await until(told.is_set)
        address = broker.metrics_address
        assert address is not None
        expected = "not ready: the store is being opened: 300 of 900 bytes of log read\n"
        assert await get(address, "/readyz") == (503, expected)
        assert (await get(address, "/healthz"))[0] == 200
        found = samples(await scrape(broker))
        assert found["rocketmq_sdk_recovered_bytes"] == {(): 300}
        assert found["rocketmq_sdk_taking_messages"] == {(): 0}
        go_on.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        async with broker:
            assert broker.metrics_address is not None
            assert (await get(broker.metrics_address, "/readyz"))[0] == 200
    assert seen == [(300, 900)]


async def test_what_keeps_messages_out_is_told_in_words() -> None:
    settings: dict[str, Any] = {
        "memory_limit": 1 << 22,
        "memory_full_policy": "REFUSE_SENDS",
        "mapped_file_size_commit_log": 1 << 20,
    }
    async with open_broker(metrics=0, **settings) as (broker, peer):
        assert broker.metrics_address is not None
        answers = [await peer.ask(_large()) for _ in range(12)]
        assert answers[-1].code
        status, text = await get(broker.metrics_address, "/readyz")
        assert status == 503
        head, *reasons = text.splitlines()
        assert head == "not ready: not taking messages"
        assert reasons == list(broker.health().reasons)
        assert (await get(broker.metrics_address, "/healthz"))[0] == 200
        found = samples(await scrape(broker))
        assert found["rocketmq_sdk_taking_messages"] == {(): 0}
        assert found["rocketmq_sdk_put_failures_total"][()] > 0


def _large() -> Any:
    from support.broker import send_request

    return send_request("orders", b"x" * (1 << 19))


async def test_a_store_that_has_failed_for_good_asks_for_a_restart() -> None:
    async with EmbeddedBroker(metrics=0) as broker:
        assert broker.metrics_address is not None
        broker.store._flusher.fail(StoreError("the disk does not answer"))
        status, text = await get(broker.metrics_address, "/healthz")
        assert (status, text) == (503, "the broker needs a restart: the disk does not answer\n")
        assert (await get(broker.metrics_address, "/readyz"))[0] == 503


async def test_a_broker_that_closes_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so until it has closed, so that nobody is sent there any more."""
    close, seen = EmbeddedBroker._close, list[tuple[int, str]]()

    async def asked(broker: EmbeddedBroker, *arguments: Any) -> None:
        assert broker.metrics_address is not None
        for path in ("/readyz", "/healthz"):
            seen.append(await get(broker.metrics_address, path))
        await close(broker, *arguments)

    monkeypatch.setattr(EmbeddedBroker, "_close", asked)
    async with open_broker(metrics=0):
        pass
    assert seen == [(503, "not ready: the broker closes\n"), (200, "the broker runs\n")]


async def test_a_slave_has_metrics_of_its_own() -> None:
    """How far it is behind, told by itself and by its master; it took no messages."""
    here: dict[str, Any] = {
        "listen": 0,
        "metrics": 0,
        "mapped_file_size_commit_log": 65536,
        "memory_limit": 64 << 20,
    }
    pair = {"broker_role": "SYNC_MASTER", "total_replicas": 2, "in_sync_replicas": 2}
    async with (
        EmbeddedBroker(namesrv_listen=0, slave_timeout=30_000, **pair, **here) as master,
        EmbeddedBroker(
            broker_role="SLAVE", broker_id=1, namesrv_addr=master.namesrv_address, **here
        ) as slave,
        Producer("shop", namesrv=master.namesrv_address) as producer,
    ):
        follower = slave.parts.replication.slave
        assert follower is not None
        await until(lambda: follower.state is SlaveState.FOLLOWING)
        await producer.send(Message("orders", b"1"))
        pages = {
            name: samples(await scrape(each))
            for name, each in (("master", master), ("slave", slave))
        }
    for name, page in pages.items():
        assert page["rocketmq_sdk_broker_role"] == {(name,): 1}
    assert list(pages["master"]["rocketmq_sdk_slave_behind_bytes"].values()) == [0]
    assert pages["slave"]["rocketmq_sdk_master_ahead_bytes"] == {(): 0}
    assert pages["master"]["rocketmq_messages_in_total"] == {("false", "normal", "orders"): 1}
    assert "rocketmq_messages_in_total" not in pages["slave"]
