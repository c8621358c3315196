"""The broker's settings: Apache's names, properties texts, warnings, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_sdk.broker_embedded.settings.apache_names import settings_of
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.settings.known_settings import REFUSALS, WITHOUT_EFFECT
from rocketmq_sdk.broker_embedded.settings.tls import TlsConfig
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType, StoreConfig
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.delay_levels import parse_delay_levels
from support.administration import conversation
from support.paths import CODEC_VECTORS

RULES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "names_and_rules.json").read_text())
OWN = {
    "connectionMemoryLimit",
    "plainAclFile",
    "memoryLimit",
    "memoryFullPolicy",
    "reserveBytes",
    "hotBytes",
    "allocationStep",
}
NULL_IN_THE_RECORDING = {"haMasterAddress", "storePathCommitLog"}
OF_AUTH_CONFIG = {
    # `AuthConfig`, which Apache's broker does not show.
    "authenticationEnabled",
    "authenticationWhitelist",
    "authorizationEnabled",
    "authorizationWhitelist",
    "initAuthenticationUser",
    "innerClientAuthenticationCredentials",
    "migrateAuthFromV1Enabled",
    "aclEnable",  # of 4.9 to 5.3.2
}
SET_BY_THE_RECORDING = {
    "listenPort",
    "haListenPort",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "transactionTimeOut",
    "transactionCheckInterval",
}


def recorded_settings() -> dict[str, str]:
    answer = next(
        expected
        for _, request, expected in conversation("admin_reads.json.jsonl.gz")
        if request.code == 26
    )
    return dict(line.split("=", 1) for line in answer.body.decode().splitlines() if "=" in line)


def test_names_and_defaults_are_those_of_apache() -> None:
    recorded = recorded_settings()
    ours = BrokerConfig().export()
    names = {
        name
        for cls in (BrokerConfig, StoreConfig, TlsConfig)
        for name in settings_of(cls)
        if name not in OWN and not name.startswith("tls.")  # of the Java machine
    }
    assert names - recorded.keys() <= NULL_IN_THE_RECORDING | OF_AUTH_CONFIG, (
        "every setting of ours is one of Apache's"
    )
    different = {
        name: (ours[name], recorded[name])
        for name in names & ours.keys() & recorded.keys()
        if ours[name] != recorded[name]
    }
    assert different.keys() == SET_BY_THE_RECORDING, different


def test_each_setting_of_apache_works_or_is_refused_or_tells_why_not() -> None:
    ours = {
        *settings_of(BrokerConfig),
        *settings_of(StoreConfig),
        *settings_of(TlsConfig),
    }
    kinds = (ours - OWN, REFUSALS.keys(), WITHOUT_EFFECT.keys())
    decided = [name for kind in kinds for name in kind]
    assert len(decided) == len(set(decided))
    assert recorded_settings().keys() <= set(decided)
    assert all(WITHOUT_EFFECT.values())
    assert all(refusal.reason for refusal in REFUSALS.values())


def test_a_usual_broker_conf() -> None:
    config, warnings = BrokerConfig.from_properties(
        """
        # Licensed
        brokerClusterName = DefaultCluster
        brokerName = broker-b
        brokerId = 0
        deleteWhen = 04;16
        mappedFileSwapEnable = true
        brokerRole = ASYNC_MASTER
        flushDiskType = SYNC_FLUSH
        storeType=default
        aclEnable=false
        mappedFileSizeCommitLog=65536
        brokerIP1=10.0.0.1
        checkCRCOnRecover=false
        """
    )
    assert (config.broker_name, config.broker_ip1) == ("broker-b", "10.0.0.1")
    assert config.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.store.delete_when == "04;16"
    assert (config.store.mapped_file_size_commit_log, config.store.check_crc_on_recover) == (
        65536,
        False,
    )
    reason = WITHOUT_EFFECT["mappedFileSwapEnable"]
    assert warnings == [f"the setting mappedFileSwapEnable has no effect in this broker: {reason}"]
    again, _ = BrokerConfig.from_properties(config.to_properties())
    assert again == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flushDiskType=NEVER", ["flushDiskType", "NEVER", "ASYNC_FLUSH or SYNC_FLUSH"]),
        ("autoCreateTopicEnable=yes", ["autoCreateTopicEnable", "yes", "true or false"]),
        ("defaultTopicQueueNums=eight", ["defaultTopicQueueNums", "eight", "whole number"]),
        ("defaultTopicQueueNums=0", ["default_topic_queue_nums", "0"]),
        ("brokerPermission=9", ["broker_permission", "9", "0 to 7"]),
        ("mappedFileSizeConsumeQueue=7", ["mappedFileSizeConsumeQueue", "7", "20"]),
        ("messageDelayLevel=1s 5x", ["messageDelayLevel", "5x"]),
        ("brokerName=", ["brokerName", "leave"]),
        ("brokerName=a b", ["broker_name", "a b"]),
        ("brokerId=1", ["brokerId", "brokerRole=SLAVE"]),
        ("storeType=defaultRocksDB", ["storeType", "RocksDB"]),
        ("configManagerVersion=V2", ["configManagerVersion", "RocksDB"]),
        ("enableControllerMode=true", ["controller"]),
        ("enableDLegerCommitLog=true", ["DLedger"]),
        ("enableLmq=TRUE", ["enableLmq"]),
        ("enableSlaveActingMaster=true", ["enableSlaveActingMaster", "another role"]),
        ("isBrokerContainer=true", ["container"]),
        ("authorizationEnabled=true", ["authorizationEnabled", "authenticationEnabled=true"]),
        ("authenticationWhitelist=105,route", ["whitelist", "'route'", "no request code"]),
        ("tls.server.mode=always", ["tls.server.mode", "permissive or disabled or enforcing"]),
        ("tls.test.mode.enable=true", ["tls.server.certPath"]),
        ("metricsExporterType=LOG", ["metricsExporterType", "DISABLE or PROM"]),
        ("metricsLabel=north", ["metrics_label", "name:value"]),
        ("storePathCommitLog=/a:/b", ["storePathCommitLog", "one path"]),
        ("storePathCommitLog=/a,/b", ["storePathCommitLog", "one path"]),
        ("readOnlyCommitLogStorePaths=/a:/b", ["several directories"]),
    ],
)
def test_bad_values_and_refused_asks_name_key_value_and_remedy(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        BrokerConfig.from_properties(text)
    for word in words:
        assert word in str(error.value)


def test_a_log_below_the_root_is_where_it_is_kept() -> None:
    """As Apache's documentation shows it."""
    text = "storePathRootDir=/data/store\nstorePathCommitLog=/data/store/commitlog\n"
    config, warnings = BrokerConfig.from_properties(text)
    assert config.store_path_root_dir == "/data/store"
    assert config.store_path_commit_log == "/data/store/commitlog"
    assert warnings == []


