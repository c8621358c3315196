"""What the broker knows of one connected client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketmq_sdk.codes import LanguageCode
    from rocketmq_sdk.remoting.channel import Channel


class ClientChannel:
    """A connection and the client at its other end (`ClientChannelInfo`).

    `last_update` is monotonic seconds, `last_update_ms` epoch milliseconds.
    """

    __slots__ = ("channel", "client_id", "language", "last_update", "last_update_ms", "version")

    def __init__(
        self,
        channel: Channel,
        client_id: str,
        language: LanguageCode | None,
        version: int,
        now: float,
        now_ms: int,
    ) -> None:
        self.channel = channel
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_update = now
        self.last_update_ms = now_ms

    def renew(self, now: float, now_ms: int) -> None:
        """The client was heard of again."""
        self.last_update = now
        self.last_update_ms = now_ms
