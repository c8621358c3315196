"""Where the processor time of one send goes, by stages, each measured alone.

All stages use the same message. What else runs on the machine hardly disturbs it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from benchmarks.append import message
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
    from collections.abc import Callable

    from benchmarks.harness import Report

FRAMES = 200
PROPERTIES = "UNIQ_KEY\x017F000001000000000000000000000001\x02WAIT\x01true\x02"


def _micros(
    report: Report, name: str, action: Callable[[], object], count: int, items: int = 1
) -> None:
    action()
    begin = time.process_time()
    for _ in range(count):
        action()
    report.add(f"stage: {name}", "us", (time.process_time() - begin) / count / items * 1e6)


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


def _measure_codec(report: Report, encoding: HeaderEncoding, count: int) -> None:
    request, response = _request(encoding), _response()
    response.encoding = encoding
    name = encoding.name
    _micros(
        report,
        f"client: encode the request ({name})",
        lambda: encode_frame(request),
        count,
    )
    chunk = encode_frame(request) * FRAMES
    connection = Connection()
    _micros(
        report,
        f"broker: decode the request ({name})",
        lambda: connection.receive_commands(chunk),
        count // FRAMES,
        FRAMES,
    )
    _micros(
        report,
        f"broker: encode the answer ({name})",
        lambda: encode_frame(response),
        count,
    )
    answers = encode_frame(response) * FRAMES
    _micros(
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

        _micros(report, "broker: whole handler, over the local channel", submit, count)
        _micros(report, "broker: put into the store", lambda: broker.store.put(message()), count)
        found = broker.store.get("append", 0, 0, 32)
        _micros(
            report,
            "broker: read 32 messages",
            lambda: broker.store.get("append", 0, 0, 32),
            count // 32,
            32,
        )
        _micros(
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
    _micros(report, "client: make a message", lambda: Message("stages", BODY), count)
    _micros(report, "client: unique id", ids.next_id, count)
    for encoding in HeaderEncoding:
        _measure_codec(report, encoding, count)
    await _measure_broker(report, count)


def run(report: Report, scale: float) -> None:
    """One round."""
    trio.run(_measure, report, scale)
