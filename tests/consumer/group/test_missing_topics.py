"""A topic that does not exist is told of once, at a level that is read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.group.missing_topics import PATIENCE
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.names import dead_letter_topic
from support.consuming import Switch, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    Consumer = PushConsumer | LitePullConsumer | SimpleConsumer

KINDS = ["push", "orderly", "broadcasting", "pop", "lite pull", "simple"]


def consumer_of(kind: str, source: Any, tmp_path: Path, *topics: str, **options: Any) -> Consumer:
    given: dict[str, Any] = {
        "namesrv": source,
        "subscriptions": dict.fromkeys(topics, "*"),
        **options,
    }
    if kind == "lite pull":
        return LitePullConsumer("billing", **given)
    if kind == "simple":
        return SimpleConsumer("billing", **given)

    async def listener(_message: object) -> None: ...

    more: dict[str, Any] = {
        "orderly": {"orderly": True},
        "pop": {"client_rebalance": False},
        "broadcasting": {
            "message_model": MessageModel.BROADCASTING,
            "local_offset_store_dir": tmp_path,
        },
    }.get(kind, {})
    return PushConsumer("billing", listener=listener, **given, **more)


def told(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    return [
        each
        for each in caplog.records
        if each.levelno >= level and each.name == "rocketmq_sdk.consumer"
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_that_is_not_there_is_one_warning_and_one_line_when_it_comes(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, tmp_path: Path, kind: str
) -> None:
    caplog.set_level(logging.INFO, logger="rocketmq_sdk.consumer")
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with consumer_of(kind, broker, tmp_path, "orders", "typo"):
            await trio.sleep(600)
            (warning,) = told(caplog, logging.WARNING)
            assert warning.__dict__.items() >= {"topic": "typo", "group": "billing"}.items()
            text = warning.getMessage()
            assert "group billing: topic typo does not exist" in text
            assert "Create it" in text
            assert "every 30 s" in text
            assert "RETRY" not in caplog.text
            caplog.clear()
            await sender.create_topic("typo")
            await until(lambda: told(caplog, logging.INFO), 60)
            await trio.sleep(600)
            lines = [each.getMessage() for each in told(caplog, logging.INFO)]
            assert lines.count("group billing: topic typo is there now") == 1
            assert not [text for text in lines if not text.endswith(("there now", " owned"))]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_that_comes_soon_is_no_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, tmp_path: Path, kind: str
) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        consumer_of(kind, broker, tmp_path, "orders"),
    ):
        await trio.sleep(1)
        await sender.send("orders", "first")
        await trio.sleep(600)
    assert not told(caplog, logging.WARNING)


@pytest.mark.parametrize("kind", KINDS)
async def test_dead_letters_that_there_are_not_yet_are_no_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, tmp_path: Path, kind: str
) -> None:
    caplog.set_level(logging.INFO, logger="rocketmq_sdk.consumer")
    async with (
        EmbeddedBroker() as broker,
        consumer_of(kind, broker, tmp_path, dead_letter_topic("shipping")),
    ):
        await trio.sleep(600)
    assert not [each for each in told(caplog, logging.INFO) if "route" in each.getMessage()]
    assert not told(caplog, logging.WARNING)


async def test_a_topic_that_is_added_later_is_told_of_and_one_that_is_removed_is_not(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with consumer_of("push", broker, tmp_path, "orders") as consumer:
            await trio.sleep(100)
            await consumer.subscribe("typo", "paid")
            await consumer.subscribe("gone", "*")
            await trio.sleep(PATIENCE / 2)
            await consumer.subscribe("typo", "*")
            await consumer.unsubscribe("gone")
            await trio.sleep(100)
            assert [each.__dict__["topic"] for each in told(caplog, logging.WARNING)] == ["typo"]
            await consumer.subscribe("typo", "paid")
            await trio.sleep(100)
            assert len(told(caplog, logging.WARNING)) == 1
            await consumer.unsubscribe("typo")
            await consumer.subscribe("typo", "paid")
            await trio.sleep(100)
            assert len(told(caplog, logging.WARNING)) == 2


async def test_while_no_name_server_answers_nothing_is_said_of_topics(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with EmbeddedBroker() as broker:
        switch = Switch(None)
        async with consumer_of("push", switch, tmp_path, "typo"):
            await trio.sleep(100)
            assert "does not exist" not in caplog.text
            switch.connect(broker)
            await trio.sleep(100)
            assert caplog.text.count("does not exist") == 1
