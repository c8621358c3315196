"""What Apache's programs write many times is cut, not decoded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk import EmbeddedBroker, Message, Producer
from rocketmq_sdk.broker_embedded.send.plain_sends import PlainSends
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.shapes.answers import AnswerShapes, CutAnswer
from rocketmq_sdk.protocol.shapes.sends import CutSend
from support.waiting import unique

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support import java

pytestmark = pytest.mark.both_releases

ENOUGH = 0.9
"""The rest comes first, or with others that are special."""


def counted(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, note: Callable[[Any], object]
) -> None:
    """Have each result of a method noted."""
    method = getattr(owner, name)

    def noting(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        note(result)
        return result

    monkeypatch.setattr(owner, name, noting)


async def test_sends_of_a_java_producer(
    json_driver: java.Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where the topic is new, and special until its settings are written."""
    kinds: Counter[type] = Counter()
    counted(
        monkeypatch,
        PlainSends,
        "_admit",
        lambda asked: kinds.update(type(request) for request, _queue, _key in asked),
    )
    async with EmbeddedBroker(
        tmp_path,
        listen=0,
        namesrv_listen=0,
        wait_time_mills_in_send_queue=60_000,  # the machine may stand still
    ) as broker:
        producer = unique("p")
        group, namesrv = unique("pg"), broker.namesrv_address
        await json_driver.do("producer", id=producer, group=group, namesrv=namesrv)
        for topic in (unique("first"), unique("second"), unique("third")):
            kinds.clear()
            outcome = await json_driver.do(
                "send_many", id=producer, topic=topic, count=10_000, in_flight=256
            )
            assert outcome["failed"] == 0
            assert kinds[CutSend] > ENOUGH * kinds.total() > 1000
        await json_driver.do("stop", id=producer)


async def test_answers_of_apaches_broker(
    apache: java.ApacheCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: Counter[type] = Counter()
    counted(monkeypatch, AnswerShapes, "learn", lambda answer: kinds.update((type(answer),)))
    counted(monkeypatch, AnswerShapes, "cut", lambda answer: kinds.update((type(answer),)))
    async with Producer(unique("pg"), namesrv=apache.namesrv) as producer:
        for topic in (unique("first"), unique("second")):
            for _ in range(20):
                for handle in [producer.submit(Message(topic, b"body")) for _ in range(100)]:
                    await handle
    assert kinds[CutAnswer] > ENOUGH * 4000
    assert 0 < kinds[Command] < 0.1 * 4000
