"""A directory that is taken from under a broker: it stops taking messages, says why,
and leaves alone what may be another's.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files import lock_watch
from rocketmq_sdk.errors import RocketMQError
from support.broker import open_broker, send_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.real_time


def _removed(path: Path) -> None:
    shutil.rmtree(path)


def _another_lock(path: Path) -> None:
    (path / "new").write_bytes(b"lock")
    (path / "new").replace(path / "lock")


def _no_lock(path: Path) -> None:
    (path / "lock").unlink()


@pytest.mark.parametrize("happens", [_removed, _another_lock, _no_lock], ids=lambda f: f.__name__)
async def test_a_directory_taken_from_under_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(lock_watch, "LOOK_EVERY", 0.02)
    path = tmp_path / "store"
    before: dict[str, bytes] = {}
    with pytest.raises(RocketMQError):  # its tables cannot be saved
        await _live(path, happens, before)
    assert _tables(path) == before
    assert (path / "abort").exists() is (happens is not _removed)


async def _live(path: Path, happens: Callable[[Path], None], before: dict[str, bytes]) -> None:
    async with open_broker(path) as (broker, peer):
        await peer.send("T", b"first")
        await trio.sleep(0.1)
        assert broker.health()
        happens(path)
        with trio.fail_after(60):
            while broker.health():
                await trio.sleep(0.02)
        assert "so that another broker can open it" in str(broker.health())
        assert (await peer.ask(send_request("T", b"second"))).code != 0
        broker.core.offsets.commit("G", "T", 0, 1)
        before.update(_tables(path))


def _tables(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("config/*")}
