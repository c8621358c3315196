"""How a broker is put together: its settings, its parts, and the table of its requests.

The one place that names every part. `broker.py` opens, runs and closes them in loops.
"""

from __future__ import annotations

import difflib
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from rocketmq_sdk.broker_embedded.admin.part import AdminPart
from rocketmq_sdk.broker_embedded.filter.part import FilterPart
from rocketmq_sdk.broker_embedded.members.assignment import TopicQueues
from rocketmq_sdk.broker_embedded.members.part import MemberPart
from rocketmq_sdk.broker_embedded.pop.part import PopPart
from rocketmq_sdk.broker_embedded.pull.part import PullPart
from rocketmq_sdk.broker_embedded.registration.part import RegistrationPart
from rocketmq_sdk.broker_embedded.replication.part import ReplicationPart
from rocketmq_sdk.broker_embedded.send.part import SendPart
from rocketmq_sdk.broker_embedded.settings.apache_names import settings_of
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.timers.part import TimerPart
from rocketmq_sdk.broker_embedded.transactions.part import TransactionPart
from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller, BrokerIdentity


class Parts(NamedTuple):
    """All parts of a broker, in the order in which they need each other."""

    timers: TimerPart
    filters: FilterPart
    registration: RegistrationPart
    members: MemberPart
    replication: ReplicationPart
    pull: PullPart
    transactions: TransactionPart
    send: SendPart
    pop: PopPart
    admin: AdminPart


def make_parts(
    core: Core,
    namesrv: NameServer,
    caller: AddressCaller | None,
    identity: Callable[[], BrokerIdentity],
) -> Parts:
    """The parts over an open store; nothing is read and nothing runs yet.

    `namesrv` is the name server in the same process, `caller` carries calls to name
    servers elsewhere and to the master, `identity` tells who registers.
    """
    timers = TimerPart(core)
    filters = FilterPart(core)
    registration = RegistrationPart(core, namesrv, caller, identity)
    topic_queues = TopicQueues(core.config, core.clock, namesrv.table.route, caller)
    members = MemberPart(core, filters, topic_queues)
    replication = ReplicationPart(core, timers, members, registration, caller)
    pull = PullPart(core, filters, members, replication)
    transactions = TransactionPart(core, timers.intake, members)
    send = SendPart(core, timers.intake, transactions, members, registration.service)
    pop = PopPart(core, timers, filters, members)
    admin = AdminPart(core, registration, members, filters, timers, pull)
    parts = Parts(
        timers,
        filters,
        registration,
        members,
        replication,
        pull,
        transactions,
        send,
        pop,
        admin,
    )
    core.topic_deleted += [part.topic_deleted for part in parts]
    core.group_deleted += [part.group_deleted for part in parts]
    return parts


def resolve_settings(config: BrokerConfig | None, settings: Mapping[str, object]) -> BrokerConfig:
    """The configuration for `EmbeddedBroker`: `config` changed by single settings.

    Settings are named as in Python or as Apache names them. Raises `ConfigurationError`
    for a bad value, and for a name that does not exist, with the nearest one that does.
    """
    resolved = config or BrokerConfig()
    names: dict[str, tuple[str, str]] = {}
    for cls in (StoreConfig, BrokerConfig):
        for setting in settings_of(cls).values():
            names[setting.name] = names[setting.attribute] = (setting.name, setting.attribute)
    texts: dict[str, str] = {}
    values: dict[str, object] = {}
    for name, value in settings.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"the broker has no setting {name!r}{hint}")
        apache, attribute = names[name]
        if isinstance(value, str):
            texts[apache] = value
        elif isinstance(value, bool):
            texts[apache] = "true" if value else "false"
        elif isinstance(value, Enum):
            texts[apache] = value.name
        elif isinstance(value, int):
            texts[apache] = str(value)
        else:
            values[attribute] = value
    resolved, _warnings = resolved.with_settings(texts)
    resolved = resolved.with_options(values) if values else resolved
    resolved.check_role()
    return resolved
