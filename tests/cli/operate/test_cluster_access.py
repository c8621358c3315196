"""Commands for brokers, users and policies, and the doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk import Admin
from rocketmq_sdk.errors import ConfigurationError, NotPermittedError
from rocketmq_sdk.remoting.credentials import Credentials
from support.access import ADMIN, ON, SECRET
from support.command_line import run_with, shell

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


async def test_brokers_and_their_settings(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        [row] = await sh.rows("clusterList")
        assert (row["cluster"], row["broker"], row["id"]) == ("DefaultCluster", "broker-a", 0)
        assert row["trouble"] is None
        address = row["address"]
        [status] = await sh.rows("brokerStatus", "-b", address)
        assert status["brokerActive"] == "true"
        change = ("updateBrokerConfig", "-b", address, "-k")
        await sh.run(*change, "fileReservedTime", "-v", "48")
        [settings] = await sh.rows("getBrokerConfig", "-b", address)
        assert settings["fileReservedTime"] == "48"
        with pytest.raises(ConfigurationError, match="fileReservedTime"):
            await sh.run(*change, "fileReservdTime", "-v", "48")


async def test_users_and_what_they_may_do(tmp_path: Path, autojump_clock: MockClock) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter-22\n")
    async with shell(credentials=Credentials(ADMIN, SECRET), **ON) as sh:
        await sh.run("createUser", "-u", "carol", "--password-file", str(secret))
        await sh.run("createUser", "-u", "dave", "-p", "pass-word-1", "-t", "Super")
        assert await sh.rows("listUser") == [
            {"user": "admin", "type": "Super", "status": "enable"},
            {"user": "carol", "type": "Normal", "status": "enable"},
            {"user": "dave", "type": "Super", "status": "enable"},
        ]
        assert await sh.rows("listUser", "-f", "car") == [
            {"user": "carol", "type": "Normal", "status": "enable"}
        ]
        await sh.run("updateUser", "-u", "carol", "-s", "disable")
        [row] = await sh.rows("getUser", "-u", "carol")
        assert row["status"] == "disable"
        found = await sh.admin.users.get("carol")
        assert found is not None
        assert found.password == "hunter-22"
        with pytest.raises(ConfigurationError, match="what is to change"):
            await sh.run("updateUser", "-u", "carol")

        await sh.run("createAcl", "-s", "carol", "-r", "Topic:orders,Topic:a*", "-a", "Pub,Sub")
        rows = await sh.rows("getAcl", "-s", "User:carol")
        assert sorted(row["resource"] for row in rows) == ["Topic:a*", "Topic:orders"]
        assert {row["decision"] for row in rows} == {"Allow"}
        assert await sh.rows("listAcl") == rows
        for text in ("policies of carol are deleted", "carol had no policies for Topic:orders"):
            told = await sh.run("deleteAcl", "-s", "carol", "-r", "Topic:orders")
            assert told.lines == [text]
        assert [row["resource"] for row in await sh.rows("listAcl")] == ["Topic:a*"]
        for start in ("the user carol is deleted", "there was no user carol"):
            assert (await sh.run("deleteUser", "-u", "carol")).text.startswith(start)
        assert (await sh.run("getUser", "-u", "carol")).code == 1


async def test_no_password_is_printed_or_taken_from_nowhere(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    async with shell(credentials=Credentials(ADMIN, SECRET), **ON) as sh:
        await sh.run("createUser", "-u", "dave", "-p", "pass-word-1")
        for query in (["listUser"], ["getUser", "-u", "dave"]):
            assert "pass-word-1" not in (await sh.run(*query)).text
            assert "pass-word-1" not in (await sh.run(*query, "--json")).text
        with pytest.raises(ConfigurationError, match="--password-file"):
            await sh.run("createUser", "-u", "erin")
        for file in (empty, tmp_path / "nope"):
            with pytest.raises(ConfigurationError):
                await sh.run("createUser", "-u", "erin", "--password-file", str(file))


async def test_what_is_not_permitted_is_not_tried_for_ever(autojump_clock: MockClock) -> None:
    async with shell(credentials=Credentials(ADMIN, SECRET), **ON) as sh:
        await sh.run("createUser", "-u", "erin", "-p", "pass-word-1")
        await sh.run("createAcl", "-s", "erin", "-r", "Topic:orders", "-a", "Pub,Sub")
        keys = Credentials("erin", "pass-word-1")
        async with Admin(namesrv=sh.broker, credentials=keys) as erin:
            with pytest.raises(NotPermittedError, match="Group:TOOLS_CONSUMER"):
                await run_with(erin, "tail", "orders")
