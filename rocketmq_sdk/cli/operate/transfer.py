"""`rocketmq export` and `rocketmq import`: a topic as lines of JSON.

Each line is one message: `topic`, `broker`, `queue`, `offset`, `id`, `bornTime`,
`storeTime`, `tags`, `keys`, `shardingKey`, `flag`, `properties` of the user, and `body`
as text, or `bodyBase64` where the body is not UTF-8. Files whose names end in `.gz` or
`.zst` are compressed.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import os
import sys
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast

from rocketmq_sdk.cli.operate.command import Command, Session, positive, whole
from rocketmq_sdk.cli.operate.messages import time_arguments
from rocketmq_sdk.cli.operate.output import closing
from rocketmq_sdk.cli.operate.topics import topic_argument
from rocketmq_sdk.cli.progress import Advance, progress
from rocketmq_sdk.cli.streams import be_utf8
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.properties import RESERVED_NAMES, SHARDING_KEY

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.producer.producer import Producer

BATCH_MESSAGES: Final = 100
BATCH_BYTES: Final = 512 * 1024
LINES_AT_ONCE: Final = 2000
"""Lines that are read, then sent to all queues side by side."""
_OWN: Final = RESERVED_NAMES | {SHARDING_KEY}


def to_line(message: ReceivedMessage) -> str:
    """One message as a line of JSON, without the line's end."""
    line: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.offset,
        "id": message.message_id,
        "bornTime": message.born_timestamp,
        "storeTime": message.store_timestamp,
    }
    if message.tags is not None:
        line["tags"] = message.tags
    if message.keys:
        line["keys"] = list(message.keys)
    if message.sharding_key is not None:
        line["shardingKey"] = message.sharding_key
    if message.flag:
        line["flag"] = message.flag
    own = {name: value for name, value in message.properties.items() if name not in _OWN}
    if own:
        line["properties"] = own
    try:
        line["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        line["bodyBase64"] = base64.b64encode(message.body).decode()
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def from_line(text: str, topic: str) -> tuple[Message, int]:
    """The message of a line for a topic, and the number of the queue it came from.

    Raises `ValueError` or `ConfigurationError` for what is none.
    """
    line = json.loads(text)
    if not isinstance(line, dict) or ("body" in line) == ("bodyBase64" in line):
        raise ValueError("a message is an object with either body or bodyBase64")
    fields = cast("dict[str, Any]", line)
    if "body" in fields:
        if not isinstance(fields["body"], str):
            raise ValueError("body is no text; other bytes are given as bodyBase64")
        body = fields["body"].encode("utf-8")
    else:
        try:
            body = base64.b64decode(fields["bodyBase64"], validate=True)
        except (binascii.Error, TypeError) as error:
            raise ValueError(f"bodyBase64 is not Base64: {error}") from error
    queue = fields.get("queue", 0)
    if type(queue) is not int or queue < 0:
        raise ValueError(f"queue is {queue!r}, and no number of a queue")
    keys = fields.get("keys", [])
    if not isinstance(keys, str | list):
        raise ValueError(f"keys is {keys!r}, and no list of texts")
    return (
        Message(
            topic,
            body,
            tags=fields.get("tags"),
            keys=keys if isinstance(keys, str) else list(keys),
            properties=fields.get("properties"),
            sharding_key=fields.get("shardingKey"),
            flag=fields.get("flag", 0),
        ),
        queue,
    )


@contextmanager
def _opened(path: str, mode: str) -> Iterator[tuple[TextIO, BinaryIO | None]]:
    """A file of lines, compressed as its name says, and the bytes below it.

    `-` is standard input or output, below which there is nothing to tell of.
    """
    if path == "-":
        stream = sys.stdin if mode == "r" else sys.stdout
        be_utf8(stream)
        yield stream, None
        return
    binary = "rb" if mode == "r" else "wb"
    kind = Path(path.removesuffix(".part")).suffix
    try:
        disk = cast("BinaryIO", Path(path).open(binary))  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be opened: {error}") from error
    with disk:
        lines: Any = disk
        if kind == ".gz":
            lines = gzip.GzipFile(fileobj=disk, mode=binary, compresslevel=5)
        elif kind == ".zst":
            lines = _zstandard(disk, binary)
        with io.TextIOWrapper(lines, encoding="utf-8", newline="\n") as file:
            yield file, disk


def _exists(path: str) -> bool:
    return Path(path).exists()


def _rename(path: str, new: str) -> None:
    Path(path).replace(new)


def _zstandard(disk: BinaryIO, mode: str) -> io.IOBase:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise ConfigurationError(
            "files that end in .zst need the extra zstd: pip install 'rocketmq-trio[zstd]'"
        ) from None
    return cast("io.IOBase", zstandard.open(disk, mode))


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser)
    parser.add_argument("file", metavar="FILE", help="ends in .gz or .zst to be compressed; - out")
    time_arguments(parser)
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


