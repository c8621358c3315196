"""`Admin`, which inspects and changes a cluster.

Follows `DefaultMQAdminExt` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Unpack

from rocketmq_sdk.admin.access import Acls, Users
from rocketmq_sdk.admin.cluster import Cluster
from rocketmq_sdk.admin.dead_letters import DeadLetters
from rocketmq_sdk.admin.groups import Groups
from rocketmq_sdk.admin.messages import Messages
from rocketmq_sdk.admin.topics import Topics
from rocketmq_sdk.client.config import CLIENT_OPTIONS
from rocketmq_sdk.client.runtime import Client, check_client
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.lifecycle import RunsOnce
from rocketmq_sdk.validators import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.client.config import ClientOptions, NamesrvSource


class Admin(RunsOnce):
    """Inspects and changes a cluster.

    Use it as `async with Admin(namesrv=...) as admin`.

    `cluster` tells of brokers, `topics` and `groups` make, change, measure and delete,
    `messages` finds stored messages and their traces and follows a topic,
    `dead_letters` shows what groups gave up and sends it again, `users` and `acls` are
    about access control. `namesrv` is a list of addresses or an `EmbeddedBroker`
    (unset: `NAMESRV_ADDR`); or `client=` shares a running `Client`, and need not be
    entered then. The options are those of `ClientConfig`.

    Raises `ConfigurationError` for settings that are unknown or not acceptable.
    """

    _second_time = "an admin object is entered once; make a new one"

    def __init__(
        self,
        *,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        refuse_unknown(options, CLIENT_OPTIONS, "Admin")
        if client is not None and (namesrv is not None or options):
            raise ConfigurationError("give either client= or the settings of a client of its own")
        check_client(client)
        self._owns_client = client is None
        self.client = client if client is not None else Client(namesrv, **options)
        self.cluster = Cluster(self.client)
        self.topics = Topics(self.client, self.cluster)
        self.groups = Groups(self.client, self.cluster)
        self.messages = Messages(self.client)
        self.dead_letters = DeadLetters(self.client, self.topics, self.messages)
        self.users = Users(self.client, self.cluster)
        self.acls = Acls(self.client, self.cluster)

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        if not self._owns_client:
            yield
            return
        async with self.client:
            yield
