"""Registration at name servers elsewhere: their own name server answers, over a caller
that can fail.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
from rocketmq_sdk.broker_embedded.registration.calls import BrokerIdentity
from rocketmq_sdk.broker_embedded.registration.service import RegistrationService
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.protocol.command import Command
from support.administration import ADDRESS, FakeChannel, TableInMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Elsewhere:
    """Name servers behind a network."""

    def __init__(self, *addresses: str) -> None:
        self.namesrvs = {address: NameServer(TrioClock()) for address in addresses}
        self.channels = {address: FakeChannel() for address in addresses}
        self.down: set[str] = set()
        self.delay = 0.01
        self.asked: list[tuple[str, int]] = []

    async def call(self, address: str | None, command: Command, timeout: float) -> Command:
        assert address is not None
        self.asked.append((address, command.code))
        await trio.sleep(self.delay)
        if address in self.down:
            raise ConnectError("nobody is there", address=address)
        answer = self.namesrvs[address].handler(self.channels[address], command)
        assert isinstance(answer, Command)
        return answer

    def knows(self, address: str, topic: str) -> bool:
        return self.namesrvs[address].table.route(topic) is not None

    def registrations(self, address: str) -> int:
        return self.asked.count((address, RequestCode.REGISTER_BROKER))


class Broker:
    def __init__(self, elsewhere: Elsewhere, **settings: object) -> None:
        config = LiveConfig(BrokerConfig(namesrv_addr=";".join(elsewhere.namesrvs), **settings))  # type: ignore[arg-type]
        self.config = config
        self.topics = TopicManager(TableInMemory(), config, TrioClock())
        identity = BrokerIdentity("DefaultCluster", "broker-a", 0, ADDRESS, "127.0.0.1:21912")
        self.registration = RegistrationService(
            config, self.topics, identity=lambda: identity, caller=elsewhere
        )
        self.topics.on_change = self.registration.topic_changed

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.registration.run)
            yield
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("compressed", [False, True])
async def test_the_whole_at_first_then_every_thirty_seconds(
    autojump_clock: trio.testing.MockClock, compressed: bool
) -> None:
    elsewhere = Elsewhere("a:1", "b:1")
    broker = Broker(elsewhere, compressed_register=compressed)
    with trio.fail_after(300):
        async with broker.running():
            await trio.sleep(1)
            assert elsewhere.knows("a:1", "TBW102")
            assert elsewhere.knows("b:1", "TBW102")
            assert elsewhere.registrations("a:1") == 1
            await trio.sleep(95)
            assert elsewhere.registrations("a:1") == 4
            await broker.registration.unregister()
            assert not elsewhere.knows("a:1", "TBW102")


async def test_a_new_topic_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    elsewhere = Elsewhere("a:1")
    broker = Broker(elsewhere)
    with trio.fail_after(300):
        async with broker.running():
            assert broker.registration.waiting() is None, (
                "nobody has registered yet, so nobody is waited for"
            )
            await trio.sleep(1)
            assert broker.registration.waiting() is None
            broker.topics.create_on_send("T", "TBW102", 4)
            broker.topics.create_on_send("U", "TBW102", 4)
            wait = broker.registration.waiting()
            assert wait is not None
            await wait()
            assert elsewhere.knows("a:1", "T")
            assert elsewhere.knows("a:1", "U")
            assert broker.registration.waiting() is None


async def test_waiting_ends_after_three_seconds(autojump_clock: trio.testing.MockClock) -> None:
    elsewhere = Elsewhere("a:1")
    broker = Broker(elsewhere)
    with trio.fail_after(300):
        async with broker.running():
            await trio.sleep(1)
            elsewhere.delay = 20
            broker.topics.create_on_send("T", "TBW102", 4)
            wait = broker.registration.waiting()
            assert wait is not None
            before = trio.current_time()
            await wait()
            assert trio.current_time() - before == pytest.approx(3.0)


async def test_a_name_server_that_is_down_delays_nobody_and_is_told_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    elsewhere = Elsewhere("a:1", "b:1")
    elsewhere.down.add("b:1")
    broker = Broker(elsewhere)
    with trio.fail_after(300):
        async with broker.running():
            await trio.sleep(1)
            broker.topics.create_on_send("T", "TBW102", 4)
            wait = broker.registration.waiting()
            assert wait is not None
            await wait()
            assert elsewhere.knows("a:1", "T")
            elsewhere.down.clear()
            await trio.sleep(11)
            assert elsewhere.knows("b:1", "T")


async def test_a_name_server_that_lost_its_memory_gets_the_whole_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    elsewhere = Elsewhere("a:1")
    broker = Broker(elsewhere)
    with trio.fail_after(300):
        async with broker.running():
            await trio.sleep(1)
            elsewhere.namesrvs["a:1"] = NameServer(TrioClock())
            broker.topics.create_on_send("T", "TBW102", 4)
            await trio.sleep(12)
            assert elsewhere.knows("a:1", "T")
            assert elsewhere.knows("a:1", "TBW102")


async def test_without_force_only_a_change_registers_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    elsewhere = Elsewhere("a:1")
    broker = Broker(elsewhere, force_register=False)
    with trio.fail_after(300):
        async with broker.running():
            await trio.sleep(100)
            assert elsewhere.registrations("a:1") == 1
            assert elsewhere.asked.count(("a:1", RequestCode.QUERY_DATA_VERSION)) == 3


async def test_order_configuration_comes_back(autojump_clock: trio.testing.MockClock) -> None:
    elsewhere = Elsewhere("a:1")
    await elsewhere.namesrvs["a:1"].kv.put("ORDER_TOPIC_CONFIG", "TBW102", "broker-a:8")
    broker = Broker(elsewhere)
    with trio.fail_after(300):
        async with broker.running():
            await trio.sleep(1)
            default = broker.topics.get("TBW102")
            assert default is not None
            assert default.order


async def test_permission_of_the_broker_limits_its_topics(
    autojump_clock: trio.testing.MockClock,
) -> None:
    elsewhere = Elsewhere("a:1")
    broker = Broker(elsewhere)
    with trio.fail_after(300):
        async with broker.running():
            await trio.sleep(1)
            broker.config.update({"brokerPermission": "4"}, 1)
            await trio.sleep(1)
            route = elsewhere.namesrvs["a:1"].table.route("TBW102")
            assert route is not None
            assert route.queue_datas[0].perm == 4


async def test_leaving_takes_no_longer_than_allowed(autojump_clock: trio.testing.MockClock) -> None:
    elsewhere = Elsewhere("a:1")
    elsewhere.delay = 1000
    broker = Broker(elsewhere)
    with trio.fail_after(10):
        await broker.registration.unregister(2.0)
