"""Taking back a message that waits for its time (`MQClientAPIImpl.recallMessage` of
Apache RocketMQ 5.4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.timers import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.recall_handle import RecallHandle


async def recall_message(
    client: Caller,
    handle: RecallHandle,
    group: str,
    timeout: float | None = None,
    *,
    broker_name: str | None = None,
) -> str:
    """Ask the broker that a handle names (or another one of that topic, by name) to
    take the message back (370); its unique id.

    Raises the broker's error: NO_PERMISSION where recalls are switched off,
    ILLEGAL_OPERATION for a handle that is not valid (any more). After a timeout the
    message may be taken back all the same.
    """
    header = RecallMessageRequestHeader(
        producer_group=group,
        topic=handle.topic,
        recall_handle=handle.encode(),
        bname=handle.broker_name,
    )
    response = await client.call_broker(
        broker_name or handle.broker_name,
        Command.request(RequestCode.RECALL_MESSAGE, header),
        timeout,
    )
    return RecallMessageResponseHeader.from_ext(
        checked(response, topic=handle.topic).ext_fields
    ).msg_id
