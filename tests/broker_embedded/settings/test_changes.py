"""Settings changed while the broker runs hold after a restart: by a properties file as
Apache's do, or by a record beside the tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.settings.properties_file import (
    change_properties,
    read_properties,
)
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError, StoreCorruptError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import connect, open_broker, open_on

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from support.broker import Peer

RECORD = "config/changedSettings.json"


def update(text: str, *, namesrv: bool = False) -> Command:
    code = RequestCode.UPDATE_NAMESRV_CONFIG if namesrv else RequestCode.UPDATE_BROKER_CONFIG
    return Command(code, body=text.encode())


async def change(broker: EmbeddedBroker, peer: Peer, broker_text: str, namesrv_text: str) -> None:
    answer = await peer.ask(update(broker_text))
    assert answer.code == 0, answer.remark
    async with trio.open_nursery() as nursery:
        namesrv = await connect(broker, nursery, namesrv=True)
        answer = await namesrv.ask(update(namesrv_text, namesrv=True))
        assert answer.code == 0, answer.remark
        nursery.cancel_scope.cancel()


async def shown(peer: Peer) -> dict[str, str]:
    answer = await peer.ask(RequestCode.GET_BROKER_CONFIG)
    return read_properties(answer.body.decode())


async def test_changes_hold_after_a_restart(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as (broker, peer):
        await change(
            broker,
            peer,
            "autoCreateTopicEnable=false\nmaxMessageSize=1000\nfileReservedTime=5",
            "orderMessageEnable=true",
        )
    for _ in range(2):
        async with open_broker(tmp_path) as (broker, peer):
            assert broker.config.auto_create_topic_enable is False
            assert broker.config.store.max_message_size == 1000
            assert broker.namesrv.config.current.order_message_enable
            assert (await shown(peer))["fileReservedTime"] == "5"


async def test_the_decision_made_last_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A change beats the value of the start before, and loses to a new one."""
    async with open_broker(tmp_path, max_message_size=2000) as (_, peer):
        await peer.ask(update("maxMessageSize=3000\nshortPollingTimeMills=7"))
    async with open_broker(tmp_path, max_message_size=2000) as (broker, _):
        assert broker.config.store.max_message_size == 3000
    async with open_broker(tmp_path, max_message_size=4000) as (broker, _):
        assert broker.config.store.max_message_size == 4000
        assert broker.config.short_polling_time_mills == 7
    assert "maxMessageSize=3000, set while the broker ran, is dropped" in caplog.text
    async with open_broker(tmp_path, max_message_size=2000) as (broker, _):
        assert broker.config.store.max_message_size == 2000


@pytest.mark.parametrize("started", [{}, {"short_polling_time_mills": 500}])
async def test_changing_back_leaves_no_trace(tmp_path: Path, started: dict[str, int]) -> None:
    async with open_broker(tmp_path, **started) as (broker, peer):
        before = str(broker.config.short_polling_time_mills)
        for text in ("7", "8", before):
            assert (await peer.ask(update(f"shortPollingTimeMills={text}"))).code == 0
    assert json.loads((tmp_path / RECORD).read_bytes()) == {"changes": {}}


