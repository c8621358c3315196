"""What `Producer.recall` is given: a send's result or its recall handle."""

from __future__ import annotations

from rocketmq_sdk.errors import ConfigurationError, RemoteProtocolError
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.names import DLQ_PREFIX, RETRY_PREFIX
from rocketmq_sdk.protocol.recall_handle import RecallHandle, decode_recall_handle


def handle_parts(handle: object) -> RecallHandle:
    """The parts of a handle. Raises `ConfigurationError` for what is none, and for
    messages that cannot be taken back.
    """
    text = handle.recall_handle if isinstance(handle, SendResult) else handle
    if text is None and handle is not None:
        raise ConfigurationError(
            "the broker gave no recall handle for this message; only messages with a time of "
            "delivery can be taken back"
        )
    if not isinstance(text, str):
        raise ConfigurationError(
            f"{handle!r} is no recall handle; give the result of the message's send, or its "
            "recall_handle"
        )
    try:
        parts = decode_recall_handle(text)
    except RemoteProtocolError as error:
        raise ConfigurationError(f"{text[:200]!r} cannot be used: {error}") from None
    if parts.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise ConfigurationError(f"messages of {parts.topic!r} cannot be taken back")
    return parts