def test_unknown_and_idle_settings_are_kept_with_a_warning() -> None:
    config, warnings = BrokerConfig.from_properties(
        "whatever=1\ntransferMsgByHeap=false\nstoreType=default"
    )
    assert config.extra == {"whatever": "1", "transferMsgByHeap": "false", "storeType": "default"}
    assert [("whatever" in warning, "unknown" in warning) for warning in warnings] == [
        (True, True),
        (False, False),
    ]
    assert "transferMsgByHeap" in warnings[1]
    assert config.export()["whatever"] == "1"


def test_python_names_are_strict() -> None:
    config = BrokerConfig().with_options(
        {"broker_name": "x", "flush_disk_type": FlushDiskType.SYNC_FLUSH}
    )
    assert config.broker_name == "x"
    assert config.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    with pytest.raises(ConfigurationError, match="does not exist"):
        BrokerConfig().with_options({"brokername": "x"})
    with pytest.raises(ConfigurationError):
        BrokerConfig().with_options({"max_message_size": -1})


def test_live_changes_are_all_or_none_and_are_told() -> None:
    live = LiveConfig(BrokerConfig())
    told: list[tuple[int, int]] = []
    live.on_change.append(
        lambda before, after: told.append((before.broker_permission, after.broker_permission))
    )
    with pytest.raises(ConfigurationError):
        live.update({"brokerPermission": "4", "longPollingEnable": "perhaps"}, 5)
    assert (live.current.broker_permission, live.data_version.counter, told) == (6, 0, [])
    with pytest.raises(ConfigurationError, match=r"no setting brokerPermision; did you mean brok"):
        live.update({"brokerPermission": "4", "brokerPermision": "4"}, 5)
    assert (live.current.broker_permission, live.data_version.counter, told) == (6, 0, [])
    (warning,) = live.update({"brokerPermission": "4", "transferMsgByHeap": "false"}, 5)
    assert warning.startswith("the setting transferMsgByHeap has no effect in this broker")
    assert (live.current.broker_permission, live.data_version.counter, told) == (4, 1, [(6, 4)])
    with pytest.raises(ConfigurationError, match="while the broker runs"):
        live.update({"brokerName": "other"}, 6)
    live.update({"brokerName": "broker-a"}, 6)


