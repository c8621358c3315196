"""Recalling timed messages.

Follows `MQClientAPIImpl.recallMessage` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError, RemoteProtocolError, WrongTypeError
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.names import DLQ_PREFIX, RETRY_PREFIX
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.timers import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from rocketmq_sdk.protocol.recall_handle import RecallHandle, decode_recall_handle


async def recall_message(
    client: Caller,
    handle: RecallHandle,
    group: str,
    timeout: float | None = None,
    *,
    broker_name: str | None = None,
) -> str:
    """Recall a timed message (370); returns its unique id.

    The broker is the one that the handle names, or `broker_name`.

    Raises the broker's error: NO_PERMISSION where recalls are switched off,
    ILLEGAL_OPERATION for a handle that is not valid (any more). After a timeout the
    message may be taken back all the same.
    """
    header = RecallMessageRequestHeader(
        producer_group=group,
        topic=handle.topic,
        recall_handle=handle.encode(),
        bname=handle.broker_name,
    )
    response = await client.call_broker(
        broker_name or handle.broker_name,
        Command.request(RequestCode.RECALL_MESSAGE, header),
        timeout,
    )
    return RecallMessageResponseHeader.from_ext(
        checked(response, topic=handle.topic).ext_fields
    ).msg_id


def handle_parts(handle: object) -> RecallHandle:
    """The parts of a recall handle, or of the one in a send's result.

    Raises `ConfigurationError` for anything else, and for messages that cannot be
    recalled.
    """
    text = handle.recall_handle if isinstance(handle, SendResult) else handle
    if text is None and handle is not None:
        raise ConfigurationError(
            "the broker gave no recall handle for this message; only messages with a time of "
            "delivery can be taken back"
        )
    if not isinstance(text, str):
        raise WrongTypeError(
            f"{handle!r:.200} is no recall handle; give the result of the message's send, or its "
            "recall_handle"
        )
    try:
        parts = decode_recall_handle(text)
    except RemoteProtocolError as error:
        raise ConfigurationError(f"{text[:200]!r} cannot be used: {error}") from None
    if parts.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise ConfigurationError(f"messages of {parts.topic!r} cannot be taken back")
    return parts
