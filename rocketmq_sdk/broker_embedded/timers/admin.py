"""What a slave asks of its master about timers: GET_TIMER_CHECK_POINT (60) and
GET_TIMER_METRICS (61).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.handlers import bind_all
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.remoting.channel import Handler


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(
        context,
        {RequestCode.GET_TIMER_CHECK_POINT: _checkpoint, RequestCode.GET_TIMER_METRICS: _metrics},
    )


def _checkpoint(context: BrokerContext, _command: Command) -> Command:
    return Command.response(body=context.timers.checkpoint().encode())


def _metrics(context: BrokerContext, _command: Command) -> Command:
    return Command.response(body=context.timers.timers.metrics.wrapper().encode())
