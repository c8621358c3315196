"""What consumers tell message traces (`ConsumeMessageTraceHookImpl` of Apache RocketMQ
5.4.0): when a message is handed over, and how that ends.

A push consumer tells of each call of its listener. A lite pull consumer tells of both
at once when it hands messages out, as Apache's: what becomes of them then is not known
to it. Apache's simple consumer speaks to proxies, which write no such records; here a
delivery begins with the receive, and ends with its acknowledgement, or as a time-out
with its invisible duration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.client.trace import TraceDispatcher
from rocketmq_sdk.consumer.outcome import ListenerAnswer
from rocketmq_sdk.model.properties import MSG_REGION, TRACE_ON
from rocketmq_sdk.protocol.trace import ConsumeEnded, ConsumeResult, ConsumeStarted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.receipt import PoppedMessage, Receipt
    from rocketmq_sdk.consumer.workers import AsyncListener
    from rocketmq_sdk.model.message import ReceivedMessage

EXPIRY_INTERVAL: Final = 5.0
"""Seconds between two looks for deliveries whose time is over."""


class ConsumeTrace:
    """Adds two records for each message that is handed over: when it begins and when it
    ends.
    """

    def __init__(self, client: Client, group: str) -> None:
        self.dispatcher = TraceDispatcher(client, group, "CONSUME")
        self._client = client
        self._group = self.dispatcher.unwrap(group)

    def wanted(self, message: ReceivedMessage) -> bool:
        """Whether a message is traced."""
        return message.properties.get(TRACE_ON) != "false" and self.dispatcher.traces(message.topic)

    def polled(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages of any topics were handed out; that is all that is known."""
        by_topic: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            if self.wanted(message):
                by_topic.setdefault(message.topic, []).append(message)
        for of_topic in by_topic.values():
            self.end(of_topic, self.begin(of_topic), 0.0, ConsumeResult.SUCCESS)

    def around(self, listener: AsyncListener) -> AsyncListener:
        """The listener with its traces. Its errors, and its cancellation, which counts
        as a time-out, pass through.
        """

        async def traced(argument: Any) -> object:
            messages: Sequence[ReceivedMessage] = (
                argument if isinstance(argument, list) else (argument,)
            )
            wanted = [message for message in messages if self.wanted(message)]
            if not wanted:
                return await listener(argument)
            request_id = self.begin(wanted)
            began = trio.current_time()
            result = ConsumeResult.TIME_OUT
            try:
                answer = await listener(argument)
                result = ConsumeResult.SUCCESS
                return answer
            except ListenerAnswer:
                result = ConsumeResult.FAILED
                raise
            except Exception:
                result = ConsumeResult.EXCEPTION
                raise
            finally:
                self.end(wanted, request_id, (trio.current_time() - began) / len(messages), result)

        return traced

    def begin(self, messages: Sequence[ReceivedMessage]) -> str:
        """Messages of one topic are handed over; gives what joins this record with that
        of the end.
        """
        now, request_id = self._client.clock.now_ms(), self._client.ids.next_id()
        records = [
            ConsumeStarted(
                time=now,
                region=message.properties.get(MSG_REGION),
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                retries=message.reconsume_times,
                keys=" ".join(message.keys) or None,
            )
            for message in messages
        ]
        self.dispatcher.append(messages[0].topic, *records)
        return request_id

    def end(
        self,
        messages: Sequence[ReceivedMessage],
        request_id: str,
        seconds: float,
        result: ConsumeResult,
    ) -> None:
        """It has ended, after so many seconds for each message."""
        now = self._client.clock.now_ms()
        records = [
            ConsumeEnded(
                request_id=request_id,
                message_id=message.message_id,
                cost=round(seconds * 1000),
                success=result is ConsumeResult.SUCCESS,
                keys=" ".join(message.keys) or None,
                result=result,
                time=now,
                group=self._group,
            )
            for message in messages
        ]
        self.dispatcher.append(messages[0].topic, *records)


class ReceiptTrace:
    """Traces what a simple consumer receives: each delivery from the receive to its
    acknowledgement, or to the end of its time.
    """

    def __init__(self, trace: ConsumeTrace) -> None:
        self._trace = trace
        self._open: dict[Receipt, tuple[PoppedMessage, str, float]] = {}

    def received(self, messages: Sequence[PoppedMessage]) -> None:
        """Messages of one topic were received."""
        wanted = [message for message in messages if self._trace.wanted(message)]
        if wanted:
            request_id, now = self._trace.begin(wanted), trio.current_time()
            for message in wanted:
                self._open[message.receipt] = message, request_id, now

    def replaced(self, old: Receipt, new: Receipt) -> None:
        """The invisible duration of a message was changed."""
        entry = self._open.pop(old, None)
        if entry is not None:
            self._open[new] = entry

    def acknowledged(self, receipt: Receipt) -> None:
        """A message is done."""
        self._close(receipt, ConsumeResult.SUCCESS)

    async def expire(self) -> float:
        """End deliveries whose time is over. A job of the routine."""
        now = trio.current_time()
        for receipt in [receipt for receipt in self._open if receipt.expires_at <= now]:
            self._close(receipt, ConsumeResult.TIME_OUT)
        return EXPIRY_INTERVAL

    def _close(self, receipt: Receipt, result: ConsumeResult) -> None:
        entry = self._open.pop(receipt, None)
        if entry is not None:
            message, request_id, began = entry
            self._trace.end(
                [message], request_id, min(trio.current_time(), receipt.expires_at) - began, result
            )
