"""Topics and groups are written beside the loop; an answer that depends on one leaves
when it is in its file, others do not wait.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.command import Command
from support.broker import connect, heartbeat, open_broker, pull_request, send_request, subscription
from support.turns import counted_turns
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from support.broker import Peer

pytestmark = pytest.mark.real_time


class Disk:
    """The disk below tables: waits while it is stopped, fails while it is broken."""

    def __init__(self) -> None:
        self.going = threading.Event()
        self.going.set()
        self.broken: Exception | None = None
        self.asked = 0
        self.writes: list[str] = []


@contextmanager
def watched_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk, replace = Disk(), ConfigFile._replace

    def slow(file: ConfigFile, data: bytes) -> None:
        disk.asked += 1
        disk.going.wait(20)
        if disk.broken is not None:
            raise disk.broken
        disk.writes.append(file.name)
        replace(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFile, "_replace", slow)
        yield disk
        disk.going.set()


def names_in(path: Path, file: str, member: str) -> set[str]:
    table: dict[str, object] = json.loads((path / "config" / file).read_text())[member]
    return set(table)


class Asked:
    """Requests under way."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.answers: dict[str, Command] = {}

    def ask(self, name: str, peer: Peer, command: Command) -> None:
        async def go() -> None:
            self.answers[name] = await peer.ask(command, 30.0)

        self._nursery.start_soon(go)

    async def wait(self, *names: str) -> None:
        with trio.fail_after(60):
            while not set(names) <= self.answers.keys():
                await trio.sleep(0.005)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize(
    "kind", ["send", "batch of topics", "group by pull", "group by request", "heartbeat"]
)
async def test_only_what_depends_on_the_file_waits_for_it(
    kind: str, flush: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_broker(tmp_path, flush_disk_type=flush) as (broker, peer),
        trio.open_nursery() as nursery,
    ):
        await peer.send("old", b"x")
        await peer.ask(pull_request("old", 0, group="OldGroup"))
        other, asked = await connect(broker, nursery), Asked(nursery)
        create = {
            "send": lambda: send_request("new", b"x"),
            "batch of topics": lambda: Command(
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
                body=b'{"topicConfigList":[{"topicName":"new"},{"topicName":"newer"}]}',
            ),
            "group by pull": lambda: pull_request("old", 0, group="new"),
            "group by request": lambda: Command(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"new"}'
            ),
            "heartbeat": lambda: heartbeat("client", "new", subscription("old")),
        }[kind]
        with watched_disk(monkeypatch) as disk:
            disk.going.clear()
            asked.ask("first", peer, create())
            await until(lambda: disk.asked)
            asked.ask("second", other, create())
            asked.ask("unconcerned send", other, send_request("old", b"y"))
            asked.ask("unconcerned pull", peer, pull_request("old", 0, group="OldGroup"))
            await asked.wait("unconcerned send", "unconcerned pull")
            assert set(asked.answers) == {"unconcerned send", "unconcerned pull"}
            disk.going.set()
            await asked.wait("first", "second")
        assert {answer.code for answer in asked.answers.values()} == {ResponseCode.SUCCESS}
        topics = names_in(tmp_path, "topics.json", "topicConfigTable")
        groups = names_in(tmp_path, "subscriptionGroup.json", "subscriptionGroupTable")
        assert "new" in topics | groups
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "error", [StoreError("No space left on device"), ValueError("an odd value")]
)
async def test_what_cannot_be_written_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with open_broker(tmp_path) as (broker, peer), trio.open_nursery() as nursery:
        await peer.send("old", b"x")
        told: list[str] = []
        before = broker.core.topics.on_change
        assert before is not None

        def tell(topic: TopicConfig) -> None:
            told.append(topic.topic_name)
            before(topic)

        broker.core.topics.on_change = tell
        version = broker.core.topics.data_version
        other, asked = await connect(broker, nursery), Asked(nursery)
        with watched_disk(monkeypatch) as disk:
            disk.going.clear()
            disk.broken = error
            asked.ask("first", peer, send_request("new", b"x"))
            await until(lambda: disk.asked)
            asked.ask("same", other, send_request("new", b"y"))
            asked.ask("later", other, send_request("newer", b"z"))
            asked.ask("unconcerned", other, send_request("old", b"y"))
            await asked.wait("unconcerned")  # those before it have been served as well
            disk.going.set()
            await asked.wait("first", "same", "later")
            for name in ("first", "same", "later"):
                answer = asked.answers[name]
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert str(error) in (answer.remark or "")
            assert broker.core.topics.get("new") is broker.core.topics.get("newer") is None
            assert broker.core.topics.data_version == version
            assert told == []
            disk.broken = None
            if not isinstance(error, StoreError):
                assert str(error) in str(broker.health())
            await peer.send("new", b"again")
            assert told == ["new"]
        nursery.cancel_scope.cancel()
    async with open_broker(tmp_path) as (broker, _peer):
        assert broker.core.topics.get("new") is not None
        assert broker.core.topics.get("newer") is None


async def test_changes_that_come_together_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_broker(tmp_path) as (broker, peer), trio.open_nursery() as nursery:
        asked = Asked(nursery)
        with watched_disk(monkeypatch) as disk:
            for number in range(100):
                asked.ask(str(number), peer, send_request(f"new{number}", b"x"))
            await asked.wait(*map(str, range(100)))
            assert disk.writes.count("topics.json") < 20
        route = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "new99"})
        name_server = await connect(broker, nursery, namesrv=True)
        assert (await name_server.ask(route)).code == ResponseCode.SUCCESS
        nursery.cancel_scope.cancel()
    assert f"new{99}" in names_in(tmp_path, "topics.json", "topicConfigTable")


async def test_a_table_that_nobody_can_read_later_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In memory a new topic or group does not cost the more the more there are."""
    async with open_broker() as (broker, peer):
        with watched_disk(monkeypatch) as disk:
            assert (await peer.ask(send_request("new", b"x"))).code == ResponseCode.SUCCESS
            await peer.ask(heartbeat("c@1", "NewGroup", subscription("new")))
            assert not {"topics.json", "subscriptionGroup.json"} & set(disk.writes)
        assert broker.core.topics.get("new") is not None
        assert broker.core.groups.find_existing("NewGroup") is not None
        assert broker.core.unwritten.touched is False


async def test_the_loop_goes_on_while_a_large_table_of_offsets_is_written(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as (broker, _peer):
        for number in range(100_000):
            broker.core.offsets.commit("G", f"t{number % 20}", number // 20, number)
        async with counted_turns() as turns:
            await broker.core.offsets.persist()
        assert turns() > 10
    kept = json.loads((tmp_path / "config/consumerOffset.json").read_text())["offsetTable"]
    assert kept["t3@G"]["7"] == 143
    async with open_broker(tmp_path) as (broker, _peer):
        assert broker.core.offsets.query("G", "t3", 7) == 143
