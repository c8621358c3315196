"""The name server: its registry, the requests about it, and the dispatcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.namesrv.broker_requests import BrokerRequests
from rocketmq_sdk.broker_embedded.namesrv.registry import Registry
from rocketmq_sdk.broker_embedded.namesrv.setting_requests import SettingRequests
from rocketmq_sdk.broker_embedded.namesrv.topic_requests import TopicRequests
from rocketmq_sdk.broker_embedded.request import handlers_of
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.remoting.dispatch import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.channel import Channel


def dialled_address(port: Callable[[], int | None], fallback: str) -> Callable[[Channel], str]:
    """How to tell a client where the own broker listens: the host that it dialled for
    the name server, with the broker's port.

    A client whose connection has no host, as in the same process, and everyone while
    the broker has no port, is told `fallback`.
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


class NameServer(Registry):
    """A name server without sockets: `handler` serves the commands of any channel,
    `register` the broker in the same process.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        config: NamesrvConfig | None = None,
        kv_file: TableFile | None = None,
        own_address: Callable[[Channel], str] | None = None,
    ) -> None:
        """`own_address` tells a channel's peer where the broker that registered as
        `OWN_BROKER` is.

        Raises `StoreCorruptError` when the key-value file cannot be read.
        """
        super().__init__(clock, config=config, kv_file=kv_file, own_address=own_address)
        self.handler = Dispatcher(handlers_of(self.requests()))

    def requests(self) -> tuple[Request, ...]:
        """A row for each request that it serves."""
        subjects = (BrokerRequests(self), TopicRequests(self), SettingRequests(self))
        return tuple(row for subject in subjects for row in subject.requests())
