"""What a push consumer tells message traces of its listener (`ConsumeMessageTraceHookImpl` of Apache RocketMQ 5.4.0)."""

from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.consumer.outcome import ListenerAnswer
from rocketmq_sdk.model.properties import MSG_REGION, TRACE_ON
from rocketmq_sdk.protocol.trace import ConsumeEnded, ConsumeResult, ConsumeStarted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.client.trace import TraceDispatcher
    from rocketmq_sdk.consumer.workers import AsyncListener
    from rocketmq_sdk.model.message import ReceivedMessage


class ConsumeTrace:
    """Adds two records for each message of each call of a listener: when it begins and when it ends."""

    def __init__(self, dispatcher: "TraceDispatcher", client: "Client", group: str) -> None:
        self._dispatcher = dispatcher
        self._client = client
        self._group = dispatcher.unwrap(group)

    def around(self, listener: "AsyncListener") -> "AsyncListener":
        """The listener with its traces. Its errors, and its cancellation, which counts as a time-out, pass through."""

        async def traced(argument: Any) -> object:
            messages: Sequence[ReceivedMessage] = argument if isinstance(argument, list) else (argument,)
            wanted = [message for message in messages if message.properties.get(TRACE_ON) != "false" and self._dispatcher.traces(message.topic)]
            if not wanted:
                return await listener(argument)
            request_id = self._begin(wanted)
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
                self._end(wanted, request_id, (trio.current_time() - began) / len(messages), result)

        return traced

    def _begin(self, messages: "Sequence[ReceivedMessage]") -> str:
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
        self._dispatcher.append(messages[0].topic, *records)
        return request_id

    def _end(self, messages: "Sequence[ReceivedMessage]", request_id: str, seconds: float, result: ConsumeResult) -> None:
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
        self._dispatcher.append(messages[0].topic, *records)