async def test_what_does_not_change_writes_nothing(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as (broker, peer):
        everything = "\n".join(f"{name}={text}" for name, text in (await shown(peer)).items())
        everything = everything.replace("configBlackList=", "transferMsgByHeap=")
        assert (await peer.ask(update(everything))).code == 0
        assert (await peer.ask(update("maxMessageSize=4194304"))).code == 0
        assert broker.config.extra.keys() == {"transferMsgByHeap"}
    assert json.loads((tmp_path / RECORD).read_bytes())["changes"].keys() == {"transferMsgByHeap"}


async def test_a_change_that_cannot_be_kept_is_refused() -> None:
    files = FaultyFileSystem()
    async with open_on(files, reserve_bytes=0) as (broker, peer):
        files.limit_bytes = files.used_bytes
        answer = await peer.ask(update("maxMessageSize=1000"))
        assert answer.code != 0
        assert RECORD in (answer.remark or "")
        assert broker.config.store.max_message_size == 4194304
        files.limit_bytes = 1 << 40
        assert (await peer.ask(update("maxMessageSize=1000"))).code == 0
    async with open_on(files) as (broker, _):
        assert broker.config.store.max_message_size == 1000


@pytest.mark.parametrize("content", ["[]", '{"changes": []}', '{"changes": {"a": 5}}', "no JSON"])
async def test_a_corrupt_record_is_named_and_kept(tmp_path: Path, content: str) -> None:
    async with open_broker(tmp_path) as (_, peer):
        await peer.ask(update("maxMessageSize=1000"))
    for name in (RECORD, f"{RECORD}.bak"):
        (tmp_path / name).write_text(content)
    with pytest.raises(StoreCorruptError, match="changedSettings"):
        async with open_broker(tmp_path):
            pass
    assert (tmp_path / RECORD).read_text() == content
    for name in (RECORD, f"{RECORD}.bak"):
        (tmp_path / name).unlink()
    async with open_broker(tmp_path) as (broker, _):
        assert broker.config.store.max_message_size == 4194304


async def test_a_bad_value_in_the_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    entry = {"value": "many", "startedWith": None}
    (tmp_path / RECORD).write_text(json.dumps({"changes": {"maxMessageSize": entry}}))
    with pytest.raises(ConfigurationError, match=r"changedSettings\.json: maxMessageSize=many"):
        async with open_broker(tmp_path):
            pass


async def test_a_properties_file_takes_changes(tmp_path: Path) -> None:
    conf, namesrv_conf = tmp_path / "broker.conf", tmp_path / "namesrv.conf"
    conf.write_text("# ours\nmaxMessageSize = 2000\nbrokerName=shop")
    conf.chmod(0o640)
    namesrv_conf.write_text("orderMessageEnable=false\n")
    files = {"config_file": conf, "namesrv_config_file": namesrv_conf}
    async with open_broker(tmp_path / "store", **files) as (broker, peer):
        assert broker.config.broker_name == "shop"
        text = "maxMessageSize=3000\nautoCreateTopicEnable=false"
        await change(broker, peer, text, "orderMessageEnable=true")
    assert conf.read_text() == (
        "# ours\nmaxMessageSize=3000\nbrokerName=shop\nautoCreateTopicEnable=false\n"
    )
    assert conf.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "broker.conf.bak").read_text().startswith("# ours\nmaxMessageSize = 2000")
    assert namesrv_conf.read_text() == "orderMessageEnable=true\n"
    async with open_broker(tmp_path / "store", **files) as (broker, _):
        assert broker.config.store.max_message_size == 3000
        assert broker.namesrv.config.current.order_message_enable


async def test_a_file_that_is_gone_refuses_changes(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("maxMessageSize=2000\n")
    async with open_broker(config_file=conf) as (broker, peer):
        conf.unlink()
        answer = await peer.ask(update("maxMessageSize=3000"))
        assert answer.code != 0
        assert "nothing was changed" in (answer.remark or "")
        assert broker.config.store.max_message_size == 2000


async def test_a_file_that_cannot_be_replaced_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is mounted into a container by itself."""
    conf = tmp_path / "broker.conf"
    conf.write_text("maxMessageSize=200000\n")

    def busy(_path: Path, _target: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(type(conf), "replace", busy)
    async with open_broker(config_file=conf) as (_, peer):
        assert (await peer.ask(update("maxMessageSize=3000"))).code == 0
    assert conf.read_text() == "maxMessageSize=3000\n"
    assert not conf.with_name("broker.conf.tmp").exists()


async def test_a_settings_file_beats_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_broker(tmp_path) as (_, peer):
        await peer.ask(update("maxMessageSize=1000"))
    conf = tmp_path / "broker.conf"
    conf.write_text("")
    async with open_broker(tmp_path, config_file=conf) as (broker, _):
        assert broker.config.store.max_message_size == 4194304
    assert "changedSettings.json is not read" in caplog.text


async def test_texts_that_break_lines_are_refused() -> None:
    async with open_broker() as (broker, peer):
        answer = await peer.ask(update("regionId=a\\nmaxMessageSize=1"))
        assert answer.code != 0
        assert not broker.config.extra


async def test_name_servers_are_shown() -> None:
    async with open_broker(listen=0, namesrv_listen=0) as (broker, peer):
        assert (await shown(peer))["namesrvAddr"] == broker.namesrv_address
        assert (await shown(peer))["listenPort"] == (broker.address or "").rpartition(":")[2]
        async with trio.open_nursery() as nursery:
            namesrv = await connect(broker, nursery, namesrv=True)
            answer = await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)
            port = (broker.namesrv_address or "").rpartition(":")[2]
            assert read_properties(answer.body.decode())["listenPort"] == port
            answer = await namesrv.ask(update("listenPort=1", namesrv=True))
            assert "listenPort cannot change" in (answer.remark or "")
            nursery.cancel_scope.cancel()


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
LINES = st.lists(
    st.sampled_from(["# c", "", "a=1", "a : 2\\", "  3", "b\\=c=4\\\\", "\u2028=5", "x"]),
    max_size=8,
)


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_changed_texts_read_back(lines: list[str], ending: str, changed: dict[str, str]) -> None:
    text = ending.join(lines)
    found = change_properties(text, changed)
    assert read_properties(found) == {**read_properties(text), **changed}
    comments = [line for line in lines if line == "# c"]
    assert found.count("# c") >= len(comments)
