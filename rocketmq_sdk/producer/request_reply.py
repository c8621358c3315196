"""Requests that wait for a reply of a consumer.

Follows `DefaultMQProducer.request`, `MessageUtil.createReplyMessage` of Apache RocketMQ
5.4.0.

A request is an ordinary message with three more properties: a correlation id, the
client that waits, and how long. Who consumes it sends the reply to the cluster's reply
topic, and the broker pushes it to the waiting client on its own connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.clock import LAST_CHANCE, STOOD_STILL
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.distinct import correlation_id
from rocketmq_sdk.errors import ConfigurationError, ProtocolError, RequestTimeoutError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.properties import (
    CLUSTER,
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    property_in_text,
)
from rocketmq_sdk.model.route import pack_host, split_address
from rocketmq_sdk.names import reply_topic
from rocketmq_sdk.protocol.headers.send import ReplyMessageRequestHeader
from rocketmq_sdk.protocol.message_codec import decode_message, encode_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.command import Command

logger = logging.getLogger("rocketmq_sdk.producer")


class ReplyMessage(Message):
    """The reply to a request, made by `reply_message`; sent like any other message."""

    __slots__ = ()

    send_code = RequestCode.SEND_REPLY_MESSAGE_V2


def reply_message(
    request: ReceivedMessage,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> ReplyMessage:
    """The message that answers a request; send it with `Producer.send`.

    Raises `ConfigurationError` when the message received is no request, or does not
    name the cluster it came through.
    """
    found = request.properties
    cluster, correlation, client_id = (
        found.get(CLUSTER),
        found.get(CORRELATION_ID),
        found.get(REPLY_TO_CLIENT),
    )
    if not correlation or not client_id:
        raise ConfigurationError(
            f"{request!r} is no request: it has no correlation id or names nobody to reply to"
        )
    if not cluster:
        raise ConfigurationError(
            f"{request!r} does not name its cluster, so there is no reply topic for it"
        )
    reply = ReplyMessage(reply_topic(cluster), body, tags=tags, keys=keys, properties=properties)
    text = (
        f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01{correlation}\x02"
        f"REPLY_TO_CLIENT\x01{client_id}\x02"
    )
    if found.get(TTL):
        text += f"TTL\x01{found[TTL]}\x02"
    return reply.with_more(text)


class _Waiting:
    """One request without its reply."""

    __slots__ = ("arrived", "reply")

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.reply: ReceivedMessage | None = None


class RequestTable:
    """The requests of one producer that wait for replies, by correlation id."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self) -> str:
        """Begin to wait; gives the correlation id."""
        correlation = correlation_id()
        self._waiting[correlation] = _Waiting()
        return correlation

    def close(self, correlation: str) -> None:
        """Nobody waits any more."""
        self._waiting.pop(correlation, None)

    async def reply(self, correlation: str, deadline: float, what: str) -> ReceivedMessage:
        """Wait for the reply until a moment of trio's clock.

        Raises `RequestTimeoutError` when it does not come.
        """
        waiting = self._waiting[correlation]
        with trio.move_on_at(deadline):
            await waiting.arrived.wait()
        if waiting.reply is None and trio.current_time() - deadline > STOOD_STILL:
            # The loop was blocked. The reply may be here, and not be read yet.
            with trio.move_on_after(LAST_CHANCE):
                await waiting.arrived.wait()
        if waiting.reply is None:
            raise RequestTimeoutError(f"{what} was sent, and no reply came in time")
        return waiting.reply

    def take(self, command: Command, now_ms: int) -> bool:
        """Hand a pushed reply to its request; False when nobody here waits for it."""
        header = ReplyMessageRequestHeader.from_ext(command.ext_fields)
        waiting = self._waiting.get(property_in_text(header.properties or "", CORRELATION_ID) or "")
        if waiting is None:
            return False
        try:
            waiting.reply = received_reply(header, command.body, now_ms)
        except ProtocolError as error:
            logger.warning("a reply cannot be read: %s", error)
            return True
        waiting.arrived.set()
        return True


def received_reply(header: ReplyMessageRequestHeader, body: bytes, now_ms: int) -> ReceivedMessage:
    """A pushed reply as a message; it has no place in a log.

    Raises `ProtocolError` for one that cannot be read.
    """
    text = f"{header.properties or ''}ARRIVE_TIME\x01{now_ms}\x02"
    record = encode_record(
        header.topic.encode(),
        body,
        text.encode("utf-8", "replace"),
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_packed(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_packed(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_offset=0,
    )
    return decode_message(record, broker_name=header.bname or "")


def _packed(address: str) -> bytes:
    """A host as records hold it, zeros for one that cannot be read."""
    try:
        return pack_host(*split_address(address.removeprefix("/")))
    except (ConfigurationError, ValueError):
        return bytes(8)


def request_properties(correlation: str, client_id: str, seconds: float) -> str:
    """What makes a message a request."""
    return (
        f"CORRELATION_ID\x01{correlation}\x02REPLY_TO_CLIENT\x01{client_id}\x02"
        f"TTL\x01{max(1, int(seconds * 1000))}\x02"
    )
