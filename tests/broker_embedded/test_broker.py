"""The embedded broker as a whole: opening, ports, directories, closing, failures."""

from __future__ import annotations

import gc
import json
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
import trustme

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import (
    ClosedError,
    ConfigurationError,
    ConnectError,
    RocketMQError,
    StoreError,
    StoreLockedError,
    WrongTypeError,
)
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.bodies.routes import decode_route
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import (
    OWN,
    Peer,
    call_services,
    connect,
    open_broker,
    open_on,
    pull_request,
    send_request,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


async def test_brokers_in_memory_are_isolated(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_first, one), open_broker() as (second, other):
            await one.send("orders", b"for the first")
            assert second.store.max_physical_offset == 0
            answer = await other.ask(pull_request("orders", 0))
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.real_time
async def test_opening_in_memory_takes_milliseconds() -> None:
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        async with EmbeddedBroker():
            times.append(time.perf_counter() - begin)
    assert min(times) <= 0.2  # some milliseconds on a machine with nothing else to do


async def test_opening_makes_few_objects(autojump_clock: MockClock) -> None:
    """Each has to be looked at by the garbage collector, which costs more than making
    it.
    """
    async with EmbeddedBroker():
        pass
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        async with EmbeddedBroker():
            made = gc.get_count()[0] - before
    finally:
        gc.enable()
    assert made < 2100  # 1,750 or so; a closure for each request would double it


async def test_the_first_send_makes_topic_and_route(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
            peer, namesrv = (
                await connect(broker, nursery),
                await connect(broker, nursery, namesrv=True),
            )
            assert (
                await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            ).code == ResponseCode.TOPIC_NOT_EXIST
            await peer.send("orders", b"hello", queue_id=2)
            route = decode_route(
                (await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")).body
            )
            assert route.broker_datas[0].broker_addrs == {0: OWN}
            assert route.queue_datas[0].write_queue_nums == 4
            assert broker.knows(OWN)
            assert not broker.knows("127.0.0.1:1")
            nursery.cancel_scope.cancel()


async def test_local_channels_through_the_codec(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
            peer = await connect(broker, nursery, through_codec=True)
            await peer.send("orders", b"hello")
            [message] = await peer.pull("orders")
            assert message.body == b"hello"
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"flush_disk_typ": "SYNC_FLUSH"}, "did you mean flush_disk_type"),
        ({"brokerNam": "x"}, "did you mean brokerName"),
        ({"zzzzzz": 1}, "has no setting zzzzzz$"),
        ({"default_topic_queue_nums": 0}, "default_topic_queue_nums"),
        ({"broker_role": "SLAVE"}, "brokerRole=SLAVE"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        EmbeddedBroker(**settings)  # type: ignore[arg-type]


def test_settings_in_either_spelling() -> None:
    broker = EmbeddedBroker(
        flush_disk_type="SYNC_FLUSH",
        brokerName="shop-broker",
        autoCreateTopicEnable=False,
        max_message_size=1000,
    )
    assert broker.config.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert broker.config.broker_name == "shop-broker"
    assert not broker.config.auto_create_topic_enable
    assert broker.config.store.max_message_size == 1000


@pytest.mark.real_time
async def test_a_directory_is_durable_and_has_one_opener(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_broker(tmp_path) as (broker, peer):
            await peer.send("orders", b"kept", tag="A")
            broker.core.offsets.commit("CG", "orders", 0, 1)
            with pytest.raises(StoreLockedError, match=str(tmp_path)):
                async with EmbeddedBroker(tmp_path):
                    raise AssertionError("opened twice")
        assert json.loads((tmp_path / "config" / "consumerOffset.json").read_text())[
            "offsetTable"
        ] == {"orders@CG": {"0": 1}}
        async with open_broker(tmp_path) as (broker, peer):
            [message] = await peer.pull("orders")
            assert message.body == b"kept"
            assert broker.core.offsets.query("CG", "orders", 0) == 1


@pytest.mark.real_time
async def test_ports(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with (
            EmbeddedBroker(listen=0, namesrv_listen="127.0.0.1:0") as broker,
            trio.open_nursery() as nursery,
        ):
            assert broker.address is not None
            assert broker.namesrv_address is not None
            peer, namesrv = Peer(), Peer()
            peer.channel = await TcpChannelSource().open_channel(
                broker.address, peer.handle, nursery
            )
            namesrv.channel = await TcpChannelSource().open_channel(
                broker.namesrv_address, namesrv.handle, nursery
            )
            answer = await peer.send("orders", b"hello")
            port = int(broker.address.rpartition(":")[2])
            assert answer.ext_fields["msgId"].startswith(f"7F000001{port:08X}")
            route = decode_route(
                (await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")).body
            )
            assert route.broker_datas[0].broker_addrs == {0: broker.address}
            local = await connect(broker, nursery)
            [message] = await local.pull("orders")
            assert message.born_host[:4] == b"\x7f\x00\x00\x01"
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            with pytest.raises(ConnectError):
                await TcpChannelSource().open_channel(broker.address, peer.handle, nursery)


async def test_closing_answers_held_pulls_and_closes_channels(autojump_clock: MockClock) -> None:
    answers = []

    async def hold(peer: Peer) -> None:
        answers.append(await peer.ask(pull_request("orders", 1, hold=15)))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            async with EmbeddedBroker() as broker:
                peer = await connect(broker, nursery)
                await peer.send("orders", b"hello")
                nursery.start_soon(hold, peer)
                await trio.testing.wait_all_tasks_blocked()
                assert broker.parts.pull.held.held == 1
                begin = trio.current_time()
            assert trio.current_time() - begin <= 10
            await peer.channel.wait_closed()
        assert [answer.code for answer in answers] == [ResponseCode.PULL_NOT_FOUND]
        async with trio.open_nursery() as nursery:
            with pytest.raises(ClosedError):
                await broker.open_channel(None, peer.handle, nursery)


async def test_a_failing_service_does_not_end_the_block(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        await trio.sleep(1)
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(
        "rocketmq_sdk.broker_embedded.timers.schedule.ScheduleService.run", lambda _self: broken()
    )
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker:
            call_services(broker)
            await trio.sleep(30)
            health = broker.health()
    assert "schedule service" in str(health)
    assert "ZeroDivisionError: injected" in str(health)


async def test_an_error_of_the_block_comes_out_as_itself(autojump_clock: MockClock) -> None:
    with trio.fail_after(60), pytest.raises(KeyError):
        async with EmbeddedBroker():
            raise KeyError("mine")


async def test_an_object_opens_once(autojump_clock: MockClock) -> None:
    broker = EmbeddedBroker()
    async with broker:
        pass
    with pytest.raises(ClosedError):
        async with broker:
            pass


@pytest.mark.real_time
async def test_another_run_is_refused() -> None:
    async with EmbeddedBroker() as broker:

        async def elsewhere() -> None:
            async with trio.open_nursery() as nursery:
                await broker.open_channel(None, lambda _channel, _request: None, nursery)

        with pytest.raises((RocketMQError, ExceptionGroup)) as caught:
            await trio.to_thread.run_sync(trio.run, elsewhere)
        assert "another trio.run" in str(caught.value) or "another trio.run" in str(
            getattr(caught.value, "exceptions", "")
        )


async def test_memory_is_bounded(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(memory_limit=2_000_000, memory_full_policy="REFUSE_SENDS") as (
            _broker,
            peer,
        ):
            codes = {
                (await peer.ask(send_request("orders", bytes(100_000)))).code for _ in range(40)
            }
            assert ResponseCode.SUCCESS in codes
            assert codes & {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}
            assert (await peer.ask(pull_request("orders", 0))).code == ResponseCode.SUCCESS


async def test_synchronous_flush_answers_behind_the_sync(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(flush_disk_type="SYNC_FLUSH") as (broker, peer):
            answer = await peer.send("orders", b"synced")
            assert broker.store.flushed.value == broker.store.max_physical_offset > 0
            assert answer.ext_fields["queueOffset"] == "0"
            [message] = await peer.pull("orders")
            assert message.body == b"synced"


async def test_unknown_and_unserved_codes(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            unknown = await peer.ask(12345)
            assert (unknown.code, unknown.remark) == (3, " request type 12345 not supported")
            unserved = await peer.ask(RequestCode.CONTROLLER_ELECT_MASTER)
            assert unserved.code == 3
            assert unserved.remark is not None
            assert "CONTROLLER_ELECT_MASTER" in unserved.remark


async def test_records_survive_in_order(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for number in range(100):
                await peer.send("orders", str(number).encode())
            bodies: list[bytes] = []
            while len(bodies) < 100:
                answer = await peer.ask(pull_request("orders", len(bodies)))
                bodies += [message.body for message in decode_messages(answer.body)]
            assert bodies == [str(number).encode() for number in range(100)]


@pytest.mark.real_time
async def test_a_name_server_elsewhere_knows_a_new_topic_before_the_send_is_answered() -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker(namesrv_listen=0) as home, trio.open_nursery() as nursery:
            assert home.namesrv_address is not None
            namesrv = await connect(home, nursery, namesrv=True)
            async with EmbeddedBroker(
                listen=0, namesrv_addr=home.namesrv_address, broker_name="broker-b"
            ) as broker:
                with trio.fail_after(60):
                    while "broker-b" not in str(
                        (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body
                    ):
                        await trio.sleep(0.01)
                peer = Peer()
                assert broker.address is not None
                peer.channel = await TcpChannelSource().open_channel(
                    broker.address, peer.handle, nursery
                )
                await peer.send("orders", b"x")
                route = decode_route(
                    (await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")).body
                )
                assert [(data.broker_name, data.broker_addrs) for data in route.broker_datas] == [
                    ("broker-b", {0: broker.address})
                ]
            assert "broker-b" not in str(
                (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body
            )
            nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_a_client_that_is_gone_takes_nothing_along(tmp_path: Path) -> None:
    """A connection cut in the middle of its requests; the others are served on."""
    with trio.fail_after(60):
        async with EmbeddedBroker(tmp_path, listen=0) as broker, trio.open_nursery() as nursery:
            assert broker.address is not None
            good, bad = Peer(), Peer()
            for peer in (good, bad):
                peer.channel = await TcpChannelSource().open_channel(
                    broker.address, peer.handle, nursery
                )
            await good.send("orders", b"first")
            for number in range(200):
                bad.channel.submit(send_request("orders", bytes([number])), 5)
            bad.channel.submit(pull_request("orders", 10_000, hold=15), 20)
            bad.channel.abort("gone")
            await good.send("orders", b"last")
            while broker.parts.pull.held.held:
                await trio.sleep(0.01)
            assert len(broker.server.channels) <= 2
            nursery.cancel_scope.cancel()


async def test_leaving_by_an_exception_takes_at_most_two_seconds(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(_self: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(
        "rocketmq_sdk.broker_embedded.registration.service.RegistrationService.unregister", endless
    )
    begin = trio.current_time()
    with trio.fail_after(60), pytest.raises(KeyError):
        async with EmbeddedBroker():
            raise KeyError
    assert trio.current_time() - begin <= 2.01
    begin = trio.current_time()
    with trio.fail_after(60):
        async with EmbeddedBroker():
            pass
    assert trio.current_time() - begin <= 10.01


async def test_a_name_server_that_does_not_answer_keeps_no_table_from_being_saved(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed while others are told is saved as well."""

    async def endless(_self: object) -> None:
        broker.core.offsets.commit("CG", "orders", 0, 7)
        await trio.sleep_forever()

    monkeypatch.setattr(
        "rocketmq_sdk.broker_embedded.registration.service.RegistrationService.unregister", endless
    )
    files = FaultyFileSystem()
    with trio.fail_after(60):
        async with open_on(files) as (broker, _):
            pass
        monkeypatch.undo()
        async with open_on(files) as (broker, _):
            assert broker.core.offsets.query("CG", "orders", 0) == 7


@pytest.mark.real_time
@pytest.mark.parametrize("block_fails", [False, True])
async def test_closing_tries_everything_although_a_file_cannot_be_written(
    block_fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def failing(file: ConfigFile, _value: object) -> None:
        await trio.lowlevel.checkpoint()
        tried.append(file.name)
        raise StoreError(f"No space left on device for {file.name}")

    peer = Peer()
    broker = EmbeddedBroker()

    async def open_and_leave(home: EmbeddedBroker, namesrv: Peer, nursery: trio.Nursery) -> None:
        nonlocal broker
        async with EmbeddedBroker(
            listen=0, namesrv_addr=home.namesrv_address, broker_name="broker-b"
        ) as broker:
            while "broker-b" not in str(
                (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body
            ):
                await trio.sleep(0.01)
            assert broker.address is not None
            peer.channel = await TcpChannelSource().open_channel(
                broker.address, peer.handle, nursery
            )
            broker.core.offsets.commit("CG", "orders", 0, 1)
            broker.parts.timers.schedule.dirty = True
            monkeypatch.setattr(ConfigFile, "save", failing)
            if block_fails:
                raise KeyError("mine")

    with trio.fail_after(60):
        async with EmbeddedBroker(namesrv_listen=0) as home, trio.open_nursery() as nursery:
            namesrv = await connect(home, nursery, namesrv=True)
            with pytest.raises(
                KeyError if block_fails else StoreError,
                match="mine" if block_fails else "consumerOffset.json",
            ):
                await open_and_leave(home, namesrv, nursery)
            assert set(tried) == {"consumerOffset.json", "delayOffset.json"}
            assert "broker-b" not in str(
                (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body
            )
            await peer.channel.wait_closed()
            assert broker.address is not None
            with pytest.raises(ConnectError):
                await TcpChannelSource().open_channel(broker.address, peer.handle, nursery)
            monkeypatch.undo()
            nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_tls_and_plain_on_both_ports() -> None:
    authority = trustme.CA()
    server_context, client_context = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(server_context)
    authority.configure_trust(client_context)
    with trio.fail_after(60):
        async with EmbeddedBroker(listen=0, namesrv_listen=0, tls=server_context) as broker:
            for tls in (client_context, None):
                async with Producer("PG", namesrv=broker.namesrv_address, tls=tls) as producer:
                    await producer.send(Message("orders", bytes(100_000)))
            assert sum(broker.store.max_offset("orders", queue) for queue in range(8)) == 2
            stranger = ssl.create_default_context()
            async with trio.open_nursery() as nursery:
                assert broker.address is not None
                with pytest.raises(ConnectError):
                    await TcpChannelSource(tls=stranger).open_channel(
                        broker.address, Peer().handle, nursery
                    )


def test_what_is_no_tls_context_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.SSLContext"):
        EmbeddedBroker(tls=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["path", "config_file", "namesrv_config_file"])
@pytest.mark.parametrize("value", [5, b"store", ["store"]], ids=str)
def test_what_is_no_path_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(WrongTypeError, match=f"^{name} is .*; give a path"):
        EmbeddedBroker(**{name: value})


@pytest.mark.parametrize("name", ["listen", "namesrv_listen"])
def test_what_is_no_port_is_refused(name: str) -> None:
    with pytest.raises(WrongTypeError, match=r"^1\.5 is no address"):
        EmbeddedBroker(**{name: 1.5})  # type: ignore[arg-type]


@pytest.mark.parametrize("below", ["", "store"], ids=["itself", "below"])
async def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "afile"
    file.touch()
    with pytest.raises(StoreError, match="directory") as caught:
        async with EmbeddedBroker(file / below):
            pass
    assert str(file / below) in str(caught.value)
