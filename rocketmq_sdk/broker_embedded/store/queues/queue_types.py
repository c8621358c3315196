"""Which topics have batch consume queues, as `config/topics.json` says.

The store needs to know before the broker's managers have read that file: queues that
were lost are built again from the log while it opens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.json_dialect import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS_PATH: Final = "config/topics.json"
QUEUE_TYPE: Final = "queue.type"
BATCH: Final = "BatchCQ"


def batch_topics(read: Callable[[str], bytes | None]) -> set[str]:
    """Topics with `queue.type=BatchCQ`; none when the file and its `.bak` are missing
    or cannot be read. `read` gives the bytes of a file.
    """
    for path in (TOPICS_PATH, f"{TOPICS_PATH}.bak"):
        data = read(path)
        try:
            content = decode_json(data) if data else None
        except RemoteProtocolError:
            continue
        table = content.get("topicConfigTable") if isinstance(content, dict) else None
        if isinstance(table, dict):
            return {name for name, topic in table.items() if _is_batch(topic)}
    return set()


def _is_batch(topic: object) -> bool:
    attributes = topic.get("attributes") if isinstance(topic, dict) else None
    return isinstance(attributes, dict) and attributes.get(QUEUE_TYPE) == BATCH
