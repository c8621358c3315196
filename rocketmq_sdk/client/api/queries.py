"""Looking messages up at brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import NotFoundError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.queries import (
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from rocketmq_sdk.protocol.message_codec import decode_message, decode_messages

if TYPE_CHECKING:
    from rocketmq_sdk.model.received import ReceivedMessage


KEY: Final = "K"
UNIQUE: Final = "U"
TAG: Final = "T"
QUERY_MAX: Final = 64
"""The most messages that a broker answers a query with, by default."""
QUERY_TIMEOUT: Final = 18.0
"""Seconds; a broker may have to look into many files (`MQAdminImpl`)."""
_NOT_THERE: Final = "can not find message"


async def view_message(
    client: Caller,
    address: str,
    broker_name: str,
    offset: int,
    topic: str | None = None,
    timeout: float | None = None,
) -> ReceivedMessage:
    """The message at a position of a broker's log (33).

    Raises `NotFoundError` when none begins there.
    """
    header = ViewMessageRequestHeader(topic=topic, offset=offset)
    response = await client.call_address(
        address, Command.request(RequestCode.VIEW_MESSAGE_BY_ID, header), timeout
    )
    if response.code == ResponseCode.SYSTEM_ERROR and (response.remark or "").startswith(
        _NOT_THERE
    ):
        raise NotFoundError(response.code, response.remark, address=address, topic=topic)
    return decode_message(
        checked(response, address=address, topic=topic).body, broker_name=broker_name
    )


async def query_messages(
    client: Caller,
    address: str,
    broker_name: str,
    topic: str,
    key: str,
    *,
    index_type: str = KEY,
    limit: int = QUERY_MAX,
    begin: int = 0,
    end: int = (1 << 63) - 1,
    timeout: float | None = QUERY_TIMEOUT,
) -> list[ReceivedMessage]:
    """Messages of a topic that one broker finds in its index (12).

    `index_type` says what `key` is: a key, a unique id or a tag.

    Brokers compare hashes only; here the others are left out. `begin` and `end` are
    store times in epoch milliseconds.
    """
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=limit,
        begin_timestamp=begin,
        end_timestamp=end,
        index_type=index_type,
    )
    command = Command.request(RequestCode.QUERY_MESSAGE, header)
    command.ext_fields["_UNIQUE_KEY_QUERY"] = "true" if index_type == UNIQUE else "false"
    response = await client.call_address(address, command, timeout)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    found = decode_messages(
        checked(response, address=address, topic=topic).body, broker_name=broker_name
    )
    return [
        message for message in found if message.topic == topic and _has(message, key, index_type)
    ]


def _has(message: ReceivedMessage, key: str, index_type: str) -> bool:
    if index_type == UNIQUE:
        return message.message_id == key
    return (
        message.tags == key
        if index_type == TAG
        else key in message.keys or message.message_id == key
    )
