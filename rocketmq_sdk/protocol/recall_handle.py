"""Handles by which a timed message can be recalled before it is due.

Follows `RecallMessageHandle` of Apache RocketMQ 5.4.0.

URL-safe Base64 of
`v1 <topic> <broker name> <time of delivery, epoch milliseconds> <unique key>`,
separated by single blanks.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from rocketmq_sdk.errors import RemoteProtocolError

VERSION: Final = "v1"
_PARTS: Final = 5
_ALPHABET: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class RecallHandle(NamedTuple):
    """The parts of a recall handle.

    `timestamp` is a text, because whoever made the handle may have written anything
    there.
    """

    topic: str
    broker_name: str
    timestamp: str
    unique_key: str

    def encode(self) -> str:
        """The text that clients keep."""
        return urlsafe_b64encode(f"{VERSION} {' '.join(self)}".encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """The parts of a handle. Raises `RemoteProtocolError`.

    Words behind the fifth are ignored, as Apache does.
    """
    raw = text.rstrip("=").encode("utf-8", "replace")
    try:
        if not raw or len(text) - len(raw) > 2 or not _ALPHABET.issuperset(raw):
            raise ValueError("no Base64")
        words = (
            urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
            .decode("utf-8", "replace")
            .rstrip(" ")
            .split(" ")
        )
    except (ValueError, binascii.Error):
        words = []
    if len(words) < _PARTS or words[0] != VERSION:
        raise RemoteProtocolError("recall handle is invalid")
    return RecallHandle(*words[1:_PARTS])
