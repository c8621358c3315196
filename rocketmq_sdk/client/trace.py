"""Message traces: records of sends and consumptions, sent to the trace topic.

Follows `AsyncTraceDispatcher` of Apache RocketMQ 5.4.0.

Tracing never delays or fails what it tells of: records that find the queue full are
dropped and counted, and a trace message that cannot be sent is logged and dropped.
Unlike Apache's dispatcher this one has no client of its own; it sends over the client
whose messages it traces.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rocketmq_sdk.client.routes import DefaultTopic
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RocketMQError, RouteError, broker_error
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.names import DEFAULT_TOPIC
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeaderV2
from rocketmq_sdk.protocol.trace import TraceRecord, encode_traces, keys_of

if TYPE_CHECKING:
    from rocketmq_sdk.client.runtime import Client

logger = logging.getLogger("rocketmq_sdk.client")

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
MAX_WAITING: Final = 2048
"""Contexts that may wait to be sent; more are dropped."""
MAX_BATCH: Final = 20
MAX_MESSAGE: Final = 128_000
"""Bytes of one trace message."""
FLUSH_AFTER: Final = 5.0
"""Seconds that records wait for others."""
SEND_TIMEOUT: Final = 5.0
CLOSE_TIMEOUT: Final = 1.0
_STORED: Final = frozenset({0, 10, 11, 12})
_numbers = count(1)


class Context(NamedTuple):
    """The records of one event: a send, or one call of a listener.

    All messages of it are of one topic.
    """

    topic: str
    records: tuple[TraceRecord, ...]


class TraceDispatcher:
    """Sends the traces of one producer or consumer.

    `kind` is PRODUCE or CONSUME. `dropped` counts contexts that were lost.
    """

    def __init__(self, client: Client, group: str, kind: str) -> None:
        self._client = client
        self.unwrap = client.namespace.unwrap
        """Names of topics and groups stand in traces as users write them."""
        self.group = f"{GROUP_PREFIX}-{group}-{kind}-{next(_numbers)}"
        self.topic = client.config.trace_topic
        self._batch = min(client.config.trace_msg_batch_num, MAX_BATCH)
        self._waiting: deque[Context] = deque()
        self._enough = trio.Event()
        self._turn = 0
        self._in_use = False
        self._sending = trio.Lock()
        self._default = DefaultTopic(DEFAULT_TOPIC, 4)
        self.dropped = 0
        self.sent = 0

    def traces(self, topic: str) -> bool:
        """Whether messages of a topic are traced.

        Those of the trace topic itself are not.
        """
        return topic != self.topic

    def append(self, topic: str, *records: TraceRecord) -> bool:
        """Take the records of one event; false when there is no room for them."""
        if len(self._waiting) >= MAX_WAITING:
            if not self.dropped:
                logger.warning(
                    "%s: %d traces wait to be sent; more are dropped",
                    self.group,
                    MAX_WAITING,
                    extra=about(group=self.group),
                )
            self.dropped += 1
            return False
        self._waiting.append(Context(topic, records))
        if len(self._waiting) >= self._batch:
            self._enough.set()
        return True

    async def run(self) -> None:
        """Send records that fill a message or have waited long, until cancelled."""
        while True:
            self._enough = trio.Event()
            if len(self._waiting) < self._batch:
                with trio.move_on_after(FLUSH_AFTER):
                    await self._enough.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send everything that has gathered."""
        async with self._sending:
            while self._waiting:
                contexts = [
                    self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))
                ]
                by_topic: dict[str, list[TraceRecord]] = {}
                for context in contexts:
                    by_topic.setdefault(context.topic, []).extend(context.records)
                for records in by_topic.values():
                    for part in _parts(records):
                        await self._send(part)

    async def aclose(self) -> None:
        """Send what is left, within a second and behind a shield.

        What is left then is dropped and counted.
        """
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self.flush()
        if self._waiting:
            logger.warning(
                "%s: %d traces could not be sent before the end",
                self.group,
                len(self._waiting),
                extra=about(group=self.group),
            )
            self.dropped += len(self._waiting)
            self._waiting.clear()
        if self._in_use:
            self._in_use = False
            self._client.routes.release(self.topic)

    async def _send(self, records: list[TraceRecord]) -> None:
        try:
            await self._store(records)
        except RocketMQError as error:
            self.dropped += 1
            logger.warning(
                "%s: %d trace records are lost: %s",
                self.group,
                len(records),
                error,
                extra=about(group=self.group),
            )
        else:
            self.sent += 1

    async def _store(self, records: list[TraceRecord]) -> None:
        client, topic = self._client, self.topic
        if not self._in_use:
            self._in_use = True
            client.routes.use(topic)
        await client.route(topic, default=self._default)
        info = client.routes.publish_info(topic)
        if info is None or not info.queues:
            raise RouteError(
                f"the trace topic {topic!r} has no queue that can be written to; brokers have it "
                "with traceTopicEnable"
            )
        self._turn += 1
        queue = info.queues[self._turn % len(info.queues)]
        properties = (
            f"KEYS\x01{' '.join(keys_of(records))}\x02UNIQ_KEY\x01{client.ids.next_id()}\x02"
            "WAIT\x01true\x02"
        )
        header = SendMessageRequestHeaderV2(
            producer_group=self.group,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=client.clock.now_ms(),
            flag=0,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=queue.broker_name,
        )
        command = Command.request(
            RequestCode.SEND_MESSAGE_V2,
            header,
            body=encode_traces(records).encode("utf-8", "replace"),
        )
        response = await client.call_broker(queue.broker_name, command, SEND_TIMEOUT)
        if response.code not in _STORED:
            raise broker_error(response.code, response.remark, topic=topic)


def _parts(records: list[TraceRecord]) -> list[list[TraceRecord]]:
    """Records in messages that are not too big."""
    parts: list[list[TraceRecord]] = [[]]
    size = 0
    for record in records:
        length = len(encode_traces((record,)).encode("utf-8", "replace"))
        if parts[-1] and size + length > MAX_MESSAGE:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += length
    return parts
