"""The name server: its tables, its requests, and the expiry of silent brokers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.broker_embedded.namesrv.addresses import Addresses
from rocketmq_sdk.broker_embedded.namesrv.broker_requests import BrokerRequests
from rocketmq_sdk.broker_embedded.namesrv.config import LiveNamesrvConfig, NamesrvConfig
from rocketmq_sdk.broker_embedded.namesrv.kv import KeyValueTable
from rocketmq_sdk.broker_embedded.namesrv.kv_requests import KeyValueRequests
from rocketmq_sdk.broker_embedded.namesrv.registrar import Registrar
from rocketmq_sdk.broker_embedded.namesrv.route_requests import RouteRequests
from rocketmq_sdk.broker_embedded.namesrv.route_table import RouteTable
from rocketmq_sdk.broker_embedded.namesrv.setting_requests import SettingRequests
from rocketmq_sdk.broker_embedded.part import Service
from rocketmq_sdk.broker_embedded.request import handlers_of
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.remoting.dispatch import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.namesrv.registration import (
        BrokerRegistration,
        RegistrationResult,
    )
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.budget import MemoryBudget
    from rocketmq_sdk.remoting.channel import Channel


def dialled_address(port: Callable[[], int | None], fallback: str) -> Callable[[Channel], str]:
    """Where a client reaches the broker in this process.

    It is the host that the client dialled for the name server, with the broker's port.
    A client whose connection has no host, as in the same process, gets `fallback`, and
    so does everyone while the broker has no port.
    """

    def address(channel: Channel) -> str:
        number = port()
        if number is None:
            return fallback
        try:
            host, _ = split_address(channel.local_address)
        except ConfigurationError:
            return fallback
        return join_address(host, number)

    return address


class NameServer:
    """A name server without sockets.

    `handler` serves the commands of any channel, `register` the broker in the same
    process.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        config: NamesrvConfig | None = None,
        address: str | None = None,
        kv_file: TableFile | None = None,
        own_address: Callable[[Channel], str] | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        """`own_address` gives a peer the address of the broker in this process.

        That broker registers as `OWN_BROKER`. `address` is where the name server itself
        listens on TCP, None where it does not; `memory` counts what large requests take
        while they are decoded. Raises `StoreCorruptError` when the
        key-value file cannot be read.
        """
        self.address = address
        """Where it listens on TCP; None where it does not."""
        port = 0 if address is None else split_address(address)[1]
        self.config = LiveNamesrvConfig(attrs.evolve(config or NamesrvConfig(), listen_port=port))
        """Its settings in force."""
        live, addresses = self.config, Addresses(own_address)
        self.table = RouteTable()
        """What it knows of brokers and topics."""
        self.kv = KeyValueTable(kv_file)
        """Texts of administrators, the order configuration of topics among them."""
        self._registrar = Registrar(clock, live, self.table, self.kv)
        self._memory = memory
        self._subjects = (
            BrokerRequests(clock, self.table, self._registrar, addresses),
            RouteRequests(clock, live, self.table, self.kv, addresses),
            KeyValueRequests(self.kv),
            SettingRequests(live),
        )

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """A row for each request that it serves; made when somebody asks.

        Their limits of waiting and what they say of slaves and the VIP port are for
        brokers: a name server has none of the three.
        """
        return tuple(row for subject in self._subjects for row in subject.requests())

    @cached_property
    def handler(self) -> Dispatcher:
        """Its table of handlers."""
        return Dispatcher(handlers_of(self.requests, memory=self._memory))

    @property
    def on_registration(self) -> list[Callable[[BrokerRegistration], None]]:
        """Called with each registration that was taken in."""
        return self._registrar.on_registration

    def register(self, registration: BrokerRegistration) -> RegistrationResult | None:
        """Register the broker in the same process; None when it is refused."""
        return self._registrar.register(registration)

    def unregister(self, cluster: str, address: str, broker_name: str, broker_id: int) -> None:
        """Forget an address of a broker."""
        self.table.unregister(cluster, address, broker_name, broker_id)

    def order_configuration(self) -> dict[str, str] | None:
        """The order configuration of topics for registering brokers, or None."""
        return self._registrar.order_configuration()

    def service(self) -> Service:
        """`run`, for a broker in the same process."""
        return Service("name server", self.run, on_call=self._registrar.on_call)

    async def run(self) -> None:
        """Remove brokers as they time out, until cancelled."""
        await self._registrar.run()
