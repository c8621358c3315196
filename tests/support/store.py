"""Help for tests of the message store."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from functools import cache
from typing import TYPE_CHECKING, Any

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.clock import Clock, TrioClock
from rocketmq_sdk.model.properties import encode_properties
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.subscription import tags_code
from support.paths import STORE_VECTORS

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

STORE_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
BORN_HOST = b"\x0a\x01\x02\x03\x00\x00\x11\xd7"


def unpack(name: str, directory: Path) -> Path:
    """A writable copy of a recorded store; without `timerwheel`, which is big and
    belongs to another service.
    """
    for path, content, modified in _recorded(name):
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            target.mkdir(exist_ok=True)
        else:
            target.write_bytes(content)
        os.utime(target, (modified, modified))
    return directory / "store"


@cache
def _recorded(name: str) -> list[tuple[str, bytes | None, float]]:
    """Files and directories of a recorded store with their times of change, unpacked
    once in a process: the wheel makes 38 of 40 MB.
    """
    packed = gzip.decompress((STORE_VECTORS / f"{name}.tar.gz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return [
            (member.name, file.read() if file else None, member.mtime)
            for member in archive.getmembers()
            if not member.name.endswith("timerwheel")
            for file in [archive.extractfile(member)]
        ]


@cache
def _text(name: str) -> bytes:
    return gzip.decompress((STORE_VECTORS / f"{name}.expected.json.gz").read_bytes())


def expected(name: str) -> dict[str, Any]:
    """What Apache's store says about a recorded directory."""
    value: dict[str, Any] = json.loads(_text(name))
    return value


def config_for(expectation: dict[str, Any]) -> StoreConfig:
    """The sizes that a recorded directory was written with."""
    sizes = expectation["sizes"]
    return StoreConfig(
        mapped_file_size_commit_log=sizes["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=sizes["mappedFileSizeConsumeQueue"],
        mapper_file_size_batch_consume_queue=sizes["mapperFileSizeBatchConsumeQueue"],
        max_hash_slot_num=sizes["maxHashSlotNum"],
        max_index_num=sizes["maxIndexNum"],
    )


def small_config(**settings: Any) -> StoreConfig:
    """Small files, so that a few messages fill several."""
    return StoreConfig(
        **{"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 200, **settings}
    )


def open_store(
    files: FileSystem | None = None, config: StoreConfig | None = None, clock: Clock | None = None
) -> MessageStore:
    """A store that is not entered yet; in memory with small files unless told
    otherwise.
    """
    return MessageStore(
        config or small_config(),
        files or MemoryFileSystem(write_through=True),
        clock or TrioClock(),
        STORE_HOST,
    )


def message(
    topic: str = "TopicA",
    queue_id: int = 0,
    body: bytes = b"hello",
    *,
    tag: str | None = None,
    **fields: Any,
) -> MessageToStore:
    """A message as the broker hands it in."""
    properties = encode_properties(
        {"UNIQ_KEY": "U1", **({"TAGS": tag} if tag else {}), **fields.pop("properties", {})}
    )
    fields = {
        "born_host": BORN_HOST,
        "born_timestamp": 1_700_000_000_000,
        "tags_code": tags_code(tag),
        **fields,
    }
    return MessageToStore(topic, queue_id, body, properties, **fields)


def bodies(store: MessageStore, topic: str = "TopicA", queue_id: int = 0) -> list[bytes]:
    """The bodies of all messages of a queue, read from its lowest offset on, with their
    offsets checked.
    """
    found: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset, 32)
        for item in decode_messages(result.body):
            assert (item.topic, item.queue_id, item.offset) == (topic, queue_id, offset), (
                item,
                offset,
            )
            found.append(item.body)
            offset += 1
        assert offset == result.next_begin_offset, result
    return found
