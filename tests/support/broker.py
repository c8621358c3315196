"""An embedded broker as tests use it: requests over a local channel, one function for
each.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.protocol.bodies.members import ConsumerData, HeartbeatData
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader
from rocketmq_sdk.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.subscription import SubscriptionData, build_subscription
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel

OWN = "127.0.0.1:10911"


def call_services(broker: EmbeddedBroker) -> None:
    """Let all services have their tasks, whether they have something to do or not."""
    for watched in broker.core.supervisor._services:
        if watched.service.on_call is not None:
            watched.service.on_call.call()


def send_request(
    topic: str,
    body: bytes,
    *,
    queue_id: int = 0,
    tag: str | None = None,
    properties: str = "",
    **fields: Any,
) -> Command:
    """SEND_MESSAGE_V2 as a producer makes it."""
    text = properties + (f"TAGS\x01{tag}\x02" if tag else "")
    values: dict[str, Any] = {
        "producer_group": "PG",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": text,
        **fields,
    }
    return Command.request(
        RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2(**values), body=body
    )


def pull_request(
    topic: str,
    offset: int,
    *,
    queue_id: int = 0,
    group: str = "CG",
    hold: float = 0.0,
    expression: str | None = "*",
    **fields: Any,
) -> Command:
    """PULL_MESSAGE with the subscription in it (unless `expression` is None), held for
    `hold` seconds.
    """
    flag = (PullSysFlag.SUSPEND if hold else 0) | (
        PullSysFlag.SUBSCRIPTION if expression is not None else 0
    )
    values: dict[str, Any] = {
        "consumer_group": group,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": flag,
        "commit_offset": 0,
        "suspend_timeout_millis": int(hold * 1000),
        "subscription": expression,
        "sub_version": 0,
        **fields,
    }
    return Command.request(RequestCode.PULL_MESSAGE, PullMessageRequestHeader(**values))


def heartbeat(
    client_id: str,
    group: str,
    *subscriptions: SubscriptionData,
    model: MessageModel = MessageModel.CLUSTERING,
    **fields: Any,
) -> Command:
    """HEART_BEAT of a consumer."""
    data = ConsumerData(
        group, ConsumeType.CONSUME_PASSIVELY, model, ConsumeFrom.LAST_OFFSET, subscriptions
    )
    return Command.request(
        RequestCode.HEART_BEAT, body=HeartbeatData(client_id, (), (data,), **fields).encode()
    )


def subscription(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    """A subscription by tags."""
    return build_subscription(topic, expression, sub_version=version)


class Peer:
    """One client's connection: asks, and keeps what the broker asks."""

    def __init__(self) -> None:
        self.channel: Channel
        self.requests: list[Command] = []

    def handle(self, channel: Channel, request: Command) -> None:
        self.requests.append(request)

    async def ask(self, request: Command | int, timeout: float = 60.0, **ext: Any) -> Command:
        """Send a request, or a code with ext fields, and wait for the answer."""
        if isinstance(request, int):
            request = Command(request, ext_fields={name: str(value) for name, value in ext.items()})
        return await self.channel.call(request, timeout)

    async def send(self, topic: str, body: bytes, **fields: Any) -> Command:
        """Send a message; it must be accepted."""
        answer = await self.ask(send_request(topic, body, **fields))
        assert answer.code == 0, answer
        return answer

    async def pull(self, topic: str, offset: int = 0, **fields: Any) -> list[ReceivedMessage]:
        """Pull messages; there must be some."""
        answer = await self.ask(pull_request(topic, offset, **fields))
        assert answer.code == 0, answer
        return decode_messages(answer.body)

    async def send_back(
        self, message: ReceivedMessage, group: str = "CG", level: int = 0, **fields: Any
    ) -> Command:
        """Send a message back."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset, group=group, delay_level=level, **fields
        )
        return await self.ask(Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header))


class PeerOfMortal(Peer):
    """A client of a broker that dies with its file system: no answer comes after the
    death, whatever the broker's code would still say.
    """

    def __init__(self, files: FaultyFileSystem) -> None:
        super().__init__()
        self.files = files

    async def ask(self, request: Command | int, timeout: float = 60.0, **ext: Any) -> Command:
        answer = await super().ask(request, timeout, **ext)
        if self.files.dead:
            raise ConnectError("the broker is dead", outcome_unknown=True)
        return answer


async def connect(
    broker: EmbeddedBroker,
    nursery: trio.Nursery,
    *,
    namesrv: bool = False,
    peer: Peer | None = None,
    **options: Any,
) -> Peer:
    """Another connection to an open broker, or to its name server."""
    peer = peer or Peer()
    peer.channel = await broker.open_channel(
        None if namesrv else broker.core.address(), peer.handle, nursery, **options
    )
    return peer


@asynccontextmanager
async def open_broker(
    path: Any = None, **settings: Any
) -> AsyncIterator[tuple[EmbeddedBroker, Peer]]:
    """A broker and one connection to it."""
    async with EmbeddedBroker(path, **settings) as broker, trio.open_nursery() as nursery:
        yield broker, await connect(broker, nursery)
        nursery.cancel_scope.cancel()


class BrokerOnFiles(EmbeddedBroker):
    """A broker whose store lies in a given file system, such as one that fails and dies
    on command.
    """

    def __init__(self, files: FileSystem, **settings: Any) -> None:
        super().__init__(**settings)
        self._given_files = files

    def _files(self) -> FileSystem:
        return self._given_files


@asynccontextmanager
async def open_on(files: FileSystem, **settings: Any) -> AsyncIterator[tuple[EmbeddedBroker, Peer]]:
    """A broker in a given file system and one connection to it, which is deaf once the
    file system is dead.
    """
    peer = PeerOfMortal(files) if isinstance(files, FaultyFileSystem) else None
    async with BrokerOnFiles(files, **settings) as broker, open_quiet_nursery() as nursery:
        yield broker, await connect(broker, nursery, peer=peer)
        nursery.cancel_scope.cancel()
