"""Offsets of groups: the whole table (43), lowest of a topic (308), cloning (314)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes
from rocketmq_sdk.broker_embedded.slices import answer_of
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.offsets import QueryCorrectionOffsetBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.remoting.channel import Continuation

_GREATEST: Final = (1 << 63) - 1


class OffsetTableRequests:
    """Offsets of groups, as whole tables."""

    __slots__ = ("_core", "_members")

    def __init__(self, core: Core, members: MemberPart) -> None:
        self._core = core
        self._members = members

    def requests(self) -> Iterable[Request]:
        """One table, one topic, one group."""
        return (
            Request(
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                self.consumer_offsets,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.QUERY_CORRECTION_OFFSET,
                self.correction_offsets,
                needs.topic_and_group(Action.GET, "compareGroup", groups=("filterGroups", ",")),
                QueryCorrectionOffsetHeader,
                cost=Cost.TABLE,
                writes=Writes.OFFSETS,
            ),
            Request(
                RequestCode.CLONE_GROUP_OFFSET,
                self.clone_offsets,
                needs.topic_and_group(Action.UPDATE, "destGroup"),
                CloneGroupOffsetRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.OFFSETS,
            ),
        )

    def consumer_offsets(self) -> Command | Continuation:
        """GET_ALL_CONSUMER_OFFSET (43)."""
        wrapper = self._core.offsets.wrapper()
        return answer_of(wrapper, sum(map(len, wrapper.offset_table.values())))

    def correction_offsets(self, header: QueryCorrectionOffsetHeader) -> Command:
        """QUERY_CORRECTION_OFFSET (308): lowest offset of all groups, by queue."""
        left_out = frozenset(
            name.strip() for name in (header.filter_groups or "").split(",") if name.strip()
        )
        lowest = self._core.offsets.min_offsets_in_all_groups(header.topic, left_out)
        for queue_id, offset in self._core.offsets.offsets_of(
            header.compare_group, header.topic
        ).items():
            if lowest.get(queue_id, offset) > offset:
                lowest[queue_id] = _GREATEST
        return Command.response(body=QueryCorrectionOffsetBody(lowest).encode())

    def clone_offsets(self, header: CloneGroupOffsetRequestHeader) -> Command:
        """CLONE_GROUP_OFFSET (314): give a group the offsets of another one.

        In one topic, or in all topics of the source when none is named. Topics that do
        not exist are left out. While the source subscribes to others, so are topics
        that it does not subscribe to, unless the request says that it is offline.
        """
        source = header.src_group
        for name in (
            [header.topic]
            if header.topic and header.topic.strip()
            else sorted(self._core.offsets.topics_of(source))
        ):
            known = self._core.topics.get(name) is not None
            if known and (header.offline or not self._members.consumers.leaves_out(source, name)):
                self._core.offsets.clone(source, header.dest_group, name)
        return Command.response()
