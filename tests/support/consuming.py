"""A sender that needs no producer, a listener that keeps what it got, and a network
that can be cut.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.client.api.topics import create_topic
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConnectError, broker_error
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeaderV2
from rocketmq_sdk.protocol.message_codec import decode_message, encode_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler
    from rocketmq_sdk.remoting.source import ChannelSource


class Sender:
    """Stores messages in chosen queues."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._number = 0

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        for address in self.client.brokers.all() or [await self._broker()]:
            await create_topic(
                self.client,
                address,
                TopicConfig(topic, read_queue_nums=queues, write_queue_nums=queues),
            )

    async def _broker(self) -> str:
        route = await self.client.route("TBW102")
        return route.broker_datas[0].broker_addrs[0]

    async def send(
        self,
        topic: str,
        *bodies: str | bytes,
        queue: int | None = None,
        tags: str | None = None,
        queues: int = 4,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        address = await self._broker()
        for body in bodies:
            raw = body.encode() if isinstance(body, str) else body
            message = Message(topic, raw, tags=tags, properties=properties)
            self._number += 1
            header = SendMessageRequestHeaderV2(
                producer_group="sender",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=self._number % queues if queue is None else queue,
                sys_flag=0,
                born_timestamp=self.client.clock.now_ms(),
                flag=0,
                properties=f"UNIQ_KEY\x01{self._number:032X}\x02{message.property_text()}",
            )
            response = await self.client.call_address(
                address, Command.request(RequestCode.SEND_MESSAGE_V2, header, body=raw)
            )
            if response.code != 0:
                raise broker_error(response.code, response.remark)


@asynccontextmanager
async def open_sender(broker: EmbeddedBroker) -> AsyncIterator[Sender]:
    async with Client(broker) as client:
        client.routes.use("TBW102")
        yield Sender(client)


class Collector:
    """A listener that keeps what it got."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.times: list[float] = []

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.messages]

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        self.times.append(trio.current_time())


def stored(offset: int, body: bytes = b"body", *, topic: str = "T", queue_id: int = 0) -> bytes:
    """A record as a broker stores it."""
    return encode_record(
        topic.encode(),
        body,
        f"UNIQ_KEY\x01{offset:032X}\x02".encode(),
        queue_id=queue_id,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 200,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=2,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
    )


def received(
    offset: int,
    body: bytes = b"body",
    *,
    topic: str = "T",
    queue_id: int = 0,
    broker_name: str = "broker-a",
) -> ReceivedMessage:
    """A message as if a broker had stored it."""
    message = decode_message(stored(offset, body, topic=topic, queue_id=queue_id))
    message.broker_name = broker_name
    return message


class Switch:
    """A source of channels between clients and a broker that can be cut, or led to
    another broker.
    """

    def __init__(self, broker: ChannelSource | None) -> None:
        self.broker = broker
        self.name_server_only = False
        self._channels: list[tuple[str | None, Channel]] = []

    def knows(self, address: str) -> bool:
        return True

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> Channel:
        if self.broker is None or (self.name_server_only and address is not None):
            raise ConnectError("the test has cut the connection", address=address)
        channel = await self.broker.open_channel(address, handler, nursery)
        self._channels.append((address, channel))
        return channel

    def cut(self, *, brokers_only: bool = False) -> None:
        """End all connections; new ones fail until `connect`."""
        self.name_server_only = brokers_only
        if not brokers_only:
            self.broker = None
        for address, channel in self._channels:
            if address is not None or not brokers_only:
                channel.abort("the test has cut the connection")
        self._channels.clear()

    def connect(self, broker: ChannelSource) -> None:
        self.broker = broker
        self.name_server_only = False


def texts(messages: Sequence[ReceivedMessage]) -> list[str]:
    """The bodies of messages as text."""
    return [message.body.decode() for message in messages]


async def drain(consumer: LitePullConsumer, count: int) -> list[str]:
    """Poll until so many messages have come; each is done at once."""
    found: list[str] = []
    with trio.fail_after(60):
        while len(found) < count:
            messages = await consumer.poll()
            found += texts(messages)
            if not consumer.config.polled_is_done:
                consumer.done(*messages)
    return found


def committed(broker: EmbeddedBroker, group: str, topic: str, queues: int = 4) -> list[int]:
    """The offsets that the broker keeps for a group, -1 where there is none."""
    return [broker.core.offsets.query(group, topic, queue_id) for queue_id in range(queues)]
