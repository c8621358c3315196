"""Fields of log records: what a record is about, for those who search logs by it.

Each record that is about a topic, a group, a queue or a request has them as attributes,
so that a formatter can write them (`log_format.JsonFormatter` does):

| attribute | meaning |
|---|---|
| `topic`, `group` | names, as the broker knows them |
| `broker`, `queue` | name of the broker, number of the queue |
| `message_id` | the producer's id of the message |
| `request` | name of the request, as `SEND_MESSAGE_V2` |
| `peer` | address of the other end of the connection |

A record has those that are known where it is written; an attribute that is not known is
not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from rocketmq_sdk.codes import request_name

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS: Final = ("topic", "group", "broker", "queue", "message_id", "request", "peer")
_TOPICS: Final = ("topic", "b")
_GROUPS: Final = ("consumerGroup", "group", "producerGroup", "a")
"""Fields of headers that hold a topic or a group; the short ones are those of
SEND_MESSAGE_V2, and only of it.
"""
_SEND_MESSAGE_V2: Final = 310


class _Queue(Protocol):
    """A `MessageQueue`."""

    @property
    def topic(self) -> str: ...

    @property
    def broker_name(self) -> str: ...

    @property
    def queue_id(self) -> int: ...


class _Request(Protocol):
    """A `Command`."""

    @property
    def code(self) -> int: ...

    @property
    def ext_fields(self) -> Mapping[str, str]: ...


def about(
    *,
    topic: str | None = None,
    group: str | None = None,
    queue: _Queue | int | None = None,
    message_id: str | None = None,
    request: _Request | None = None,
    peer: str | None = None,
) -> dict[str, object]:
    """The `extra` of a log record.

    A `queue` that is no number tells its topic and its broker too, a `request` what its
    header names.
    """
    found: dict[str, object] = {}
    if request is not None:
        found["request"] = request_name(request.code)
        brief = request.code == _SEND_MESSAGE_V2
        for field, names in (("topic", _TOPICS), ("group", _GROUPS)):
            for name in names if brief else names[:-1]:
                if value := request.ext_fields.get(name):
                    found[field] = value
                    break
    if isinstance(queue, int):
        found["queue"] = queue
    elif queue is not None:
        found |= {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}
    for field, text in (
        ("topic", topic),
        ("group", group),
        ("message_id", message_id),
        ("peer", peer),
    ):
        if text is not None:
            found[field] = text
    return found
