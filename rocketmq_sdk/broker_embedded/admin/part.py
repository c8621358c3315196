"""Administration: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.admin.cleaning import CleaningRequests
from rocketmq_sdk.broker_embedded.admin.config import SettingRequests
from rocketmq_sdk.broker_embedded.admin.connections import ConnectionRequests
from rocketmq_sdk.broker_embedded.admin.counters import CounterRequests
from rocketmq_sdk.broker_embedded.admin.groups import GroupRequests
from rocketmq_sdk.broker_embedded.admin.live_consumers import LiveConsumerRequests
from rocketmq_sdk.broker_embedded.admin.offset_resets import OffsetResetRequests
from rocketmq_sdk.broker_embedded.admin.offsets import OffsetTableRequests
from rocketmq_sdk.broker_embedded.admin.progress import ProgressRequests
from rocketmq_sdk.broker_embedded.admin.queue_units import QueueUnitRequests
from rocketmq_sdk.broker_embedded.admin.runtime_info import RuntimeInfo
from rocketmq_sdk.broker_embedded.admin.store_settings import StoreSettingRequests
from rocketmq_sdk.broker_embedded.admin.topics import TopicRequests
from rocketmq_sdk.broker_embedded.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.access.part import AccessPart
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.filter.part import FilterPart
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.pull.part import PullPart
    from rocketmq_sdk.broker_embedded.registration.part import RegistrationPart
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.timers.part import TimerPart


class AdminPart(Part):
    """What administrators and tools ask, subject by subject."""

    __slots__ = ("_subjects",)

    def __init__(
        self,
        core: Core,
        registration: RegistrationPart,
        members: MemberPart,
        filters: FilterPart,
        timers: TimerPart,
        pull: PullPart,
        access: AccessPart,
    ) -> None:
        self._subjects = (
            TopicRequests(core, registration),
            GroupRequests(core),
            SettingRequests(core, registration),
            OffsetTableRequests(core, members),
            OffsetResetRequests(core, members, pull),
            ConnectionRequests(core, members),
            LiveConsumerRequests(core, members),
            ProgressRequests(core, members),
            CounterRequests(core),
            RuntimeInfo(core, timers, access.audit),
            CleaningRequests(core),
            StoreSettingRequests(core),
            QueueUnitRequests(core, members, filters),
        )

    def requests(self) -> Iterable[Request]:
        """The rows of all subjects."""
        return [row for subject in self._subjects for row in subject.requests()]
