"""Registers the broker at name servers (`BrokerController.registerBrokerAll`).

The name server in the same process is called directly, so it knows a topic before the
send that made it is answered. Each name server elsewhere has a task of its own. It
registers everything at the start and again every 30 seconds, which keeps the broker
alive there, and changed topics at once. An unreachable name server delays nobody.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.broker_embedded.namesrv.registration import (
    NEVER_MS,
    OWN_BROKER,
    BrokerRegistration,
)
from rocketmq_sdk.broker_embedded.registration import calls as calls
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.model.route import MASTER_ID, parse_addresses, split_address
from rocketmq_sdk.protocol.bodies.registration import RegisterBrokerBody
from rocketmq_sdk.protocol.bodies.topics import DataVersion, TopicConfig
from rocketmq_sdk.sleeper import Sleeper, sleep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller, BrokerIdentity
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
    from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
    from rocketmq_sdk.protocol.bodies.topics import TopicConfigSerializeWrapper

logger = logging.getLogger(__name__)

WAIT_SECONDS: Final = 3.0
"""How long an answer waits for name servers elsewhere to know a new topic."""
_SHORTEST_PERIOD: Final = 10.0
_LONGEST_PERIOD: Final = 60.0
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)


class _Remote:
    """A name server elsewhere.

    Whether it holds this broker, which topics changed since its last registration, and
    the signals of its task.
    """

    __slots__ = ("address", "changed", "registered", "sleeper", "told", "woken")

    def __init__(self, address: str) -> None:
        self.address = address
        self.registered = False
        self.changed: dict[str, TopicConfig] = {}
        self.woken = False
        self.sleeper = Sleeper()
        self.told = trio.Event()

    def note(self, topic: TopicConfig) -> None:
        self.changed[topic.topic_name] = topic
        self.rouse()

    def rouse(self) -> None:
        if self.told.is_set():
            self.told = trio.Event()
        self.woken = True
        self.sleeper.wake_at(-math.inf)


class RegistrationService:
    """Registers the broker.

    The topic manager calls `topic_changed`; answers check `waiting` before they leave.
    """

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicManager,
        *,
        identity: Callable[[], BrokerIdentity],
        namesrv: NameServer | None = None,
        caller: AddressCaller | None = None,
    ) -> None:
        """`identity` says who registers; `caller` carries calls to `namesrvAddr`.

        `identity` is called at each registration. Raises `ConfigurationError` when
        `namesrvAddr` holds something that is no address.
        """
        self._config = config
        self._topics = topics
        self._identity = identity
        self._namesrv = namesrv
        self._caller = caller
        addresses = config.current.namesrv_addr
        self._remotes = (
            [_Remote(address) for address in parse_addresses(addresses)]
            if addresses and caller is not None
            else []
        )
        self._written: tuple[tuple[TopicConfigSerializeWrapper, bool], bytes] | None = None
        self.on_master: Callable[[str | None, str | None], None] = lambda _master, _ha_server: None
        """Called with each registration of a slave.

        Its arguments are the master's address and its port for slaves, where the name
        server knows them.
        """
        self._on_call = OnCall()
        config.on_change.append(self._config_changed)
        if namesrv is not None and config.current.is_slave:
            namesrv.on_registration.append(self._somebody_registered)

    # The name server in the same process

    def register_own(self) -> None:
        """Tell the name server in the same process everything; synchronous."""
        wrapper = self._topics.wrapper()
        self._tell_own(wrapper.topic_config_table, wrapper.data_version)

    async def _repeat_own(self) -> None:
        """Register at the own name server again and again.

        So what administrators or another broker of this name took out of the route
        comes back.
        """
        while True:
            self.register_own()
            await sleep(self._period())

    def _tell_own(self, topics: dict[str, TopicConfig], version: DataVersion | None) -> bool:
        """Register topics; False when the own name server refuses an increment."""
        namesrv = self._namesrv
        if namesrv is None:
            return True
        identity = self._identity()
        result = namesrv.register(
            BrokerRegistration(
                cluster=identity.cluster,
                address=self._own_address(identity),
                broker_name=identity.broker_name,
                broker_id=identity.broker_id,
                ha_server_address=self._own_ha_address(identity),
                heartbeat_timeout_ms=NEVER_MS,
                topics=self._permitted(topics),
                data_version=version or DataVersion(),
                filter_servers=(),
            )
        )
        if result is not None and self._config.current.is_slave:
            self.on_master(result.master_address, result.ha_server_address)
        for topic in namesrv.order_configuration() or ():
            self._topics.set_order(topic)
        return result is not None

    def _somebody_registered(self, registration: BrokerRegistration) -> None:
        """A master that registers at the name server of its slave is found at once."""
        if (
            registration.broker_name == self._config.current.broker_name
            and registration.broker_id == MASTER_ID
        ):
            self.register_own()

    def _own_ha_address(self, identity: BrokerIdentity) -> str:
        """The address for replicas; without a set host, the one that they dialled.

        The broker's own address works the same way.
        """
        config = self._config.current
        if config.broker_ip1 is not None or config.broker_ip2 is not None:
            return identity.ha_server_address
        return f"{OWN_BROKER}:{split_address(identity.ha_server_address)[1]}"

    def _own_address(self, identity: BrokerIdentity) -> str:
        return OWN_BROKER if self._config.current.broker_ip1 is None else identity.address

    def _permitted(self, topics: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
        """The topics with no more permissions than the broker itself has."""
        permission = self._config.current.broker_permission
        if permission & _READ_WRITE == _READ_WRITE:
            return topics
        return {
            name: attrs.evolve(topic, perm=topic.perm & permission)
            for name, topic in topics.items()
        }

    # Changes

    def topic_changed(self, topic: TopicConfig) -> None:
        """A topic was created or changed: register it.

        The name server in this process knows it when this returns, the others soon
        after.
        """
        if not self._tell_own({topic.topic_name: topic}, self._topics.data_version):
            # The name server has forgotten the broker; it needs all topics.
            self.register_own()
        for remote in self._remotes:
            remote.note(topic)

    def waiting(self) -> Callable[[], Awaitable[None]] | None:
        """What an answer about a new topic has to wait for, or None.

        It is a function that waits at most 3 s, and logs a warning when that was not
        enough. Name servers that cannot be reached at the moment are not waited for.
        """
        events = {
            remote.address: remote.told
            for remote in self._remotes
            if remote.registered and not remote.told.is_set()
        }
        if not events:
            return None

        async def wait() -> None:
            with trio.move_on_after(WAIT_SECONDS) as scope:
                for told in events.values():
                    await told.wait()
            if scope.cancelled_caught:
                slow = [address for address, told in events.items() if not told.is_set()]
                logger.warning(
                    "the name servers %s do not know a changed topic after %.0f s",
                    ", ".join(slow),
                    WAIT_SECONDS,
                )

        return wait

    def _config_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        if before.broker_permission != after.broker_permission:
            self._topics.renew_version()
            self.register_own()
            for remote in self._remotes:
                remote.changed = dict(self._topics.all())
                remote.rouse()

    # Name servers elsewhere

    @property
    def name_servers(self) -> tuple[str, ...]:
        """All name servers with an address: the own one where it has a port, others."""
        own = None if self._namesrv is None else self._namesrv.address
        elsewhere = tuple(remote.address for remote in self._remotes)
        return elsewhere if own is None else (own, *elsewhere)

    @property
    def registered_at(self) -> tuple[str, ...]:
        """The name servers elsewhere that are known to hold this broker."""
        return tuple(remote.address for remote in self._remotes if remote.registered)

    def begin(self) -> OnCall:
        """What `run` is called by, once `register_own` was."""
        if self._remotes:
            self._on_call.call()
        self._on_call.after = self._period()
        return self._on_call

    async def run(self) -> None:
        """Keep the broker registered until cancelled.

        It is registered at the name server in this process and at `namesrvAddr`.
        """
        async with trio.open_nursery() as nursery:
            if self._namesrv is not None:
                nursery.start_soon(self._repeat_own)
            for remote in self._remotes:
                nursery.start_soon(self._follow, remote)

    async def wait_tried(self) -> None:
        """Wait at most 3 s until each name server elsewhere was tried once.

        It has then registered this broker, or could not be reached.
        """
        if self._remotes:
            with trio.move_on_after(WAIT_SECONDS):
                for remote in self._remotes:
                    await remote.told.wait()

    async def _follow(self, remote: _Remote) -> None:
        while True:
            remote.woken = False
            changed, remote.changed = remote.changed, {}
            try:
                await self._tell(remote, changed)
                remote.registered = True
            except RocketMQError as error:
                log = logger.warning if remote.registered or not changed else logger.info
                log(
                    "registration at the name server %s failed and is tried again: %s",
                    remote.address,
                    error,
                )
                remote.registered = False
            if not remote.changed:
                remote.told.set()
            pause = self._period() if remote.registered else _SHORTEST_PERIOD
            moment = -math.inf if remote.woken else trio.current_time() + pause
            await remote.sleeper.sleep_until(moment)

    def _period(self) -> float:
        """Slaves ask more often, as the answer tells them where their master is."""
        config = self._config.current
        period = max(
            _SHORTEST_PERIOD, min(config.register_name_server_period / 1000, _LONGEST_PERIOD)
        )
        return _SHORTEST_PERIOD if config.is_slave else period

    async def _tell(self, remote: _Remote, changed: dict[str, TopicConfig]) -> None:
        """One registration: changed topics only, if the server knows the rest."""
        caller = self._caller
        assert caller is not None
        config, identity = self._config.current, self._identity()
        timeout = config.register_broker_timeout_mills / 1000
        wrapper = self._topics.wrapper()
        table = changed if remote.registered and changed else wrapper.topic_config_table
        if remote.registered and not changed and not config.force_register:
            version = wrapper.data_version or DataVersion()
            if not await calls.topics_changed(
                caller, remote.address, identity, version, timeout=timeout
            ):
                return
        wrapper = attrs.evolve(wrapper, topic_config_table=self._permitted(table))
        registered = await calls.register_broker(
            caller,
            remote.address,
            identity,
            self._encoded(wrapper, config.compressed_register),
            compressed=config.compressed_register,
            timeout=timeout,
        )
        if config.is_slave:
            self.on_master(registered.master_address, registered.ha_server_address)
        for topic in registered.order:
            self._topics.set_order(topic)

    def _encoded(self, wrapper: TopicConfigSerializeWrapper, compressed: bool) -> bytes:
        """The body of a registration: for hours the same one."""
        told = wrapper, compressed
        if self._written is None or self._written[0] != told:
            body = RegisterBrokerBody(wrapper)
            self._written = told, body.encode_compressed() if compressed else body.encode()
        return self._written[1]

    async def unregister(self, timeout: float = WAIT_SECONDS) -> None:
        """Unregister at all name servers; failures are only logged.

        Those elsewhere get `timeout` seconds.
        """
        identity = self._identity()
        if self._namesrv is not None:
            self._namesrv.unregister(
                identity.cluster,
                self._own_address(identity),
                identity.broker_name,
                identity.broker_id,
            )
        if not self._remotes:
            return
        with trio.move_on_after(timeout):
            async with trio.open_nursery() as nursery:
                for remote in self._remotes:
                    nursery.start_soon(self._leave, remote, identity, timeout)

    async def _leave(self, remote: _Remote, identity: BrokerIdentity, timeout: float) -> None:
        assert self._caller is not None
        try:
            await calls.unregister_broker(self._caller, remote.address, identity, timeout=timeout)
        except RocketMQError as error:
            logger.info(
                "the name server %s was not told that the broker is gone: %s", remote.address, error
            )
