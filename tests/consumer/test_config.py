"""Settings of the push consumer: Apache's defaults, ranges, and errors that name the
setting.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from rocketmq_sdk.client.config import CLIENT_OPTIONS
from rocketmq_sdk.consumer.config import (
    LitePullConfig,
    LitePullOptions,
    PushConfig,
    PushOptions,
    SimpleConfig,
    SimpleOptions,
)
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.outcome import ConsumeLater, RejectMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.enums import ConsumeFrom, ExpressionType
from support.broker import open_broker, send_request

if TYPE_CHECKING:
    from trio.testing import MockClock


async def listen(_message: object) -> None: ...


def test_the_defaults_are_apaches() -> None:
    config = PushConfig()
    assert config.consume_from is ConsumeFrom.LAST_OFFSET
    assert (
        config.batch,
        config.concurrency,
        config.pull_batch_size,
        config.pull_batch_size_in_bytes,
    ) == (1, 20, 32, 262144)
    assert config.flow_limits.messages == 1000
    assert config.flow_limits.size == 100 * 1024 * 1024
    assert config.flow_limits.span == 2000
    assert config.most_retries(None) == 16
    assert config.most_retries(3) == 3
    assert PushConfig(orderly=True).most_retries(3) == 2**31 - 1
    assert (
        config.consume_timeout,
        config.pull_suspend,
        config.pull_timeout,
        config.rebalance_interval,
    ) == (900, 15, 30, 20)


def test_durations_and_moments_take_both_forms() -> None:
    config = PushConfig(
        consume_timeout=timedelta(minutes=2),
        consume_timestamp=datetime(2020, 1, 1, tzinfo=UTC),
        max_reconsume_times=0,
    )
    assert config.consume_timeout == 120
    assert config.consume_timestamp == 1577836800000
    assert config.most_retries(None) == config.most_retries(3) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 0),
        ("batch", 1025),
        ("batch", True),
        ("concurrency", 0),
        ("concurrency", 1001),
        ("max_reconsume_times", -2),
        ("pull_threshold_for_queue", 0),
        ("pull_threshold_for_topic", 0),
        ("consume_timeout", 0),
        ("revoke_grace", -1),
        ("pull_batch_size", 1025),
        ("consume_from", "first"),
        ("consume_timestamp", datetime(2020, 1, 1)),
        ("pull_timeout", 10),
        ("nonsense", 1),
    ],
)
def test_what_is_not_acceptable_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match="2020" if name == "consume_timestamp" else name):
        PushConsumer(
            "group",
            namesrv="127.0.0.1:1",
            subscriptions={"t": "*"},
            listener=listen,
            **{name: value},
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "subscriptions", [{}, {"bad topic": "*"}, {"t": "||"}, {"t": ("", "SQL92")}]
)
def test_subscriptions_are_checked(subscriptions: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        PushConsumer("group", namesrv="127.0.0.1:1", subscriptions=subscriptions, listener=listen)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (("SQL92", "a > 1"), "the expression comes first, its type behind it"),
        ((ExpressionType.SQL92, "a > 1"), "the expression comes first, its type behind it"),
        (("a > 1", "SQL"), "'SQL' is no type of expressions"),
        (("a > 1", "sql92"), "'sql92' is no type of expressions"),
        (("a > 1", None), "None is no type of expressions"),
        (("a > 1",), "give tags as a text"),
        (("a", "SQL92", "b"), "give tags as a text"),
        ((5, "TAG"), "is 5, no text"),
        (5, "is 5; give tags as a text"),
        (["a", "b"], "give tags as a text"),
        ("a,b", "the one tag 'a,b'; write several tags as 'a || b'"),
        ("a || b | c", r"the one tag 'b \| c'; write several tags"),
        ("a|||b", r"the one tag '\|b'"),
        ("a || *", r"the one tag '\*'; .* all messages as '\*'"),
        (" * ", r"the one tag '\*'"),
        ("  ", "names no tag"),
    ],
)
def test_what_is_no_subscription_is_named_with_its_remedy(wanted: object, text: str) -> None:
    for kind in (PushConsumer, SimpleConsumer, LitePullConsumer):
        options: dict[str, Any] = {"listener": listen} if kind is PushConsumer else {}
        with pytest.raises(ConfigurationError, match=text) as raised:
            # What users may give.
            kind("group", namesrv="127.0.0.1:1", subscriptions={"orders": wanted}, **options)  # type: ignore[dict-item]
        assert "'orders'" in str(raised.value)


async def test_tags_that_only_other_producers_can_send_are_subscribed_to_by_their_type(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer):
        for tag in ("a,b", "a | b", "*", "a"):
            request = send_request("t", tag.encode(), tag=tag)
            assert (await peer.channel.call(request, 10)).code == 0
        async with SimpleConsumer(
            "g",
            namesrv=broker,
            subscriptions={"t": ("a,b || a | b || *", ExpressionType.TAG)},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            found = [message.body for message in await consumer.receive(32, 10, 5)]
            assert found == [b"a,b", b"a | b", b"*"]
            with pytest.raises(ConfigurationError, match="the one tag"):
                await consumer.subscribe("t", "a,b")
            await consumer.subscribe("t", ("a,b", ExpressionType.TAG))


def test_group_and_listener_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="DEFAULT_CONSUMER"):
        PushConsumer(
            "DEFAULT_CONSUMER", namesrv="127.0.0.1:1", subscriptions={"t": "*"}, listener=listen
        )
    with pytest.raises(ConfigurationError, match="listener"):
        PushConsumer("group", namesrv="127.0.0.1:1", subscriptions={"t": "*"}, listener=None)  # type: ignore[arg-type]


def test_a_delay_level_below_zero_is_what_reject_is_for() -> None:
    assert ConsumeLater(delay_level=3).delay_level == 3
    assert RejectMessage().delay_level == -1
    with pytest.raises(ConfigurationError, match="RejectMessage"):
        ConsumeLater(delay_level=-1)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (PushConfig, PushOptions),
        (LitePullConfig, LitePullOptions),
        (SimpleConfig, SimpleOptions),
    ],
)
def test_the_keyword_form_has_every_setting(config: type, options: type) -> None:
    keywords = set(options.__annotations__)
    if config is PushConfig:
        keywords.add("batch")  # an argument of its own: it says what the listener takes
    assert keywords - CLIENT_OPTIONS == {field.name for field in attrs.fields(config) if field.init}
