"""How a broker is put together: its settings, its parts, and the table of its requests.

The one place that names every part. `broker.py` opens, runs and closes them in loops.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.access.part import AccessPart
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
from rocketmq_sdk.broker_embedded.settings.tls import TlsConfig
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.timers.part import TimerPart
from rocketmq_sdk.broker_embedded.transactions.part import TransactionPart
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.validators import no_such_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
    from rocketmq_sdk.broker_embedded.part import Part
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller, BrokerIdentity
    from rocketmq_sdk.broker_embedded.replication.slave import Connect


class Parts:
    """All parts of a broker, by name and in the order in which they need each other.

    A part may take the core and the parts above it.
    """

    def __init__(
        self,
        core: Core,
        namesrv: NameServer,
        caller: AddressCaller | None,
        identity: Callable[[], BrokerIdentity],
        connect: Connect,
    ) -> None:
        """Make the parts over an open store; nothing is read and nothing runs yet.

        `namesrv` is the name server in the same process, `caller` carries calls to name
        servers elsewhere and to the master, `identity` tells who registers, `connect`
        opens a slave's stream to its master.
        """
        self.access = AccessPart(core)
        self.timers = TimerPart(core)
        self.filters = FilterPart(core)
        self.registration = RegistrationPart(core, namesrv, caller, identity)
        topic_queues = TopicQueues(core.config, core.clock, namesrv.table.route, caller)
        self.members = MemberPart(core, self.filters, topic_queues)
        self.replication = ReplicationPart(
            core, self.timers, self.members, self.registration, caller, connect
        )
        self.pull = PullPart(core, self.filters, self.members, self.replication)
        self.transactions = TransactionPart(core, self.timers.intake, self.members)
        self.send = SendPart(
            core, self.timers.intake, self.transactions, self.members, self.registration.service
        )
        self.pop = PopPart(core, self.timers, self.filters, self.members)
        self.admin = AdminPart(
            core, self.registration, self.members, self.filters, self.timers, self.pull, self.access
        )
        core.topic_deleted += [part.topic_deleted for part in self]
        core.group_deleted += [part.group_deleted for part in self]

    def __iter__(self) -> Iterator[Part]:
        return iter(vars(self).values())

    def __reversed__(self) -> Iterator[Part]:
        return reversed(vars(self).values())


@cache
def _names_of_settings() -> Mapping[str, tuple[str, str]]:
    """Apache's name and Python's, by either."""
    names: dict[str, tuple[str, str]] = {}
    for cls in (StoreConfig, TlsConfig, BrokerConfig):
        for setting in settings_of(cls).values():
            names[setting.name] = names[setting.attribute] = (setting.name, setting.attribute)
    return names


OPTIONS: Final = (
    *("path", "listen", "namesrv_listen", "tls", "metrics", "clock"),
    *("config", "config_file", "namesrv_config_file"),
)
"""What `EmbeddedBroker` takes besides settings."""


def check_names(settings: Iterable[str], own: Iterable[str] = OPTIONS) -> None:
    """Raise `ConfigurationError` for a name that is no setting's, with the nearest one.

    `own` are other options that may have been meant.
    """
    names = _names_of_settings()
    for name in settings:
        if name not in names:
            raise ConfigurationError(no_such_setting(name, [*names, *own]))


def resolve_settings(config: BrokerConfig | None, settings: Mapping[str, object]) -> BrokerConfig:
    """The configuration for `EmbeddedBroker`: `config` changed by single settings.

    Settings are named as in Python or as Apache names them. Raises `ConfigurationError`
    for a bad value, and for a name that does not exist, with the nearest one that does.
    """
    if config is not None and not isinstance(config, BrokerConfig):
        raise WrongTypeError(f"config is {config!r:.200}; give a BrokerConfig(...)")
    resolved = config or BrokerConfig()
    if not settings:
        resolved.check_role()
        return resolved
    check_names(settings)
    names = _names_of_settings()
    texts: dict[str, str] = {}
    values: dict[str, object] = {}
    for name, value in settings.items():
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
