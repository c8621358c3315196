"""Requests of administrators (`AdminBrokerProcessor`), one module for each subject;
`REFUSED` names those that are known and not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.admin import (
    cleaning,
    cold_data,
    config,
    connections,
    groups,
    live_consumers,
    offsets,
    queue_units,
    runtime,
    topics,
)
from rocketmq_sdk.broker_embedded.admin import delays_and_counters as spans
from rocketmq_sdk.broker_embedded.admin import progress as stats
from rocketmq_sdk.broker_embedded.admin.refused import REFUSED
from rocketmq_sdk.broker_embedded.replication import admin as replication
from rocketmq_sdk.broker_embedded.timers import admin as timers

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
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


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers of all subjects by request code."""
    table: dict[int, Handler] = {}
    for subject in _SUBJECTS:
        table.update(subject.handlers(context))
    return table
