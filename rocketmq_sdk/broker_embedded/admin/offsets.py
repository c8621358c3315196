"""Offsets of groups: whole tables (43, 45), the lowest of a topic (308), one group's
for another (314).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.offsets import QueryCorrectionOffsetBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.remoting.channel import Handler


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def consumer_offsets(context: BrokerContext, _command: Command) -> Command:
    """GET_ALL_CONSUMER_OFFSET (43)."""
    return Command.response(body=context.offsets.wrapper().encode())


def delay_offsets(context: BrokerContext, _command: Command) -> Command:
    """GET_ALL_DELAY_OFFSET (45)."""
    return Command.response(body=context.schedule.wrapper().encode())


def correction_offsets(context: BrokerContext, command: Command) -> Command:
    """QUERY_CORRECTION_OFFSET (308): the lowest offset that any group has in each queue
    of a topic.

    Where the group to compare is further back than all others the answer is the
    greatest number there is. The offsets of the groups to leave out are deleted, as
    Apache does it.
    """
    header = QueryCorrectionOffsetHeader.from_ext(command.ext_fields)
    left_out = frozenset(
        name.strip() for name in (header.filter_groups or "").split(",") if name.strip()
    )
    lowest = context.offsets.min_offsets_in_all_groups(header.topic, left_out)
    for queue_id, offset in context.offsets.offsets_of(header.compare_group, header.topic).items():
        if lowest.get(queue_id, offset) > offset:
            lowest[queue_id] = _GREATEST
    return Command.response(body=QueryCorrectionOffsetBody(lowest).encode())


def clone_offsets(context: BrokerContext, command: Command) -> Command:
    """CLONE_GROUP_OFFSET (314): one group gets the offsets of another in a topic, or in
    all topics of the other when none is named.

    Topics that do not exist are left out, and while the source has members those that
    it does not subscribe to, unless told that it is offline.
    """
    header = CloneGroupOffsetRequestHeader.from_ext(command.ext_fields)
    source = header.src_group
    online = context.consumers.group(source) is not None
    for name in (
        [header.topic]
        if header.topic and header.topic.strip()
        else sorted(context.offsets.topics_of(source))
    ):
        known = context.topics.get(name) is not None
        if known and (
            header.offline or not online or context.consumers.subscription(source, name) is not None
        ):
            context.offsets.clone(source, header.dest_group, name)
    return Command.response()


_GREATEST: Final = (1 << 63) - 1
_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.GET_ALL_CONSUMER_OFFSET: consumer_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: delay_offsets,
    RequestCode.QUERY_CORRECTION_OFFSET: correction_offsets,
    RequestCode.CLONE_GROUP_OFFSET: clone_offsets,
}