LIVE = {
    "maxMessageSize",
    "cleanFileForciblyEnable",
    "deleteFileBatchMax",
    "deleteWhen",
    "diskMaxUsedSpaceRatio",
    "diskSpaceCleanForciblyRatio",
    "diskSpaceWarningLevelRatio",
    "fileReservedTime",
}


@pytest.mark.parametrize("name", sorted(settings_of(StoreConfig).keys() - LIVE))
def test_settings_of_the_store_do_not_change_while_it_runs(name: str) -> None:
    sizes = {"mappedFileSizeConsumeQueue": "2000", "mapperFileSizeBatchConsumeQueue": "460"}
    other = {
        "flushDiskType": "SYNC_FLUSH",
        "memoryFullPolicy": "REFUSE_SENDS",
        "messageDelayLevel": "1s 1s 1s",
        "deleteWhen": "05",
        "timerPrecisionMs": "500",
        **sizes,
    }
    live = LiveConfig(BrokerConfig())
    value = live.current.export()[name]
    changed = (
        {"true": "false", "false": "true"}.get(value) or other.get(name) or str(int(value) + 1)
    )
    with pytest.raises(
        ConfigurationError,
        match=f"{name} cannot change .* takes effect after a restart; change the configuration "
        "file",
    ):
        live.update({"regionId": "moved", name: changed}, 5)
    assert live.current == BrokerConfig()
    live.update({name: value}, 5)


def test_what_is_read_at_the_start_does_not_change_later() -> None:
    live = LiveConfig(BrokerConfig())
    for name, text in (
        ("namesrvAddr", "127.0.0.1:1"),
        ("defaultTopicQueueNums", "3"),
        ("delayOffsetUpdateVersionStep", "7"),
        ("maxErrorRateOfBloomFilter", "10"),
        ("expectConsumerNumUseFilter", "64"),
    ):
        with pytest.raises(ConfigurationError, match=f"{name} cannot change"):
            live.update({name: text}, 5)
    live.update({"maxMessageSize": "8000000"}, 5)
    assert live.current.store.max_message_size == 8_000_000


@pytest.mark.parametrize("name", ["realTimeNotifyConsumerChange", "subscriptionExpiredTimeout"])
def test_settings_that_nothing_here_reads_say_so(name: str) -> None:
    assert LiveConfig(BrokerConfig()).update({name: "5"}, 5) == [
        f"the setting {name} has no effect in this broker: {WITHOUT_EFFECT[name]}"
    ]


@pytest.mark.parametrize(
    "rule",
    [rule for rule in RULES if rule["kind"] == "delay_levels"],
    ids=lambda rule: repr(rule["levels"]),
)
def test_delay_levels(rule: dict[str, Any]) -> None:
    # Apache takes a negative time; here it is a mistake.
    if rule["parsed"] and "-" not in rule["levels"]:
        assert parse_delay_levels(rule["levels"]) == tuple(
            rule["table_ms"][str(level)] for level in range(1, rule["max"] + 1)
        )
    else:
        with pytest.raises(ConfigurationError, match="messageDelayLevel"):
            parse_delay_levels(rule["levels"])
