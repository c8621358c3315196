"""Telling brokers the outcome of half messages.

Follows `MQClientAPIImpl.endTransactionOneway` of Apache RocketMQ 5.4.0, which does not
wait for the answer when a producer ends a transaction by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.caller import Caller
    from rocketmq_sdk.protocol.flags import HeaderEncoding
    from rocketmq_sdk.protocol.headers.transactions import EndTransactionRequestHeader
    from rocketmq_sdk.remoting.channel import Channel
    from rocketmq_sdk.remoting.client import RemotingClient


async def end_transaction(
    client: Caller,
    broker_name: str,
    header: EndTransactionRequestHeader,
    timeout: float | None = None,
) -> Command:
    """Tell the broker of a half message its outcome (37); returns the answer.

    Whether the answer is a success is for the caller to see.
    """
    command = Command.request(RequestCode.END_TRANSACTION, header)
    return await client.call_broker(broker_name, command, timeout)


def answer_check(
    remoting: RemotingClient,
    channel: Channel,
    header: EndTransactionRequestHeader,
    encoding: HeaderEncoding,
) -> None:
    """Tell a broker the outcome it has asked for, on the connection that asked (37).

    Nothing comes back. Raises a `RocketMQError` when it cannot be sent.
    """
    command = Command.request(RequestCode.END_TRANSACTION, header, oneway=True)
    command.encoding = encoding
    remoting.send_oneway_on(channel, command)
