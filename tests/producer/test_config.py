"""Settings of producers: defaults, both forms, refusals."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, get_type_hints

import attrs
import pytest

from rocketmq_sdk import aio, sync
from rocketmq_sdk.errors import CodecMissingError, ConfigurationError, WrongTypeError
from rocketmq_sdk.producer.config import (
    PRODUCER_OPTIONS,
    ProducerConfig,
    ProducerOptions,
    split_options,
)
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol import compression
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


def test_probing_is_quick_by_default_with_the_default_profile_only() -> None:
    def probing(**given: Any) -> tuple[float, float]:
        config = ProducerConfig(**given)
        return config.detect_timeout, config.detect_interval

    assert probing() == (1.0, 1.0)
    for profile in ("today", "classic", None):
        assert probing(fault_profile=profile) == (0.2, 2.0)  # Apache's
    assert probing(detect_timeout=0.3, detect_interval=7) == (0.3, 7.0)
    assert probing(detect_interval=0.5) == (1.0, 0.5)


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


@pytest.mark.parametrize(
    "options",
    [
        {"auto_batch": 5},
        {"auto_batch": {"linger": 1}},
        {"tls": True},
        {"credentials": ("a", "b")},
        {"interceptors": [5]},
        {"send_hooks": [5]},
        {"header_encoding": 5},
        {"compression": 5},
        {"compression_level": "5"},
        {"send_timeout": "3"},
        {"instance_name": 5},
    ],
    ids=str,
)
def test_values_of_wrong_types_are_refused_as_such(options: dict[str, Any]) -> None:
    [name] = options
    with pytest.raises(WrongTypeError, match=name.removesuffix("s")):
        Producer("g", namesrv="h:1", **options)


@pytest.mark.parametrize(
    ("method", "level", "most"),
    [("zlib", 10, 9), ("zlib", 22, 9), ("zstd", 23, 22)],
)
def test_a_level_that_the_compression_does_not_have_is_refused_at_once(
    method: str, level: int, most: int
) -> None:
    with pytest.raises(ConfigurationError, match=f"compression_level is {level}; .* 0 to {most}"):
        Producer("g", namesrv="h:1", compression=method, compression_level=level)
    made = Producer("g", namesrv="h:1", compression=method, compression_level=most)
    assert made.config.compression_level == most


@pytest.mark.parametrize(("method", "module"), [("lz4", "lz4.frame"), ("zstd", "zstandard")])
def test_a_compression_without_its_library_is_refused_at_once(
    method: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compression._library.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    try:
        with pytest.raises(CodecMissingError, match=rf"rocketmq-trio\[{method}\]"):
            Producer("g", namesrv="h:1", compression=method)
    finally:
        monkeypatch.undo()
        compression._library.cache_clear()


@pytest.mark.parametrize("door", [aio, sync], ids=["aio", "sync"])
def test_a_broker_of_another_door_is_reached_by_an_address(door: Any) -> None:
    with pytest.raises(WrongTypeError, match="give it ports"):
        Producer("g", namesrv=door.EmbeddedBroker())


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
