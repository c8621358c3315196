"""Tables of offsets as a whole, for replicas and tools: GET_ALL_CONSUMER_OFFSET (43) and GET_ALL_DELAY_OFFSET (45)."""

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.processors.admin.common import Serve, bind_all
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.processors import BrokerContext
    from rocketmq_sdk.remoting.channel import Handler


def handlers(context: "BrokerContext") -> "dict[int, Handler]":
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def consumer_offsets(context: "BrokerContext", _command: Command) -> Command:
    """GET_ALL_CONSUMER_OFFSET (43)."""
    return Command.response(body=context.offsets.wrapper().encode())


def delay_offsets(context: "BrokerContext", _command: Command) -> Command:
    """GET_ALL_DELAY_OFFSET (45)."""
    return Command.response(body=context.schedule.wrapper().encode())


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.GET_ALL_CONSUMER_OFFSET: consumer_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: delay_offsets,
}
