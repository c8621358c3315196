"""Requests of administrators (`AdminBrokerProcessor`), one module for each subject; `REFUSED` names those that are known and not served."""

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.processors.admin import (
    cleaning,
    cold_data,
    config,
    connections,
    groups,
    live_consumers,
    offsets,
    queue_units,
    replication,
    runtime,
    spans,
    stats,
    timers,
    topics,
)
from rocketmq_sdk.broker_embedded.processors.admin.refused import REFUSED

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.processors import BrokerContext
    from rocketmq_sdk.remoting.channel import Handler

__all__ = ["REFUSED", "handlers"]
_SUBJECTS = (
    cleaning,
    cold_data,
    config,
    connections,
    groups,
    live_consumers,
    offsets,
    queue_units,
    replication,
    runtime,
    spans,
    stats,
    timers,
    topics,
)


def handlers(context: "BrokerContext") -> "dict[int, Handler]":
    """The handlers of all subjects by request code."""
    table: dict[int, Handler] = {}
    for subject in _SUBJECTS:
        table.update(subject.handlers(context))
    return table
