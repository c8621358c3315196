"""`Admin` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.client`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.admin.client import Admin as InnerAdmin
from rocketmq_sdk.aio.faces.admin_acls import Acls
from rocketmq_sdk.aio.faces.admin_cluster import Cluster
from rocketmq_sdk.aio.faces.admin_dead_letters import DeadLetters
from rocketmq_sdk.aio.faces.admin_groups import Groups
from rocketmq_sdk.aio.faces.admin_messages import Messages
from rocketmq_sdk.aio.faces.admin_topics import Topics
from rocketmq_sdk.aio.faces.admin_users import Users
from rocketmq_sdk.aio.faces.client import Client
from rocketmq_sdk.aio.life import Entered, inner_client
from rocketmq_sdk.doors.face import inner_of

if TYPE_CHECKING:
    from typing import Unpack

    from rocketmq_sdk.aio.arguments import NamesrvSource
    from rocketmq_sdk.client.config import ClientOptions


class Admin(Entered):
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

    _inner: InnerAdmin

    def __init__(
        self,
        *,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._inner = InnerAdmin(namesrv=inner_of(namesrv), client=inner_client(client), **options)
        self.client = self._client_of(client, Client, self._inner.client)
        owner = self if client is None else self.client
        self.cluster = owner._adopt(Cluster(self._inner.cluster))
        self.topics = owner._adopt(Topics(self._inner.topics))
        self.groups = owner._adopt(Groups(self._inner.groups))
        self.messages = owner._adopt(Messages(self._inner.messages))
        self.dead_letters = owner._adopt(DeadLetters(self._inner.dead_letters))
        self.users = owner._adopt(Users(self._inner.users))
        self.acls = owner._adopt(Acls(self._inner.acls))
