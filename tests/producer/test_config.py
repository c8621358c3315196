"""Settings of producers: defaults, both forms, refusals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_type_hints

import attrs
import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.producer.config import (
    PRODUCER_OPTIONS,
    ProducerConfig,
    ProducerOptions,
    split_options,
)
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.compression import CompressionType


def test_defaults_are_apaches() -> None:
    config = ProducerConfig()
    assert (
        config.send_timeout,
        config.retry_times,
        config.max_message_size,
        config.compress_over,
    ) == (3.0, 2, 4194304, 4096)
    assert (
        config.compression_level,
        config.compression,
        config.create_topic_key,
        config.default_topic_queue_nums,
    ) == (
        5,
        CompressionType.ZLIB,
        "TBW102",
        4,
    )
    assert not config.retry_another_broker_when_not_store_ok
    assert config.retry_response_codes >= {17, 14, 1, 2, 16, 204, 205, 1500}
    assert config.fault_profile == "unanswered"
    assert not config.detector
    assert (config.detect_timeout, config.detect_interval) == (0.2, 2.0)


def test_the_keyword_form_has_every_setting() -> None:
    from rocketmq_sdk.client.config import CLIENT_OPTIONS

    assert set(ProducerOptions.__annotations__) | CLIENT_OPTIONS >= PRODUCER_OPTIONS
    assert set(ProducerOptions.__annotations__) - CLIENT_OPTIONS == PRODUCER_OPTIONS
    assert {field.name for field in attrs.fields(ProducerConfig)} == PRODUCER_OPTIONS


def test_durations_are_seconds_or_timedelta() -> None:
    assert ProducerConfig(send_timeout=timedelta(milliseconds=1500)).send_timeout == 1.5
    assert ProducerConfig(send_timeout=2).send_timeout == 2.0


@pytest.mark.parametrize(
    "options",
    [
        {"send_timeout": 0},
        {"send_timeout": "3"},
        {"send_timeout": float("nan")},
        {"send_timeout": True},
        {"send_timeout_per_attempt": -1},
        {"retry_times": -1},
        {"retry_times": 1.5},
        {"max_message_size": 0},
        {"compression": "gzip"},
        {"fault_profile": "other"},
        {"max_in_flight": 0},
    ],
)
def test_bad_values_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        split_options(options, shared_client=False)


def test_unknown_settings_are_named() -> None:
    with pytest.raises(ConfigurationError, match="sendTimeout"):
        Producer("g", namesrv="h:1", sendTimeout=3)  # type: ignore[call-arg]


def test_client_settings_beside_a_shared_client_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="client_ip"):
        split_options({"client_ip": "10.0.0.1"}, shared_client=True)


@pytest.mark.parametrize("group", ["", "DEFAULT_PRODUCER", "has blank", "x" * 121])
def test_bad_groups(group: str) -> None:
    with pytest.raises(ConfigurationError):
        Producer(group, namesrv="h:1")


def test_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigurationError, match="NAMESRV_ADDR"):
        Producer("g")
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    assert Producer("g").client.config is not None


def test_annotations_resolve() -> None:
    assert "topic" not in get_type_hints(ProducerConfig)
