"""A message queue: one queue of one topic at one broker."""

from __future__ import annotations

from functools import total_ordering


@total_ordering
class MessageQueue:
    """Topic, broker name and queue id.

    Hashable, ordered like Apache's `MessageQueue` (topic, broker name, queue id).
    """

    __slots__ = ("_hash", "broker_name", "queue_id", "topic")

    topic: str
    broker_name: str
    queue_id: int

    def __init__(self, topic: str, broker_name: str, queue_id: int) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self._hash = hash((topic, broker_name, queue_id))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageQueue):
            return NotImplemented
        return (
            self.queue_id == other.queue_id
            and self.topic == other.topic
            and self.broker_name == other.broker_name
        )

    def __lt__(self, other: MessageQueue) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[str, str, int]:
        return self.topic, self.broker_name, self.queue_id

    def __repr__(self) -> str:
        return (
            f"MessageQueue(topic={self.topic!r}, broker_name={self.broker_name!r}, "
            f"queue_id={self.queue_id})"
        )
