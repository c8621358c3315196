"""The broker's settings over the wire: UPDATE_BROKER_CONFIG (25) and GET_BROKER_CONFIG
(26).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.handlers import Serve, answer_when_registered, bind_all, refused
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.admin import GetBrokerConfigResponseHeader

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.remoting.channel import Continuation, Handler

logger = logging.getLogger(__name__)


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def update_config(context: BrokerContext, command: Command) -> Command | Continuation:
    """UPDATE_BROKER_CONFIG (25): all settings of the text or none; an unknown one is
    kept with a warning in the log.
    """
    try:
        texts = read_properties(command.body.decode())
    except UnicodeDecodeError as error:
        return refused(ResponseCode.SYSTEM_ERROR, f"UnsupportedEncodingException {error}")
    if not texts:
        return refused(ResponseCode.SYSTEM_ERROR, "string2Properties error")
    if context.config.current.black_list() & texts.keys():
        return refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    for warning in context.config.update(texts, context.clock.now_ms()):
        logger.warning("%s", warning)
    return answer_when_registered(context, Command.response())


def get_config(context: BrokerContext, _command: Command) -> Command:
    """GET_BROKER_CONFIG (26)."""
    version = context.config.data_version.encode().decode()
    return Command.response(
        0,
        GetBrokerConfigResponseHeader(version=version),
        body=context.config.current.to_properties().encode(),
    )


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.UPDATE_BROKER_CONFIG: update_config,
    RequestCode.GET_BROKER_CONFIG: get_config,
}
