"""Cleaning now instead of at its time: CLEAN_EXPIRED_CONSUMEQUEUE (306),
CLEAN_UNUSED_TOPIC (316), DELETE_EXPIRED_COMMITLOG (329).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.remoting.channel import Handler

logger = logging.getLogger(__name__)


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def clean_queues(context: BrokerContext, _command: Command) -> Command:
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): queues and index follow the oldest log file at
    once; numbering of an emptied queue goes on.
    """
    context.store.clean_queues()
    return Command.response()


def clean_unused_topics(context: BrokerContext, _command: Command) -> Command:
    """CLEAN_UNUSED_TOPIC (316): queues of topics that exist no more are dropped; system
    topics are kept.
    """
    for topic in sorted(context.store.topics()):
        if context.topics.get(topic) is None and not context.topics.is_system(topic):
            logger.warning("the queues of the topic %s, which does not exist, are dropped", topic)
            context.store.delete_topic(topic)
    return Command.response()


def clean_log(context: BrokerContext, _command: Command) -> Command:
    """DELETE_EXPIRED_COMMITLOG (329): log files past their time are removed now,
    whatever the hour; the others stay.
    """
    context.store.clean_now()
    return Command.response()


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: clean_queues,
    RequestCode.CLEAN_UNUSED_TOPIC: clean_unused_topics,
    RequestCode.DELETE_EXPIRED_COMMITLOG: clean_log,
}
