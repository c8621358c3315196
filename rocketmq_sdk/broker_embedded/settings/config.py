"""Settings of the broker under Apache's names in snake case.

The defaults are Apache's but for the few that the documentation lists. There are three
ways to set them: Python (`BrokerConfig(...)`, `with_options`), Apache's properties text
(`from_properties`) and the request UPDATE_BROKER_CONFIG (`LiveConfig.update`). In
Python an unknown name is an error. In properties it is kept with a warning, as is a
name that Apache knows and that has no effect here. A setting that asks for something
refused is always an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from rocketmq_sdk.broker_embedded.settings.apache_names import (
    SETTING,
    evolve_settings,
    export_settings,
    names_in,
    settings_of,
)
from rocketmq_sdk.broker_embedded.settings.changes import check_kept, check_known
from rocketmq_sdk.broker_embedded.settings.fields import (
    codes,
    integer,
    labels,
    one_name,
    one_path,
    secret,
)
from rocketmq_sdk.broker_embedded.settings.known_settings import REFUSALS, WITHOUT_EFFECT
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties, write_properties
from rocketmq_sdk.broker_embedded.settings.tls import TlsConfig
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.briefly import Turns
from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.delay_levels import parse_delay_levels
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.names import TRACE_TOPIC
from rocketmq_sdk.protocol.bodies.members import MessageRequestMode
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.validators import with_values

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.settings.changes import KeepsChanges

logger = logging.getLogger(__name__)

# What is read once, when the broker starts. Apache takes changes of most of these and
# does nothing with them until the next start.
_READ_AT_THE_START: Final = frozenset(
    {
        "brokerClusterName",
        "brokerName",
        "brokerIP1",
        "brokerIP2",
        "brokerId",
        "brokerRole",
        "listenPort",
        "haListenPort",
        "haMasterAddress",
        "namesrvAddr",
        "storePathCommitLog",
        "storePathRootDir",
        "defaultTopicQueueNums",
        "clusterTopicEnable",
        "brokerTopicEnable",
        "traceTopicEnable",
        "msgTraceTopicName",
        "timerWheelEnable",
        "reviveQueueNum",
        "consumerOffsetUpdateVersionStep",
        "delayOffsetUpdateVersionStep",
        "expectConsumerNumUseFilter",
        "maxErrorRateOfBloomFilter",
        "authenticationEnabled",
        "authenticationWhitelist",
        "authorizationEnabled",
        "authorizationWhitelist",
        "aclEnable",
        "metricsExporterType",
        "metricsLabel",
        "metricsOtelCardinalityLimit",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "migrateAuthFromV1Enabled",
        "plainAclFile",
    }
)
_OF_RETENTION: Final = frozenset(
    (
        "cleanFileForciblyEnable",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
    )
)
_LIVE_IN_THE_STORE: Final = _OF_RETENTION | {"maxMessageSize"}
_FIXED_WHILE_RUNNING: Final = tuple(
    sorted(
        _READ_AT_THE_START
        | settings_of(TlsConfig).keys()
        | (settings_of(StoreConfig).keys() - _LIVE_IN_THE_STORE)
    )
)
_SECRETS: Final = frozenset(
    (
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "tls.server.keyPassword",
        "tls.client.keyPassword",
    )
)
ALWAYS_BLACK_LISTED: Final = _SECRETS | {"configBlackList", "brokerConfigPath", "rocketmqHome"}


class MetricsExporterType(Enum):
    """How metrics leave the broker (`MetricsExporterType` of Apache)."""

    DISABLE = "DISABLE"
    PROM = "PROM"
    """They are fetched over HTTP, as by Prometheus."""


class BrokerRole(Enum):
    """The role of a broker among those of its name.

    A SYNC_MASTER can wait for slaves before it acknowledges; a SLAVE copies its
    master's log.
    """

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@explained
@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Settings of the broker; durations are milliseconds, as in Apache's.

    Raises `ConfigurationError` for a value out of range.
    """

    broker_cluster_name: str = attrs.field(default="DefaultCluster", validator=one_name)
    broker_name: str = attrs.field(default="broker-a", validator=one_name)
    broker_id: int = integer(0)
    """0 is the master; a slave has its own number from 1 on."""
    broker_ip1: str | None = attrs.field(default=None, metadata={SETTING: "brokerIP1"})
    """The host in routes and message ids; None: the host that the client dialled."""
    broker_ip2: str | None = attrs.field(default=None, metadata={SETTING: "brokerIP2"})
    listen_port: int = integer(10911, 0, 65535)
    ha_listen_port: int = integer(0, 0, 65535)
    """The port for slaves.

    With 0 a SYNC_MASTER and a master with `totalReplicas` above 1 take the port above
    their own (any free one when the system chose their own), and other masters have
    none.
    """
    ha_master_address: str | None = None
    """Its master's port for slaves as `host:port`; None: ask the name server."""
    slave_read_enable: bool = False
    """Whether consumers may read from a slave.

    If so, a master sends those to a slave that read what is no longer in memory.
    """
    namesrv_addr: str | None = None
    """Name servers elsewhere to register at, separated by semicolons.

    The name server in the same process always knows the broker.
    """
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    broker_permission: int = integer(6, 0, 7)
    metrics_exporter_type: MetricsExporterType = MetricsExporterType.DISABLE
    """PROM serves metrics and health over HTTP (docs/metrics.md)."""
    metrics_prom_exporter_host: str | None = None
    """The address for that; None: `brokerIP1`, else 127.0.0.1."""
    metrics_prom_exporter_port: int = integer(5557, 0, 65535)
    """The port for that; 0 takes any free one."""
    metrics_label: str | None = attrs.field(default=None, validator=labels)
    """More labels of all samples, as `name:value,name:value`."""
    metrics_otel_cardinality_limit: int = integer(50_000, 1)
    """Most sets of labels of one counting metric; more are counted as one."""
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    config_black_list: str = "configBlackList;brokerConfigPath"
    store_path_root_dir: str | None = None
    """The directory to open when none is named otherwise."""
    store_path_commit_log: str | None = attrs.field(default=None, validator=one_path)
    """The directory of the log; None: `commitlog` below the root.

    A store in memory has no directory, and leaves it out. Several paths are refused.
    """

    # Topics
    auto_create_topic_enable: bool = True
    default_topic_queue_nums: int = integer(8, 1)
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    validate_system_topic_when_update_topic: bool = True
    enable_mixed_message_type: bool = False
    clear_retry_topic_when_delete_topic: bool = True
    trace_topic_enable: bool = True
    """On, unlike Apache's default, so that traces of clients have a home."""
    msg_trace_topic_name: str = attrs.field(default=TRACE_TOPIC, validator=one_name)
    timer_wheel_enable: bool = True
    recall_message_enable: bool = True
    """Whether timers can be taken back; on, unlike Apache's default."""
    allow_recall_when_broker_not_writeable: bool = True
    revive_queue_num: int = integer(8, 1)
    enable_split_metadata: bool = True
    split_metadata_size: int = integer(2000, 1)

    # Under pressure
    broker_fast_failure_enable: bool = True
    """Whether requests that waited too long are refused with SYSTEM_BUSY.

    The next settings are the limits.
    """
    wait_time_mills_in_send_queue: int = integer(200)
    wait_time_mills_in_pull_queue: int = integer(5000)
    wait_time_mills_in_lite_pull_queue: int = integer(5000)
    wait_time_mills_in_heartbeat_queue: int = integer(31_000)
    wait_time_mills_in_transaction_queue: int = integer(3000)
    wait_time_mills_in_ack_queue: int = integer(3000)
    wait_time_mills_in_admin_broker_queue: int = integer(5000)

    # Groups, consumers, offsets
    auto_create_subscription_group: bool = True
    enable_create_sys_group: bool = True
    notify_consumer_ids_changed_enable: bool = True
    reject_pull_consumer_enable: bool = False
    lite_pull_message_enable: bool = True
    long_polling_enable: bool = True
    short_polling_time_mills: int = integer(1000)
    flush_consumer_offset_interval: int = integer(5000, 1)
    consumer_offset_update_version_step: int = integer(500, 1)
    delay_offset_update_version_step: int = integer(200, 1)
    flush_delay_offset_interval: int = integer(10_000, 1)
    use_server_side_reset_offset: bool = True
    enable_broadcast_offset_store: bool = True
    """Whether the broker notes where clients of broadcasting groups pull.

    For clients that come through a proxy.
    """
    broadcast_offset_expire_second: int = integer(120, 1)
    """Seconds without a pull after which a disconnected client is forgotten.

    The next setting is for connected clients.
    """
    broadcast_offset_expire_max_second: int = integer(300, 1)
    connection_memory_limit: int = integer(256 * 1024 * 1024, 1024 * 1024)
    """Bytes that all connections may hold together.

    Unfinished frames, requests without an answer, and answers that were not taken yet.
    """
    channel_expired_timeout: int = integer(120_000, 1)
    enable_register_producer: bool = True
    enable_property_filter: bool = True
    enable_calc_filter_bit_map: bool = False
    """Whether messages get a bit map of the expressions that they make TRUE.

    Queues need room for it (`enableConsumeQueueExt`).
    """
    filter_support_retry: bool = False
    """Whether retries are filtered by the expression of their original topic."""
    filter_data_clean_time_span: int = integer(24 * 3600 * 1000, 1)
    max_error_rate_of_bloom_filter: int = integer(20, 1, 99)
    """Percent of false hits accepted in those bit maps, for this many groups.

    The number is the next setting. Both give the size of the maps, so they are read at
    the start.
    """
    expect_consumer_num_use_filter: int = integer(32, 1)
    start_accept_send_request_time_stamp: int = integer(0)

    # Transactions
    transaction_time_out: int = integer(6000)
    """How old a half message is at its first check, unless it says so itself."""
    transaction_check_interval: int = integer(30_000, 1)
    transaction_check_max: int = integer(15, 0)
    """Checks of one half message; then it goes to TRANS_CHECK_MAX_TIME_TOPIC."""
    reject_transaction_message: bool = False
    store_reply_message_enable: bool = True
    """Whether replies to requests are stored as well as handed on."""

    # Pop
    enable_pop_buffer_merge: bool = False
    """Keep checkpoints of pops in memory for some seconds.

    Much less is written, and after a kill the last pops come again.
    """
    pop_ck_stay_buffer_time: int = integer(10_000, 1)
    pop_ck_stay_buffer_time_out: int = integer(3000, 0)
    pop_ck_max_buffer_size: int = integer(200_000)
    pop_ck_offset_max_queue_size: int = integer(20_000)
    pop_polling_size: int = integer(1024)
    max_pop_polling_size: int = integer(100_000)
    pop_from_retry_probability: int = integer(20, 0, 100)
    pop_from_retry_probability_for_priority: int = integer(0, 0, 100)
    priority_order_asc: bool = True
    init_pop_offset_by_check_msg_in_mem: bool = True
    pop_response_return_actual_retry_topic: bool = False
    enable_retry_topic_v2: bool = attrs.field(
        default=False, metadata={SETTING: "enableRetryTopicV2"}
    )
    retrieve_message_from_pop_retry_topic_v1: bool = attrs.field(
        default=True, metadata={SETTING: "retrieveMessageFromPopRetryTopicV1"}
    )
    use_separate_retry_queue: bool = False
    skip_when_ck_re_put_reach_max_times: bool = attrs.field(
        default=False, metadata={SETTING: "skipWhenCKRePutReachMaxTimes"}
    )
    server_load_balancer_enable: bool = True
    default_message_request_mode: MessageRequestMode = MessageRequestMode.PULL
    default_pop_share_queue_num: int = integer(-1, -1)
    load_balance_poll_name_server_interval: int = integer(30_000, 1)

    # Registration
    register_name_server_period: int = integer(30_000, 1)
    register_broker_timeout_mills: int = integer(24_000, 1)
    force_register: bool = True
    compressed_register: bool = False

    # Access control
    authentication_enabled: bool = False
    """Whether each request must carry the signature of a user."""
    authentication_whitelist: str | None = attrs.field(default=None, validator=codes)
    """Codes of requests that need no signature, separated by commas."""
    authorization_enabled: bool = False
    """Whether users need a permission for what they ask."""
    authorization_whitelist: str | None = attrs.field(default=None, validator=codes)
    """Codes of requests that need no permission, separated by commas."""
    init_authentication_user: str | None = secret()
    """A super user to begin with, as `{"username": "...", "password": "..."}`.

    Made when there is no user of that name. Secret: shown in no answer and no error.
    """
    inner_client_authentication_credentials: str | None = secret()
    """The keys of the broker's own calls, `{"accessKey": "...", "secretKey": "..."}`.

    Its calls go to name servers and to its master. Their user is made as that of the
    setting above is; secret as well.
    """

    acl_enable: bool = False
    """Whether requests are checked by the accounts of ACL 1.0 instead."""
    plain_acl_file: str | None = None
    """Their file; None: `conf/plain_acl.yml` below the variable ROCKETMQ_HOME.

    Files in the folder `acl` beside it count too. Apache has no such setting.
    """
    migrate_auth_from_v1_enabled: bool = False
    """Whether accounts of that file become users, those that are not there yet."""

    store: StoreConfig = attrs.field(factory=StoreConfig, metadata={SETTING: None})
    tls: TlsConfig = attrs.field(factory=TlsConfig, metadata={SETTING: None})
    extra: Mapping[str, str] = attrs.field(factory=dict, metadata={SETTING: None})
    """Properties without effect here, kept so that GET_BROKER_CONFIG shows them."""

    def __attrs_post_init__(self) -> None:
        if self.broker_id != 0 and not self.is_slave:
            raise ConfigurationError(
                f"brokerId={self.broker_id} is that of a slave: "
                "set brokerRole=SLAVE, or leave brokerId out, as a master's is 0"
            )
        parse_delay_levels(self.store.message_delay_level)
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigurationError(
                "authorizationEnabled=true without authenticationEnabled=true would believe every "
                "name that a request carries: set both"
            )
        if self.acl_enable and self.authentication_enabled:
            raise ConfigurationError(
                "aclEnable=true and authenticationEnabled=true are two ways to check requests: "
                "leave one out (migrateAuthFromV1Enabled=true makes users of the accounts)"
            )

    @classmethod
    def from_properties(cls, text: str) -> tuple[Self, list[str]]:
        """The settings of a properties text, and warnings for those without effect.

        Raises `ConfigurationError` for a bad value and for a refused setting.
        """
        return cls().with_settings(read_properties(text))

    def with_settings(self, texts: Mapping[str, str]) -> tuple[Self, list[str]]:
        """The settings changed by texts under Apache's names, and the warnings.

        All are changed or none. Raises `ConfigurationError` for a bad value and for a
        refused setting.
        """
        own, store = settings_of(type(self)), settings_of(type(self.store))
        tls = settings_of(TlsConfig)
        kept: dict[str, str] = {}
        warnings: list[str] = []
        for name, text in texts.items():
            refusal = REFUSALS.get(name)
            if refusal is not None and refusal.applies(text, texts):
                raise ConfigurationError(f"{name}={text} {refusal.reason}")
            if name in own or name in store or name in tls:
                continue
            kept[name] = text
            if (reason := WITHOUT_EFFECT.get(name)) is not None:
                warnings.append(f"the setting {name} has no effect in this broker: {reason}")
            elif refusal is None:
                warnings.append(f"the setting {name} is unknown; it is kept and has no effect")
        changed_store = evolve_settings(
            self.store, {name: text for name, text in texts.items() if name in store}
        )
        changed_tls = evolve_settings(
            self.tls, {name: text for name, text in texts.items() if name in tls}
        )
        changed = evolve_settings(
            self, {name: _optional(name, text) for name, text in texts.items() if name in own}
        )
        if changed_store is not self.store or changed_tls is not self.tls or kept:
            extra = {**self.extra, **kept}
            changed = with_values(changed, store=changed_store, tls=changed_tls, extra=extra)
        return changed, warnings

    def with_options(self, options: Mapping[str, object]) -> Self:
        """The settings changed by values under Python names, also the store's.

        Raises `ConfigurationError` for a name that does not exist and for a bad value.
        """
        own = {attribute.name for attribute in attrs.fields(type(self))}
        store = {attribute.name for attribute in attrs.fields(type(self.store))}
        if unknown := [name for name in options if name not in own | store]:
            raise ConfigurationError(
                f"the setting {unknown[0]!r} does not exist; "
                "see BrokerConfig and StoreConfig for those that do"
            )
        try:
            store_options: dict[str, Any] = {
                name: value for name, value in options.items() if name not in own
            }
            changed_store = with_values(self.store, **store_options)
            own_options: dict[str, Any] = {
                name: value for name, value in options.items() if name in own
            }
            own_options.setdefault("store", changed_store)
            return with_values(self, **own_options)
        except ConfigurationError:
            raise
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"a setting is not acceptable: {error}") from None

    def export(self) -> dict[str, str]:
        """All settings as texts under Apache's names, in alphabetical order."""
        return dict(
            sorted(
                {
                    **self.extra,
                    **export_settings(self.store),
                    **export_settings(self.tls),
                    **export_settings(self),
                }.items()
            )
        )

    def to_properties(self) -> str:
        """All settings as a properties text."""
        return write_properties(self.export())

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies a master."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def checks_access(self) -> bool:
        """Whether requests are checked at all."""
        return self.authentication_enabled or self.acl_enable

    def check_role(self) -> None:
        """Raises `ConfigurationError` for contradicting settings of replication."""
        self.store.check_replicas()
        if self.is_slave and self.broker_id == 0:
            raise ConfigurationError(
                "brokerRole=SLAVE needs a brokerId of its own above 0; 0 is that of the master"
            )
        if self.ha_master_address is not None:
            split_address(self.ha_master_address)

    def delay_levels(self) -> tuple[int, ...]:
        """The delay of each level in milliseconds; level 1 is the first."""
        return parse_delay_levels(self.store.message_delay_level)

    def known_names(self) -> set[str]:
        """All names that may be changed: Apache's, ours, and what a file has named."""
        return {
            *settings_of(type(self)),
            *settings_of(type(self.store)),
            *settings_of(TlsConfig),
            *WITHOUT_EFFECT,
            *REFUSALS,
            *self.extra,
        }

    def black_list(self) -> frozenset[str]:
        """The settings that no request may change."""
        return ALWAYS_BLACK_LISTED | names_in(self.config_black_list)


