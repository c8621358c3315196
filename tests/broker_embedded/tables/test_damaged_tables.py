"""A broker whose tables hold something else says which file is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.errors import StoreCorruptError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_on

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

NAMES = ["consumerOffset.json", "consumerOrderInfo.json", "delayOffset.json", "timermetrics"]


@pytest.mark.parametrize("name", [*NAMES, "messageRequestMode.json"])
@pytest.mark.parametrize("value", [[], 1, "text", {"dataVersion": 1, "table": 1}])
async def test_the_file_is_named(name: str, value: object) -> None:
    files = MemoryFileSystem()
    ConfigFile(files, name).store(value)
    if isinstance(value, dict) and name == "messageRequestMode.json":
        return  # it knows neither member, and keeps them
    with pytest.raises(StoreCorruptError, match=name):
        async with open_on(files):
            pass


async def table_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all tables that a broker has."""
    names: set[str] = set()
    before = ConfigFile.__init__

    def note(self: ConfigFile, files: FileSystem, name: str, **options: bool) -> None:
        names.add(name)
        before(self, files, name, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFile, "__init__", note)
        async with open_on(FaultyFileSystem()):
            pass
    return sorted(names)


async def test_a_broken_table_is_kept_named_and_never_overwritten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins anew, as at Apache's; what was broken stays beside it."""
    names = await table_names(monkeypatch)
    assert {*NAMES, "topics.json", "subscriptionGroup.json", "kvConfig.json"} <= set(names)
    for name in names:
        caplog.clear()
        files = FaultyFileSystem()
        for text in (b'{"first": tr', b"second"):
            files.write(f"config/{name}", text)
            async with open_on(files) as (broker, peer):
                await peer.send("orders", b"served")
                reasons = broker.health().reasons
                for part in broker.parts:
                    for table in part.saved_tables():
                        await table.save()
            if name in READ_LATE:
                continue
            assert any(f"config/{name}.broken" in reason for reason in reasons), (name, reasons)
        if name not in READ_LATE:
            assert files.read(f"config/{name}.broken") == b'{"first": tr', name
            assert files.read(f"config/{name}.broken.1") == b"second", name
            assert f"config/{name} holds no JSON and is kept as" in caplog.text
            assert "so it begins anew" in caplog.text


READ_LATE = ("unreadableRecords.json",)
"""Read when something is added to it."""


async def test_the_last_but_one_content_is_used_and_the_broken_one_kept(
    autojump_clock: MockClock,
) -> None:
    files = FaultyFileSystem()
    async with open_on(files) as (_broker, peer):
        await peer.send("orders", b"x")
        await peer.send("others", b"x")
    files.write("config/topics.json", b"\0" * 100)
    for _ in range(2):
        async with open_on(files) as (broker, peer):
            assert broker.core.topics.get("orders") is not None
            assert any("topics.json.broken" in reason for reason in broker.health().reasons)
            await peer.send("others", b"x")
    assert files.read("config/topics.json.broken") == b"\0" * 100
    files.remove("config/topics.json.broken")
    async with open_on(files) as (broker, peer):
        assert not broker.health().reasons


def test_what_was_never_read_is_not_overwritten_either() -> None:
    files = MemoryFileSystem()
    files.write("config/any.json", b"[broken")
    ConfigFile(files, "any.json").store({})
    assert files.read("config/any.json.broken") == b"[broken"
