"""Trace records of consumers: a message is handed over, and how that ends.

Follows `ConsumeMessageTraceHookImpl` of Apache RocketMQ 5.4.0. A push consumer records
each call of its listener. A lite pull consumer records both at once when a poll returns
messages, as Apache's does, since it does not learn what becomes of them. A simple
consumer's delivery begins with the receive and ends with the acknowledgement, or as a
time-out with its invisible duration; Apache's simple consumer uses proxies, which write
no such records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.client.trace import TraceDispatcher
from rocketmq_sdk.consumer.outcome import ConsumeOrderlyStatus, ListenerAnswer
from rocketmq_sdk.model.properties import MSG_REGION, TRACE_ON
from rocketmq_sdk.protocol.trace import ConsumeEnded, ConsumeResult, ConsumeStarted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.listener import AsyncListener
    from rocketmq_sdk.model.received import ReceivedMessage


class ConsumeTrace:
    """Writes two records for each message: consuming begins, and ends."""

    def __init__(self, client: Client, group: str) -> None:
        self.dispatcher = TraceDispatcher(client, group, "CONSUME")
        self._client = client
        self._group = self.dispatcher.unwrap(group)

    def wanted(self, message: ReceivedMessage) -> bool:
        """Whether a message is traced."""
        return message.properties.get(TRACE_ON) != "false" and self.dispatcher.traces(message.topic)

    def polled(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages of any topics were polled; nothing more will be known of them."""
        by_topic: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            if self.wanted(message):
                by_topic.setdefault(message.topic, []).append(message)
        for of_topic in by_topic.values():
            self.end(of_topic, self.begin(of_topic), 0.0, ConsumeResult.SUCCESS)

    def around(self, listener: AsyncListener) -> AsyncListener:
        """The listener with trace records around each call.

        Errors pass through, and so does a cancellation, which counts as a time-out.
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
                rolled_back = answer is ConsumeOrderlyStatus.ROLLBACK
                result = ConsumeResult.FAILED if rolled_back else ConsumeResult.SUCCESS
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
        """Record that messages of one topic are handed over; returns the id."""
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
        """Record the end, after `seconds` for each message."""
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
