"""Extreme values in every request: an answer within a second of processor time, the
broker keeps serving, its tables can still be saved.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.header import header_fields
from support.broker import open_broker, pull_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.request import Request
    from support.broker import Peer

NUMBERS = ("-1", "-2147483648", "2147483647", "-9223372036854775808", "9223372036854775807")
TEXTS = ("9" * 100_000, "\0", "", "orders;" * 100_000)
SERVED: list[int] = [int(code) for code in RequestCode]


def commands(row: Request) -> list[Command]:
    """Each value in all fields at once, and in one field beside plain ones."""
    fields = header_fields(row.header) if row.header is not None else ()
    plain = {field.name: "1" if field.kind in ("int", "long") else "orders" for field in fields} | {
        "topic": "orders",
        "consumerGroup": "CG",
        "group": "CG",
        "queueId": "0",
    }
    found = [
        Command(row.code, ext_fields=dict.fromkeys((field.name for field in fields), value))
        for value in NUMBERS + TEXTS
    ]
    found += [
        Command(row.code, ext_fields={**plain, field.name: value})
        for field in fields
        for value in NUMBERS + TEXTS
    ]
    bodies = (b"[]", b"{}", json.dumps(["orders"] * 100_000).encode(), b"[" * 100_000, b"9" * 5000)
    found += [Command(row.code, ext_fields=dict(plain), body=body) for body in bodies]
    return found


@pytest.fixture
def _in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps does not wait for the threads that decode large bodies."""

    async def at_once(function: Callable[..., object], *arguments: object, **_: object) -> object:
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)


@pytest.mark.usefixtures("_in_the_loop")
@pytest.mark.parametrize("code", SERVED)
async def test_every_request_survives(autojump_clock: MockClock, tmp_path: Path, code: int) -> None:
    async with open_broker(tmp_path) as (broker, peer):
        row = next((row for row in broker.requests if row.code == code), None)
        if row is None:
            return
        await peer.send("orders", b"first")
        for command in commands(row):
            begin = time.process_time()
            with trio.move_on_after(1):  # what is held is as good as answered
                await peer.ask(command)
            assert time.process_time() - begin < 1, command.ext_fields
        await check_alive(peer)
        for part in broker.parts:
            for table in part.saved_tables():
                await table.save()
        await broker.core.offsets.persist()


async def check_alive(peer: Peer) -> None:
    await peer.send("alive", b"again")
    assert (await peer.ask(pull_request("alive", 0))).code == 0


async def test_a_batch_of_acks_is_not_amplified(autojump_clock: MockClock) -> None:
    bits = base64.b64encode(b"\xff" * 800_000).decode()
    entry = {"c": "G", "t": "orders", "r": "0", "q": 0, "rq": 0, "pt": 1, "it": 60000, "b": bits}
    async with open_broker() as (_broker, peer):
        await peer.send("orders", b"first")
        for start in (-(10**12), -1, 0):
            body = json.dumps({"acks": [{**entry, "so": start}]}).encode()
            begin = time.process_time()
            answer = await peer.ask(Command(RequestCode.BATCH_ACK_MESSAGE, body=body))
            assert answer.code != 0
            assert time.process_time() - begin < 0.5
            named = "startOffset" if start < 0 else "the limit is 4096"
            assert named in (answer.remark or "")


async def test_a_topic_named_repeatedly_counts_once(autojump_clock: MockClock) -> None:
    async with open_broker() as (_broker, peer):
        await peer.send("orders", b"first")
        await peer.ask(pull_request("orders", 0))
        begin = time.process_time()
        many = await peer.ask(
            RequestCode.GET_CONSUME_STATS, consumerGroup="CG", topicList="orders;" * 100_000
        )
        assert time.process_time() - begin < 0.5
        once = await peer.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="CG", topicList="orders")
        assert (many.code, many.body) == (0, once.body)


@pytest.mark.parametrize("queue_id", [-1, 1000, 2**31 - 1])
async def test_offsets_of_queues_that_a_topic_does_not_have(
    autojump_clock: MockClock, queue_id: int
) -> None:
    async with open_broker() as (broker, peer):
        await peer.send("orders", b"first")
        await peer.ask(pull_request("orders", 0))
        answer = await peer.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="CG",
            topic="orders",
            queueId=queue_id,
            commitOffset=1,
        )
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "queueId" in (answer.remark or "")
        if queue_id > 0:
            answer = await peer.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                group="CG",
                topic="orders",
                queueId=queue_id,
                timestamp=0,
                isForce="true",
            )
            assert answer.code == ResponseCode.INVALID_PARAMETER
        assert not broker.core.offsets.offsets_of("CG", "orders")
