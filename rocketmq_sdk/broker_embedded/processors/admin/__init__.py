"""Requests of administrators (`AdminBrokerProcessor`), one module for each subject; `REFUSED` names those that are known and not served."""

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.processors.admin import cleaning, config, connections, groups, offsets, queue_units, runtime, spans, stats, topics
from rocketmq_sdk.broker_embedded.processors.admin.refused import REFUSED

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.processors import BrokerContext
    from rocketmq_sdk.remoting.channel import Handler

__all__ = ["REFUSED", "handlers"]


def handlers(context: "BrokerContext") -> "dict[int, Handler]":
    """The handlers of all subjects by request code."""
    table: dict[int, Handler] = {}
    for subject in (topics, groups, connections, stats, spans, offsets, config, runtime, cleaning, queue_units):
        table.update(subject.handlers(context))
    return table