async def _export(session: Session) -> None:
    options = session.options
    if options.file != "-" and _exists(options.file) and not options.force:
        raise ConfigurationError(f"{options.file} is there already; say --force to replace it")
    ends = (await session.admin.topics.offsets(options.topic)).values()
    total = sum(each.max_offset - each.min_offset for each in ends)
    # A file that is not whole never has the name of one that is.
    part = options.file if options.file == "-" else options.file + ".part"
    count = 0
    with _opened(part, "w") as (file, _), progress("messages", total) as advance:
        async with closing(
            session.admin.messages.in_time(options.topic, options.begin, options.end)
        ) as messages:
            async for message in messages:
                file.write(to_line(message) + "\n")
                count += 1
                if count % 1000 == 0:
                    advance(count)
        advance(count)
    if options.file != "-":
        _rename(part, options.file)
        session.out.done(f"{count:,} messages are in {options.file}", count=count)


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="of export; - is standard input")
    topic_argument(parser)
    parser.add_argument(
        "--skip", type=whole, default=0, metavar="N", help="begin behind the first N lines"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="at most N messages")


async def _import(session: Session) -> None:
    from rocketmq_sdk.producer.producer import Producer

    options = session.options
    route = await session.admin.topics.route(options.topic)
    queues = route.publish_queues(options.topic)
    if not queues:
        raise ConfigurationError(f"the topic {options.topic} takes no messages (perm, queues)")
    async with Producer(
        "TOOLS_PRODUCER", client=session.admin.client, **session.sending()
    ) as producer:
        with _opened(options.file, "r") as (file, disk), _read(options, disk) as advance:
            done = options.skip
            try:
                for chunk in _chunks(file, options):
                    await _send_chunk(producer, chunk, queues)
                    done += len(chunk)
                    advance(done - options.skip)
            except BaseException:
                print(
                    f"rocketmq: the first {done:,} lines are stored, later ones maybe; to go on "
                    f"behind them: --skip {done}",
                    file=sys.stderr,
                )
                raise
    session.out.done(
        f"{done - options.skip:,} messages are stored in {options.topic}",
        count=done - options.skip,
    )


@contextmanager
def _read(options: argparse.Namespace, disk: BinaryIO | None) -> Iterator[Advance]:
    """A bar that takes how many messages are stored.

    How many a file has nobody knows before it was read: unless a limit says it, the
    bar is about its bytes, as they are on the disk.
    """
    if disk is None or options.limit is not None:
        with progress("messages", options.limit) as advance:
            yield advance
        return
    with progress(f"bytes of {Path(options.file).name}", _size(disk)) as advance:
        yield lambda _stored: advance(disk.tell())


def _size(disk: BinaryIO) -> int | None:
    """How long a file is; a pipe does not tell."""
    return os.fstat(disk.fileno()).st_size or None


def _chunks(file: TextIO, options: argparse.Namespace) -> Iterator[list[tuple[Message, int]]]:
    """Messages of many lines at a time. Raises `ConfigurationError` with the line."""
    chunk: list[tuple[Message, int]] = []
    last = None if options.limit is None else options.skip + options.limit
    lines = enumerate(file)
    while True:
        try:
            number, text = next(lines, (None, ""))
        except (UnicodeDecodeError, EOFError, OSError) as error:
            raise ConfigurationError(f"{options.file} cannot be read on: {error}") from error
        if number is None or number == last:
            break
        if number < options.skip:
            continue
        try:
            chunk.append(from_line(text, options.topic))
        except (ValueError, ConfigurationError) as error:
            if chunk:
                yield chunk
            raise ConfigurationError(
                f"line {number + 1} of {options.file} is no message: {error}"
            ) from error
        if len(chunk) == LINES_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def _send_chunk(
    producer: Producer, chunk: list[tuple[Message, int]], queues: list[MessageQueue]
) -> None:
    """Send to all queues side by side; each queue keeps its order."""
    by_queue: defaultdict[int, list[Message]] = defaultdict(list)
    for message, queue_id in chunk:
        by_queue[queue_id % len(queues)].append(message)

    async def send(place: int, messages: list[Message]) -> None:
        for batch in _batches(messages):
            await producer.send_batch(batch, queue=queues[place])

    async with open_quiet_nursery() as nursery:
        for place, messages in by_queue.items():
            nursery.start_soon(send, place, messages)


def _batches(messages: list[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        # Properties count as well; 1 KiB is more than most have.
        more = len(message.body) + len(message.property_text()) + 1024
        if batch and (len(batch) == BATCH_MESSAGES or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch


COMMANDS: Final = (
    Command("export", "write the messages of a topic to a file", _export, _export_arguments),
    Command("import", "send the messages of a file", _import, _import_arguments),
)
