"""The units of a consume queue as they are stored: QUERY_CONSUME_QUEUE (321)."""

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.processors.admin.common import Serve, bind_all, refused
from rocketmq_sdk.broker_embedded.processors.filtering import TagFilter
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.query import ConsumeQueueData, QueryConsumeQueueResponseBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.query import QueryConsumeQueueRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.processors import BrokerContext
    from rocketmq_sdk.protocol.subscription import SubscriptionData
    from rocketmq_sdk.remoting.channel import Handler

MOST_UNITS: Final = 4096
"""Units of one answer; a tool that wants more asks again from the next index."""


def handlers(context: "BrokerContext") -> "dict[int, Handler]":
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def query_consume_queue(context: "BrokerContext", command: Command) -> Command:
    """QUERY_CONSUME_QUEUE (321): places and tags codes from an index on, and whether a group's filter lets each through."""
    header = QueryConsumeQueueRequestHeader.from_ext(command.ext_fields)
    store, topic, queue_id = context.store, header.topic or "", header.queue_id
    if queue_id not in store.queue_ids(topic):
        return refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    subscription, note = None, None
    if header.consumer_group:
        subscription = context.consumers.subscription(header.consumer_group, topic)
        note = None if subscription is not None else f"{header.consumer_group}@{topic} is not online!"
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if not low <= header.index < high:
        answer = Command.response(body=QueryConsumeQueueResponseBody(subscription, note, None, high, low).encode())
        answer.remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
        return answer
    last = min(high, header.index + max(0, min(header.count, MOST_UNITS)))
    units = (store.queue_unit(topic, queue_id, index) for index in range(header.index, last))
    found = tuple(_unit(unit, subscription) for unit in units if unit is not None)
    return Command.response(body=QueryConsumeQueueResponseBody(subscription, note, found, high, low).encode())


def _unit(unit: tuple[int, int, int], subscription: "SubscriptionData | None") -> ConsumeQueueData:
    position, size, tags_code = unit
    passes = False
    if subscription is not None:
        passes = not subscription.code_set or TagFilter(subscription.code_set).matches_tags_code(tags_code)
    return ConsumeQueueData(position, size, tags_code, eval=passes)


_SERVED: Final[dict[RequestCode, Serve]] = {RequestCode.QUERY_CONSUME_QUEUE: query_consume_queue}
