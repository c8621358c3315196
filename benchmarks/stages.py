"""Where the processor time of one send goes, by stages, each measured alone.

All stages use the same message. What else runs on the machine hardly disturbs it. What
goes with many others of its kind is in `chunk_stages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from benchmarks import chunk_stages
from benchmarks.append import message
from benchmarks.harness import micros
from benchmarks.sending import BODY
from rocketmq_sdk import EmbeddedBroker, Message
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.message_id import UniqueIdGenerator
from rocketmq_sdk.remoting.dispatch import Dispatcher

if TYPE_CHECKING:
    from benchmarks.harness import Report

FRAMES = 200
PROPERTIES = "UNIQ_KEY\x017F000001000000000000000000000001\x02WAIT\x01true\x02"


def _request(encoding: HeaderEncoding) -> Command:
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic="stages",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=PROPERTIES,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        bname="broker-a",
    )
    command = Command.request(310, header, body=BODY)
    command.encoding = encoding
    return command


def _response() -> Command:
    header = SendMessageResponseHeader(
        msg_id="7F00000100002A9F0000000000000000",
        queue_id=0,
        queue_offset=7,
        transaction_id="7F" * 16,
    )
    return Command.response(0, header)


class _Fields(NamedTuple):
    """What a message has, as a tuple that checks nothing."""

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    is_plain: bool
    rare: object
    text: str | None


def _measure_message(report: Report, count: int) -> None:
    """A message beside a tuple, and one with names, of the same fields."""
    kept = Message("stages", BODY)
    topic, rare, text = kept.topic, kept._rare, kept._text
    plain, named = "client: make a tuple of its fields", "client: make a named tuple of them"
    micros(report, plain, lambda: (topic, BODY, None, (), True, rare, text), count)
    micros(report, named, lambda: _Fields(topic, BODY, None, (), True, rare, text), count)
    micros(report, "client: make a message", lambda: Message("stages", BODY), count, baseline=named)


def _measure_codec(report: Report, encoding: HeaderEncoding, count: int) -> None:
    request, response = _request(encoding), _response()
    response.encoding = encoding
    name = encoding.name
    micros(
        report,
        f"client: encode the request ({name})",
        lambda: encode_frame(request),
        count,
    )
    frame = encode_frame(request)
    chunk = frame * FRAMES
    connection = Connection()
    micros(
        report,
        f"broker: decode a request that comes alone ({name})",
        lambda: connection.receive_commands(frame),
        count,
    )
    micros(
        report,
        f"broker: decode the request ({name})",
        lambda: connection.receive_commands(chunk),
        count // FRAMES,
        FRAMES,
    )
    micros(
        report,
        f"broker: encode the answer ({name})",
        lambda: encode_frame(response),
        count,
    )
    answers = encode_frame(response) * FRAMES
    micros(
        report,
        f"client: decode the answer ({name})",
        lambda: connection.receive_commands(answers),
        count // FRAMES,
        FRAMES,
    )


async def _measure_broker(report: Report, count: int) -> None:
    async with EmbeddedBroker(memory_limit=2 * 1024**3) as broker, trio.open_nursery() as nursery:
        channel = await broker.open_channel("127.0.0.1:10911", Dispatcher(), nursery)
        channel.submit(_request(HeaderEncoding.JSON), 3)
        send = _request(HeaderEncoding.JSON)

        def submit() -> None:
            send.flag = 0
            channel.submit(send, 3)

        micros(report, "broker: whole handler, over the local channel", submit, count)
        micros(report, "broker: put into the store", lambda: broker.store.put(message()), count)
        found = broker.store.get("append", 0, 0, 32)
        micros(
            report,
            "broker: read 32 messages",
            lambda: broker.store.get("append", 0, 0, 32),
            count // 32,
            32,
        )
        micros(
            report,
            "client: decode 32 messages",
            lambda: decode_messages(found.body),
            count // 32,
            32,
        )
        nursery.cancel_scope.cancel()


async def _measure(report: Report, scale: float) -> None:
    count = int(20_000 * scale)
    ids = UniqueIdGenerator(b"\x7f\x00\x00\x01", 1, TrioClock())
    _measure_message(report, 5 * count)
    micros(report, "client: unique id", ids.next_id, count)
    for encoding in HeaderEncoding:
        _measure_codec(report, encoding, count)
    await _measure_broker(report, count)
    await chunk_stages.measure(report, count)


def run(report: Report, scale: float) -> None:
    """One round."""
    trio.run(_measure, report, scale)
