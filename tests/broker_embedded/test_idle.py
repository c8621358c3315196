"""A broker that nobody uses hardly wakes; a body that comes again is decoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import EmbeddedBroker
from rocketmq_sdk.broker_embedded import request as requests
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.members import HeartbeatData
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.simulation.seeded import run_seeded
from support.broker import open_broker

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

HOUR = 3600.0


class Steps(trio.abc.Instrument):
    """Counts how often tasks run."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        del task
        self.count += 1


def test_an_idle_broker_wakes_once_in_seconds() -> None:
    """Each 5 s it looks whether a table has changed; no task is started for that."""

    async def main() -> int:
        steps = Steps()
        async with EmbeddedBroker():
            await trio.sleep(60)
            trio.lowlevel.add_instrument(steps)
            await trio.sleep(HOUR)
            trio.lowlevel.remove_instrument(steps)
        return steps.count

    assert run_seeded(0, main) < HOUR / 5 * 2


async def test_a_body_that_comes_again_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0
    read: Callable[..., HeartbeatData] = HeartbeatData.from_json

    def counted(cls: type[HeartbeatData], value: object) -> HeartbeatData:
        nonlocal decoded
        del cls
        decoded += 1
        return read(value)

    monkeypatch.setattr(HeartbeatData, "from_json", classmethod(counted))
    monkeypatch.setattr(requests, "KEPT_BODIES", 200)
    async with open_broker() as (_broker, peer):

        async def beat(name: str) -> None:
            body = HeartbeatData(name, (f"producers of {name}",)).encode()
            answer = await peer.ask(Command(RequestCode.HEART_BEAT, body=body))
            assert answer.code == ResponseCode.SUCCESS

        for name in ("a", "a", "b", "a", "b"):
            await beat(name)
        assert decoded == 2
        for number in range(10):  # older ones have to go
            await beat(str(number))
        await beat("a")
        assert decoded == 13
        wrong = Command(RequestCode.HEART_BEAT, body=b'{"producerDataSet": 7}')
        for _ in range(2):
            assert (await peer.ask(wrong)).code != ResponseCode.SUCCESS
