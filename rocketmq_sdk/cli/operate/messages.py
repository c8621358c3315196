"""Messages: found, printed, traced, sent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.cli.operate.command import Command, Session, name_and_value, positive, time, whole
from rocketmq_sdk.cli.operate.output import BODY_FORMATS, Row, closing, message_row, moment
from rocketmq_sdk.cli.operate.topics import topic_argument
from rocketmq_sdk.errors import ConfigurationError, NotFoundError
from rocketmq_sdk.model.queue import MessageQueue

if TYPE_CHECKING:
    import argparse

    from rocketmq_sdk.admin.trace import MessageTrace
    from rocketmq_sdk.model.received import ReceivedMessage


def body_argument(parser: argparse.ArgumentParser) -> None:
    """`--body FORM`."""
    parser.add_argument(
        "--body",
        choices=BODY_FORMATS,
        default="auto",
        help="how bodies are shown; auto is text where it is UTF-8, else hex (default)",
    )


def time_arguments(parser: argparse.ArgumentParser) -> None:
    """`-b TIME` and `-e TIME`."""
    parser.add_argument("-b", "--begin", type=time, metavar="TIME", help="stored then or later")
    parser.add_argument("-e", "--end", type=time, metavar="TIME", help="stored then or earlier")


def _found(session: Session, messages: list[ReceivedMessage]) -> int:
    """Print messages one by one; the exit code."""
    for message in messages:
        session.out.row(message_row(message, session.options.body))
        if not session.out.as_json and message is not messages[-1]:
            session.out.line("")
    if not messages:
        print("no such message", file=sys.stderr)
    return int(not messages)


def _by_id_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-i", "--msg-id", required=True, metavar="ID", help="either kind of id")
    topic_argument(parser, required=False)
    body_argument(parser)


async def _by_id(session: Session) -> int:
    find, options = session.admin.messages, session.options
    if options.topic is None:
        try:
            return _found(session, [await find.by_offset_id(options.msg_id)])
        except NotFoundError:
            print(
                "a broker that checks users shows a message to those only who name its topic: "
                "give -t TOPIC",
                file=sys.stderr,
            )
            raise
    return _found(session, [await find.by_id(options.topic, options.msg_id)])


def _by_unique_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-i", "--msg-id", required=True, metavar="ID", help="the producer's id")
    topic_argument(parser)
    body_argument(parser)


async def _by_unique(session: Session) -> int:
    options = session.options
    message = await session.admin.messages.by_unique_id(options.topic, options.msg_id)
    return _found(session, [message])


def _by_key_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", "--msg-key", required=True, metavar="KEY")
    topic_argument(parser)
    time_arguments(parser)
    parser.add_argument(
        "-m", "--max-num", type=positive, default=64, metavar="N", help="the newest N (default: 64)"
    )
    body_argument(parser)


async def _by_key(session: Session) -> int:
    options = session.options
    return _found(
        session,
        await session.admin.messages.by_key(
            options.topic,
            options.msg_key,
            limit=options.max_num,
            begin=options.begin,
            end=options.end,
        ),
    )


def _by_offset_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser)
    parser.add_argument("-b", "--broker-name", required=True, metavar="NAME")
    parser.add_argument("-i", "--queue-id", required=True, type=whole, metavar="N")
    parser.add_argument("-o", "--offset", required=True, type=whole, metavar="N")
    body_argument(parser)


async def _by_offset(session: Session) -> int:
    options = session.options
    queue = MessageQueue(options.topic, options.broker_name, options.queue_id)
    return _found(session, [await session.admin.messages.at(queue, options.offset)])


def _print_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser)
    time_arguments(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="at most N messages")
    body_argument(parser)


async def _print(session: Session) -> None:
    options = session.options
    count = 0
    async with closing(
        session.admin.messages.in_time(options.topic, options.begin, options.end)
    ) as messages:
        async for message in messages:
            show(session, message)
            count += 1
            if count == options.limit:
                break


def show(session: Session, message: ReceivedMessage) -> None:
    """One message on one line."""
    row = message_row(message, session.options.body)
    if session.out.as_json:
        session.out.row(row)
        return
    body = row.get("body")
    parts: list[str] = [
        str(row["stored"]),
        f"{message.broker_name}/{message.queue_id}@{message.offset}",
        message.message_id,
    ]
    if message.tags:
        parts.append(f"tags={message.tags}")
    if message.keys:
        parts.append(f"keys={','.join(message.keys)}")
    if isinstance(body, str):
        parts.append(body)
    text = " ".join(parts)
    session.out.line("".join(each if each.isprintable() else "\ufffd" for each in text))


def _send_arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser)
    body = parser.add_mutually_exclusive_group(required=True)
    body.add_argument("-p", "--body", metavar="TEXT")
    body.add_argument("--body-file", metavar="FILE", help="- is standard input")
    parser.add_argument("-k", "--keys", metavar="KEYS", help="separated by blanks")
    parser.add_argument("-c", "--tags", metavar="TAG")
    parser.add_argument("-b", "--broker", metavar="NAME", help="to this broker, with -i")
    parser.add_argument("-i", "--qid", type=whole, metavar="N", help="to this queue, with -b")
    parser.add_argument(
        "--property",
        type=name_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="may be repeated",
    )
    parser.add_argument("--delay", type=float, metavar="SECONDS", help="deliver it later")


def _body_of(options: argparse.Namespace) -> bytes:
    if options.body is not None:
        return str(options.body).encode("utf-8", "surrogateescape")
    if options.body_file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(options.body_file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"--body-file cannot be read: {error}") from error


async def _send(session: Session) -> None:
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.producer.producer import Producer

    options = session.options
    if (options.broker is None) != (options.qid is None):
        raise ConfigurationError("-b and -i name one queue together")
    message = Message(
        options.topic,
        _body_of(options),
        tags=options.tags,
        keys=(options.keys or "").split(),
        properties=dict(options.property),
        delay=options.delay,
    )
    queue = (
        None if options.broker is None else MessageQueue(options.topic, options.broker, options.qid)
    )
    async with Producer(
        "TOOLS_PRODUCER", client=session.admin.client, **session.sending()
    ) as producer:
        sent = await producer.send(message, queue=queue)
    session.out.row(
        {
            "status": sent.status.name,
            "id": sent.message_id,
            "offsetId": sent.offset_message_id,
            "broker": sent.queue.broker_name,
            "queue": sent.queue.queue_id,
            "offset": sent.queue_offset,
        }
    )


def _trace_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message_id", metavar="ID")
    topic_argument(parser, required=False)
    parser.add_argument("--trace-topic", metavar="TOPIC")


async def _trace(session: Session) -> None:
    options = session.options
    trace = await session.admin.messages.trace(
        options.message_id, topic=options.topic, trace_topic=options.trace_topic
    )
    session.out.rows(_steps(trace))


def _steps(trace: MessageTrace) -> list[Row]:
    """All that is known of a message, in the order of time."""
    steps: list[tuple[int, str, str | None, str]] = [
        (sent.time, "sent" if sent.success else "not sent", sent.group, f"{sent.cost} ms")
        for sent in trace.published
    ]
    steps += [
        (copy.store_time, copy.kind.value, copy.group, f"{copy.queue!r} at {copy.offset}")
        for copy in trace.copies
    ]
    steps += [
        (
            each.started or each.ended or 0,
            "consumed" if each.success else "not consumed",
            each.group,
            "still running, or its end is not known"
            if each.result is None
            else f"{each.result.name.lower()}, {each.cost} ms",
        )
        for each in trace.consumptions
    ]
    return [
        {"time": moment(time), "what": what, "group": group, "details": details}
        for time, what, group, details in sorted(steps, key=lambda step: step[0])
    ]


COMMANDS: Final = (
    Command("queryMsgById", "find a message by its id", _by_id, _by_id_arguments),
    Command(
        "queryMsgByUniqueKey",
        "find a message by its producer's id",
        _by_unique,
        _by_unique_arguments,
    ),
    Command("queryMsgByKey", "find messages by a key", _by_key, _by_key_arguments),
    Command("queryMsgByOffset", "show the message at a place", _by_offset, _by_offset_arguments),
    Command("printMsg", "print the messages of a topic", _print, _print_arguments),
    Command("sendMessage", "send a message", _send, _send_arguments),
    Command("trace", "tell all that is known of a message", _trace, _trace_arguments),
)