def _optional(name: str, text: str) -> str:
    if not text.strip():
        raise ConfigurationError(f"{name} has no value; leave the setting out instead")
    return text


class LiveConfig:
    """The settings in force; requests can change them at run time (`Configuration`).

    Callbacks in `on_change` are called with the old and the new settings.
    """

    __slots__ = ("_turns", "current", "data_version", "keeper", "on_change")

    def __init__(self, config: BrokerConfig) -> None:
        self.current = config
        self._turns = Turns()
        self.data_version = DataVersion()
        self.keeper: KeepsChanges | None = None
        """Keeps changes for the next start; None: they are gone then."""
        self.on_change: list[Callable[[BrokerConfig, BrokerConfig], None]] = []

    def update(self, texts: Mapping[str, str], now_ms: int) -> list[str]:
        """Change settings under Apache's names, all or none, and tell the warnings.

        For this life only. Raises `ConfigurationError` for a name that does not exist,
        for a bad value, for what is refused, and for a change of what is read only at
        the start, the store's settings but `maxMessageSize` and those of retention
        among it.
        """
        before = self.current
        check_known(texts, before.known_names())
        changed, warnings = self._changed(texts)
        self.current = changed
        self.data_version = self.data_version.next(now_ms)
        for listener in self.on_change:
            listener(before, self.current)
        return warnings

    async def update_and_keep(self, texts: Mapping[str, str], now_ms: int) -> list[str]:
        """`update`, and keep the changes for the next start before they are in force.

        Raises `StoreError` when they cannot be kept; nothing is changed then.
        """
        async with self._turns:
            check_known(texts, self.current.known_names())
            if self.keeper is not None:
                old, new = self.current.export(), self._changed(texts)[0].export()
                changed = {name: new[name] for name in texts if old.get(name) != new[name]}
                await self.keeper.keep(changed)
            return self.update(texts, now_ms)

    def take_over(self, texts: Mapping[str, str]) -> None:
        """Put changes of an earlier life in force, before anything listens.

        Raises `ConfigurationError` as `update` does.
        """
        self.current, _warnings = self._changed(texts)

    def _changed(self, texts: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        changed, warnings = self.current.with_settings(texts)
        old, new = self.current.export(), changed.export()
        for name in _FIXED_WHILE_RUNNING:
            if old.get(name) != new.get(name):
                problem = (
                    "cannot change while the broker runs: "
                    "it takes effect after a restart; change the configuration file"
                )
                raise ConfigurationError(f"{name} {problem}")
        if not _SECRETS.isdisjoint(texts):
            raise ConfigurationError("secrets cannot change while the broker runs")
        check_kept(texts)
        return changed, warnings
