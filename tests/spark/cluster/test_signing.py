"""Keys that change while a query runs: read again when a broker refuses them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import Admin, Client, EmbeddedBroker, Message, Producer
from rocketmq_sdk.client.api.progress import topic_stats
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import NotPermittedError
from rocketmq_sdk.protocol.signing import verify
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import persistently

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command

REMARKS = {
    ResponseCode.NO_PERMISSION: "authentication failed, please check your credentials.",
    ResponseCode.SYSTEM_ERROR: "org.apache.rocketmq.acl.common.AclException: Check failed",
}


class Gate:
    """Refuses what is not signed with its key, as an access control does."""

    def __init__(self, code: int) -> None:
        self.code, self.key, self.refused = code, "old", 0

    def before(self, command: Command, address: str | None) -> None:
        """Requests pass."""

    def after(self, command: Command, response: Command, address: str | None) -> None:
        if not verify(command.ext_fields, command.body, self.key):
            self.refused += 1
            response.code, response.remark, response.body = self.code, REMARKS[self.code], None


def keys(path: Path, secret: str) -> None:
    path.write_text(f"accessKey = user\nsecretKey = {secret}\n")


@asynccontextmanager
async def guarded(file: Path, code: int) -> AsyncIterator[tuple[Client, Gate, EmbeddedBroker]]:
    gate = Gate(code)
    keys(file, "old")
    own = ClusterAccess("unused:1", credentials_file=str(file)).client_options()["interceptors"]
    async with EmbeddedBroker() as broker:
        async with Admin(namesrv=broker) as admin:
            await admin.topics.create("T", queues=2)
        async with Client(broker, interceptors=[gate, *own]) as client:
            yield client, gate, broker


async def ask(client: Client) -> int:
    address = client.broker_address("broker-a")
    if address is None:
        await client.route("T", refresh=True)
        address = client.broker_address("broker-a")
    assert address is not None
    return len((await topic_stats(client, address, "T")).offset_table)


@pytest.mark.parametrize("code", REMARKS)
async def test_changed_keys_are_read_again_and_calls_repeated(
    code: int, autojump_clock: MockClock, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    async with guarded(file, code) as (client, gate, _):
        assert await persistently("asking", 10, lambda: ask(client)) == 2
        gate.key = "new"
        keys(file, "new")
        found: list[int] = []

        async def again() -> None:
            found.append(await persistently("asking", 10, lambda: ask(client)))

        async with trio.open_nursery() as nursery:  # all of them are refused, and all go on
            for _number in range(5):
                nursery.start_soon(again)
        assert found == [2] * 5
        refused = gate.refused
        assert refused >= 5
        assert await persistently("asking", 10, lambda: ask(client)) == 2
        assert gate.refused == refused


async def test_keys_that_did_not_change_are_an_error_at_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    async with guarded(file, ResponseCode.NO_PERMISSION) as (client, gate, _):
        gate.key = "new"
        begin = trio.current_time()
        with pytest.raises(NotPermittedError, match="authentication failed"):
            await persistently("asking", 10, lambda: ask(client))
        file.unlink()  # one moment of a file that is being replaced
        with pytest.raises(NotPermittedError, match="authentication failed"):
            await persistently("asking", 10, lambda: ask(client))
        assert trio.current_time() - begin < 1
        keys(file, "new")
        assert await persistently("asking", 10, lambda: ask(client)) == 2


async def test_a_sender_goes_on_with_changed_keys(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    async with (
        guarded(file, ResponseCode.NO_PERMISSION) as (client, gate, _),
        Producer("group", client=client) as producer,
    ):
        await producer.send(Message("T", b"1"))
        gate.key = "new"
        keys(file, "new")
        result = await persistently("sending", 10, lambda: producer.send(Message("T", b"2")))
        assert result.queue_offset >= 0
