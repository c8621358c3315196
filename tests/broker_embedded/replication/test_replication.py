"""Two brokers of ours, master and slave, over TCP: what their clients see."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    EmbeddedBroker,
    Message,
    Producer,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.broker_embedded.timers.checkpoint import read_checkpoint
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError, StoreError
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.members import (
    MessageRequestMode,
    SetMessageRequestModeRequestBody,
)
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.testing.interception import intercept, refused
from support.broker import connect, pull_request, send_request
from support.ports import free_port
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.real_time

SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 65536, "memory_limit": 64 << 20}


@asynccontextmanager
async def open_pair(
    path: Any = None, **settings: Any
) -> AsyncIterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    """A SYNC_MASTER and its slave, which has found it and follows."""
    master_settings = {
        "broker_role": "SYNC_MASTER",
        "total_replicas": 2,
        "in_sync_replicas": 2,
        "slave_timeout": 30_000,
        **SIZES,
        **settings,
    }
    async with (
        EmbeddedBroker(
            listen=0, namesrv_listen=0, slave_read_enable=True, **master_settings
        ) as master,
        open_slave(master, path) as slave,
    ):
        yield master, slave


@asynccontextmanager
async def open_slave(
    master: EmbeddedBroker, path: Any = None, **settings: Any
) -> AsyncIterator[EmbeddedBroker]:
    options = {
        "broker_role": "SLAVE",
        "broker_id": 1,
        "namesrv_addr": master.namesrv_address,
        "slave_read_enable": True,
        **SIZES,
        **settings,
    }
    async with EmbeddedBroker(path, listen=0, namesrv_listen=0, **options) as slave:
        await until(lambda: state(slave) is SlaveState.FOLLOWING)
        yield slave


def state(slave: EmbeddedBroker) -> SlaveState:
    assert slave.parts.replication.slave is not None
    return slave.parts.replication.slave.state


async def test_a_message_that_was_acknowledged_is_at_the_slave(tmp_path: Any) -> None:
    async with (
        open_pair(tmp_path) as (master, slave),
        Producer("writers", namesrv=master.namesrv_address) as producer,
    ):
        for number in range(20):
            result = await producer.send(Message("orders", b"%d" % number))
            assert result.status is SendStatus.SEND_OK
            assert (
                slave.store.max_offset("orders", result.queue.queue_id) == result.queue_offset + 1
            )
        assert slave.core.topics.get("orders") is not None, (
            "known at once, whatever the rhythm of the synchronisation"
        )
        await until(lambda: slave.core.topics.get("orders") == master.core.topics.get("orders"))


async def test_a_slave_takes_over_topics_groups_and_offsets() -> None:
    async with open_pair() as (master, slave), trio.open_nursery() as nursery:
        peer = await connect(master, nursery)
        await peer.send("orders", b"one")
        master.core.groups.get("readers")
        master.core.offsets.commit("readers", "orders", 0, 1)
        sync = slave.parts.replication.sync
        assert sync is not None
        sync.wake()
        await until(lambda: slave.core.offsets.query("readers", "orders", 0) == 1)
        await until(lambda: slave.core.groups.all() == master.core.groups.all())
        await until(lambda: slave.core.topics.all() == master.core.topics.all())
        assert slave.core.topics.data_version == master.core.topics.data_version
        nursery.cancel_scope.cancel()


async def test_tables_that_differ_under_the_same_version_are_taken_over() -> None:
    async with open_pair() as (master, slave):
        await until(lambda: slave.core.topics.data_version == master.core.topics.data_version)
        for broker, queues in ((master, 4), (slave, 8)):
            broker.core.topics.put(TopicConfig("orders", queues, queues))
            broker.core.groups.update(SubscriptionGroupConfig("readers", retry_max_times=queues))
        slave.core.topics.data_version = master.core.topics.data_version
        slave.core.groups.data_version = master.core.groups.data_version
        assert slave.parts.replication.sync is not None
        slave.parts.replication.sync.wake()
        await until(lambda: slave.core.topics.all() == master.core.topics.all())
        await until(lambda: slave.core.groups.all() == master.core.groups.all())


async def test_a_slave_takes_over_modes_and_a_master_that_does_not_know_them_is_no_problem() -> (
    None
):
    async with open_pair() as (master, slave):
        await master.parts.members.modes.set(
            SetMessageRequestModeRequestBody("orders", "readers", MessageRequestMode.POP, 2)
        )
        sync = slave.parts.replication.sync
        assert sync is not None
        sync.wake()
        await until(lambda: slave.parts.members.modes.get("orders", "readers") is not None)
        intercept(
            master,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
            RequestCode.GET_TIMER_CHECK_POINT,
            by=refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not here"),
        )
        sync.synced.clear()
        sync.wake()
        await until(lambda: "numbers of timers" in sync.synced)
        assert sync._problems == {}


def _bodies(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """Every message that consumers of a topic see, sorted."""
    store = broker.store
    found: list[bytes] = []
    for queue_id in store.queue_ids(topic):
        for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
            unit = store.queue_unit(topic, queue_id, offset)
            assert unit is not None
            record = store.record_at(unit[0], unit[1])
            assert record is not None
            found.append(decode_messages(record)[0].body)
    return sorted(found)


@pytest.mark.timeout(180)
async def test_a_slave_made_master_ends_what_its_master_began_and_shows_nothing_twice(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {"message_delay_level": "1s 2s", "flush_disk_type": "SYNC_FLUSH"}
    async with open_pair(tmp_path, **settings) as (master, slave):
        namesrv = master.namesrv_address
        begun = master.core.clock.now_ms()
        async with TransactionProducer(
            "payments",
            namesrv=namesrv,
            checker=lambda _message: TransactionState.UNKNOWN,
            send_timeout=30,
        ) as producer:
            for number in range(5):
                async with producer.transaction(Message("orders", b"committed %d" % number)):
                    pass
            async with producer.transaction(Message("orders", b"open")) as transaction:
                transaction.unknown()
            await producer.send(Message("orders", b"delayed", delay_level=1))
            await producer.send(Message("orders", b"soon", deliver_at=begun + 2000))
            await producer.send(Message("orders", b"later", deliver_at=begun + 600_000))
        await until(lambda: len(_bodies(slave, "orders")) == 7)
        sync = slave.parts.replication.sync
        assert sync is not None
        sync.wake()
        await until(lambda: read_checkpoint(slave.store.files).last_read_time > begun + 2000)
        await until(lambda: slave.parts.timers.schedule.offset(1) == 1)
        assert slave.parts.timers.service.timers.pending_count == 0, "a slave serves no timers"
    expected = sorted([*(b"committed %d" % number for number in range(5)), b"delayed", b"soon"])
    async with EmbeddedBroker(tmp_path, **SIZES, **settings) as promoted:
        assert len(promoted.parts.transactions.table) == 1
        await until(lambda: promoted.parts.timers.service.timers.pending_count == 1)
        async with Producer("payments", namesrv=promoted) as producer:
            # What comes again would come before these.
            await producer.send(Message("orders", b"mark of levels", delay_level=1))
            now = promoted.core.clock.now_ms()
            await producer.send(Message("orders", b"mark of timers", deliver_at=now + 100))
        expected = sorted([*expected, b"mark of levels", b"mark of timers"])
        await until(lambda: len(_bodies(promoted, "orders")) >= len(expected))
        assert _bodies(promoted, "orders") == expected


async def test_a_slave_refuses_what_only_its_master_does() -> None:
    async with open_pair() as (_master, slave), trio.open_nursery() as nursery:
        peer = await connect(slave, nursery)
        answer = await peer.ask(send_request("orders", b"one"))
        assert (answer.code, answer.remark) == (
            2,
            "[REJECTREQUEST]system busy, start flow control for a while",
        )
        assert (await peer.ask(RequestCode.END_TRANSACTION)).code == 11
        nursery.cancel_scope.cancel()


async def test_reads_at_a_slave_by_its_setting_and_its_masters_life(tmp_path: Any) -> None:
    async with (
        EmbeddedBroker(listen=0, namesrv_listen=0, total_replicas=2, **SIZES) as master,
        trio.open_nursery() as nursery,
    ):
        async with open_slave(master, tmp_path) as slave:
            peer, reader = await connect(master, nursery), await connect(slave, nursery)
            await peer.send("orders", b"one")
            await until(lambda: slave.store.max_offset("orders", 0) == 1)
            answer = await reader.ask(pull_request("orders", 0))
            assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (0, "0")
            answer = await reader.ask(pull_request("orders", 1, hold=60))
            assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (20, "0"), (
                "what is not here is asked for at the master, at once"
            )
            slave._live.current = slave.config.with_options({"slave_read_enable": False})
            answer = await reader.ask(pull_request("orders", 0))
            assert (answer.code, answer.remark) == (
                2,
                "[REJECTREQUEST]system busy, start flow control for a while",
            )
        nursery.cancel_scope.cancel()
    alone = {
        "broker_role": "SLAVE",
        "broker_id": 1,
        "ha_master_address": master.ha_address,
        "slave_read_enable": True,
        **SIZES,
    }
    async with EmbeddedBroker(tmp_path, **alone) as slave, trio.open_nursery() as nursery:
        await until(lambda: state(slave) is SlaveState.AWAY)
        reader = await connect(slave, nursery)
        answer = await reader.ask(pull_request("orders", 0))
        assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (0, "1"), (
            "the master is gone: its readers stay here"
        )
        assert [message.body for message in decode_messages(answer.body)] == [b"one"]
        answer = await reader.ask(pull_request("orders", 7))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (19, "7"), (
            "the master may have what this slave has not"
        )
        nursery.cancel_scope.cancel()


async def test_a_master_sends_slow_readers_to_the_slave() -> None:
    settings = {"slave_read_enable": True, "access_message_in_memory_max_ratio": 0}
    async with EmbeddedBroker(**settings) as broker, trio.open_nursery() as nursery:
        peer = await connect(broker, nursery)
        for _ in range(3):
            await peer.send("orders", b"x")
        answer = await peer.ask(pull_request("orders", 0))
        assert answer.ext_fields["suggestWhichBrokerId"] == "1"
        broker._live.current = broker.config.with_options({"slave_read_enable": False})
        answer = await peer.ask(pull_request("orders", 0))
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"
        nursery.cancel_scope.cancel()


async def test_the_vip_port_serves_sends_and_no_pulls() -> None:
    async with EmbeddedBroker(listen=0) as broker, trio.open_nursery() as nursery:
        peer = await connect(broker, nursery)
        peer.channel = await broker.vip_server.local(peer.handle, nursery)
        await peer.send("orders", b"one")
        answer = await peer.ask(pull_request("orders", 0))
        assert answer.code == 3
        nursery.cancel_scope.cancel()


async def test_a_vip_port_that_is_taken_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    port = free_port(-2, 2)
    async with EmbeddedBroker(listen=port), EmbeddedBroker(listen=port + 2) as second:
        assert second.address == f"127.0.0.1:{port + 2}"
    assert any("there is no VIP port" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"broker_role": "SLAVE"}, "brokerId"),
        ({"broker_id": 1}, "brokerRole=SLAVE"),
        ({"in_sync_replicas": 2}, "totalReplicas"),
        ({"enable_slave_acting_master": True}, "enable_slave_acting_master"),
        ({"broker_role": "SLAVE", "broker_id": 1, "ha_master_address": "nowhere"}, "nowhere"),
    ],
)
async def test_roles_that_contradict_themselves_are_refused(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        async with EmbeddedBroker(**settings):
            pass


async def test_a_sync_master_notes_no_delivery_that_its_slaves_do_not_have(tmp_path: Path) -> None:
    """A slave made master in its place would never deliver it again."""
    noted = tmp_path / "config" / "delayOffset.json"
    settings: dict[str, Any] = {
        "broker_role": "SYNC_MASTER",
        "in_sync_replicas": 2,
        "total_replicas": 2,
        "slave_timeout": 200,
        **SIZES,
    }
    async with (
        EmbeddedBroker(tmp_path, listen=0, namesrv_listen=0, **settings) as master,
        trio.open_nursery() as nursery,
    ):
        peer = await connect(master, nursery)
        await peer.ask(send_request("orders", b"later", properties="DELAY\x011\x02", queue_id=0))
        schedule = master.parts.timers.schedule
        await until(lambda: schedule.offset(1) == 1)
        with pytest.raises(StoreError, match="not enough slaves"):
            await schedule.persist()
        assert not noted.exists()
        async with open_slave(master):
            master._live.current = master.config.with_options({"slave_timeout": 60_000})
            await schedule.persist()
            assert json.loads(noted.read_bytes())["offsetTable"] == {"1": 1}
        nursery.cancel_scope.cancel()


async def test_health_tells_of_slaves_that_are_missing_or_gone() -> None:
    settings: dict[str, Any] = {
        "broker_role": "SYNC_MASTER",
        "total_replicas": 2,
        "in_sync_replicas": 2,
        "min_in_sync_replicas": 2,
        **SIZES,
    }
    async with EmbeddedBroker(listen=0, namesrv_listen=0, **settings) as master:
        health = master.health()
        assert not health, "sends are refused"
        refused, missing = health.reasons
        assert refused.startswith("1 of 2 copies of the log are in sync, and minInSyncReplicas")
        assert missing == "0 of 1 slaves are connected"
        async with open_slave(master):
            await until(lambda: bool(master.health()))
            assert master.health().reasons == ()
        await until(lambda: not master.health())
        assert master.health().reasons[-1].startswith("the slave at 127.0.0.1 is gone for 0 s; it")
        async with open_slave(master):
            await until(lambda: bool(master.health()))
            assert master.health().reasons == ()


async def test_the_last_port_has_none_behind_it_for_slaves() -> None:
    async with EmbeddedBroker(listen="127.0.0.1:65535") as broker:
        assert broker.address == "127.0.0.1:65535"
    with pytest.raises(ConfigurationError, match="65536: there are ports 0 to 65535"):
        async with EmbeddedBroker(listen="127.0.0.1:65535", broker_role="SYNC_MASTER"):
            pass
