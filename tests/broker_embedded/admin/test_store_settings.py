"""Thresholds of cold reads, reading ahead, the engine of timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from support.administration import Scene, body_of
from support.broker import open_broker

if TYPE_CHECKING:
    from pathlib import Path


def ask(scene: Scene, code: int, body: bytes = b"", **fields: str) -> Command:
    request = Command.request(code, body=body)
    request.ext_fields = fields
    return scene.ask(request)


def test_thresholds_are_kept_shown_and_removed() -> None:
    scene = Scene()
    assert ask(scene, 2001, b"g1=100\ng2=200").code == 0
    assert body_of(ask(scene, 2003))["configTable"] == {"g1": 100, "g2": 200}
    assert ask(scene, 2002, b"g1").code == 0
    assert body_of(ask(scene, 2003))["configTable"] == {"g2": 200}


@pytest.mark.parametrize(
    ("code", "body"), [(2001, b""), (2001, b"g=many"), (2001, b"\xff\xfe=1"), (2002, b" ")]
)
def test_thresholds_that_make_no_sense_are_refused(code: int, body: bytes) -> None:
    scene = Scene()
    assert ask(scene, code, body).code == 1
    assert body_of(ask(scene, 2003))["configTable"] == {}


async def test_reading_ahead_of_the_log(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as (_broker, peer):
        await peer.send("T", b"hello")
        answer = await peer.ask(2004, READ_AHEAD_MODE=1)
        assert (answer.code, answer.remark) == (0, "set commitlog readahead mode success, mode: 1")
        assert [message.body for message in await peer.pull("T")] == [b"hello"]
        assert (await peer.ask(2004, READ_AHEAD_MODE=0)).code == 0
        assert (await peer.ask(2004, READ_AHEAD_MODE=7)).code == 29
        assert (await peer.ask(2004)).code == 29


def test_advice_reaches_files_that_are_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(
        "rocketmq_sdk.broker_embedded.store.files.os_files._advise",
        lambda _descriptor, *, ahead: told.append(ahead),
    )
    files = OsFileSystem(tmp_path)
    early = files.open("commitlog/0")
    early.pwrite(b"x", 0)
    files.read_ahead("commitlog", wanted=False)
    files.open("commitlog/1").pwrite(b"x", 0)
    files.open("index/1").pwrite(b"x", 0)
    assert told == [False, False]
    files.read_ahead("commitlog", wanted=True)
    assert told == [False, False, True, True]


def test_the_only_engine_of_timers_is_the_wheel() -> None:
    scene = Scene()
    assert ask(scene, RequestCode.SWITCH_TIMER_ENGINE, E_T="F").code == 0
    assert ask(scene, RequestCode.SWITCH_TIMER_ENGINE, E_T="R").code == 29
    assert ask(scene, RequestCode.SWITCH_TIMER_ENGINE).code == 29
