"""Users and policies over the wire (3001 to 3010): codes and remarks as Apache's, and
the file that keeps them.
"""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError, StoreCorruptError, StoreError
from rocketmq_sdk.protocol.bodies.access import AclInfo, UserInfo
from rocketmq_sdk.protocol.command import Command
from support.access import ADMIN, ON, SECRET, SignedPeer, add_user, policy
from support.broker import connect, open_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


def create(name: str, password: str | None = "pw", kind: str | None = None) -> Command:
    return Command(
        RequestCode.AUTH_CREATE_USER,
        ext_fields={"username": name},
        body=UserInfo(None, password, kind).encode(),
    )


def update(name: str, **fields: str) -> Command:
    return Command(
        RequestCode.AUTH_UPDATE_USER,
        ext_fields={"username": name},
        body=UserInfo(None, **fields).encode(),
    )


def create_acl(subject: str, *entries: tuple[str, str, str]) -> Command:
    info = AclInfo(None, (policy(*entries),) if entries else ())
    return Command(RequestCode.AUTH_CREATE_ACL, ext_fields={"subject": subject}, body=info.encode())


def said(answer: Command) -> tuple[int, str | None]:
    return int(answer.code), answer.remark


async def test_users(autojump_clock: MockClock) -> None:
    async with open_broker(**ON) as (broker, peer):
        admin = SignedPeer(peer)
        assert said(await admin.ask(create("bob"))) == (0, None)
        assert said(await admin.ask(create("bob"))) == (16, "The user is existed")
        assert said(await admin.ask(create(""))) == (29, "The username is blank")
        assert said(await admin.ask(create(" "))) == (16, "username can not be blank")
        assert said(await admin.ask(create("eve", None))) == (16, "password can not be blank")
        answer = await admin.ask(RequestCode.AUTH_GET_USER, username="bob")
        assert json.loads(answer.body) == {
            "username": "bob",
            "password": "pw",
            "userType": "Normal",
            "userStatus": "enable",
        }
        answer = await admin.ask(RequestCode.AUTH_GET_USER, username="nobody")
        assert (said(answer), answer.body) == ((0, None), b"")
        assert said(await admin.ask(RequestCode.AUTH_GET_USER)) == (29, "The username is blank")
        assert said(await admin.ask(update("bob", password="new", user_status="DISABLE"))) == (
            0,
            None,
        )
        assert said(await admin.ask(update("nobody"))) == (16, "The user is not exist")
        answer = await SignedPeer(peer, "bob", "new").ask(RequestCode.GET_BROKER_CONFIG)
        assert said(answer) == (16, "User:bob is disabled.")
        answer = await admin.ask(RequestCode.AUTH_LIST_USER, filter="o")
        assert [one["username"] for one in json.loads(answer.body)] == ["bob"]
        answer = await admin.ask(RequestCode.AUTH_LIST_USER)
        assert [one["username"] for one in json.loads(answer.body)] == [ADMIN, "bob"]
        assert said(await admin.ask(RequestCode.AUTH_DELETE_USER, username="bob")) == (0, None)
        assert said(await admin.ask(RequestCode.AUTH_DELETE_USER, username="bob")) == (0, None)
        assert list(broker.parts.access.table.users) == [ADMIN]


async def test_only_super_users_make_change_and_see_super_users(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(**ON) as (broker, peer):
        await add_user(broker.parts.access.table, "clerk", ("Cluster:*", "Update,Get", "Allow"))
        clerk = SignedPeer(peer, "clerk")
        assert said(await clerk.ask(create("boss", "pw", "Super"))) == (
            1,
            "The super user can only be create by super user",
        )
        assert said(await clerk.ask(create("bob"))) == (0, None)
        only = "The super user can only be update by super user"
        assert said(await clerk.ask(update("bob", user_type="Super"))) == (1, only)
        assert said(await clerk.ask(update(ADMIN, password="mine"))) == (16, only)
        answer = await clerk.ask(RequestCode.AUTH_DELETE_USER, username=ADMIN)
        assert said(answer) == (16, only)
        answer = await clerk.ask(RequestCode.AUTH_GET_USER, username=ADMIN)
        assert "password" not in json.loads(answer.body)
        answer = await clerk.ask(RequestCode.AUTH_LIST_USER)
        assert SECRET.encode() not in answer.body
        admin = SignedPeer(peer)
        assert said(await admin.ask(create("boss", "pw", "Super"))) == (0, None)


async def test_policies(autojump_clock: MockClock) -> None:
    async with open_broker(**ON) as (_broker, peer):
        admin = SignedPeer(peer)
        await admin.ask(create("bob"))
        allowed = ("Topic:a", "Pub", "Allow")
        assert said(await admin.ask(create_acl("User:bob", allowed))) == (0, None)
        assert said(await admin.ask(create_acl("User:eve", allowed))) == (
            16,
            "The subject of User:eve is not exist.",
        )
        assert said(await admin.ask(create_acl("User:bob"))) == (1, "The body of acl is null")
        assert (await admin.ask(create_acl("bob", allowed))).code == 1
        wrong = ("Topic:a", "Any", "Allow")
        assert said(await admin.ask(create_acl("User:bob", wrong))) == (
            16,
            "The actions can not be Any.",
        )
        answer = await admin.ask(RequestCode.AUTH_GET_ACL, subject="User:bob")
        assert json.loads(answer.body) == {
            "subject": "User:bob",
            "policies": [
                {
                    "policyType": "Custom",
                    "entries": [{"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow"}],
                }
            ],
        }
        answer = await admin.ask(RequestCode.AUTH_GET_ACL, subject="User:eve")
        assert said(answer) == (16, "The subject is not exist.")
        answer = await admin.ask(RequestCode.AUTH_GET_ACL, subject=f"User:{ADMIN}")
        assert (said(answer), answer.body) == ((0, None), b"")
        await admin.ask(create_acl("User:bob", ("Group:g", "Sub", "Allow")))
        answer = await admin.ask(RequestCode.AUTH_LIST_ACL, resourceFilter="Group")
        (info,) = json.loads(answer.body)
        assert [one["resource"] for one in info["policies"][0]["entries"]] == ["Group:g"]
        answer = await admin.ask(RequestCode.AUTH_LIST_ACL, subjectFilter="eve")
        assert (said(answer), answer.body) == ((0, None), b"")


async def test_policies_are_deleted(autojump_clock: MockClock) -> None:
    async with open_broker(**ON) as (broker, peer):
        admin, table = SignedPeer(peer), broker.parts.access.table
        await add_user(table, "bob", ("Topic:a", "Pub", "Allow"), ("Topic:b", "Pub", "Allow"))

        async def delete(**fields: str) -> tuple[int, str | None]:
            return said(await admin.ask(RequestCode.AUTH_DELETE_ACL, **fields))

        assert await delete(subject="User:eve") == (16, "The subject is not exist.")
        assert await delete(subject=f"User:{ADMIN}") == (16, "The acl is not exist.")
        assert await delete() == (16, "The subject is null.")
        code, remark = await delete(subject="User:bob", resource="Topik:a")
        assert (code, remark) == (16, "The resource Topik:a is invalid.")
        assert await delete(subject="User:bob", resource="Topic:a") == (0, None)
        assert [str(one) for one in next(iter(table.acls["User:bob"].policies.values()))] == [
            "Topic:b"
        ]
        assert await delete(subject="User:bob", resource="Topic:b") == (0, None)
        assert table.acls == {}
        await add_user(table, "bob", ("Topic:a", "Pub", "Allow"))
        assert await delete(subject="User:bob") == (0, None)
        await add_user(table, "bob", ("Topic:a", "Pub", "Allow"))
        await admin.ask(RequestCode.AUTH_DELETE_USER, username="bob")
        assert table.acls == {}


async def test_a_change_counts_at_once(autojump_clock: MockClock) -> None:
    """Also on connections that remember what was decided."""
    async with open_broker(**ON) as (broker, peer):
        table = broker.parts.access.table
        await add_user(table, "bob")
        bob = SignedPeer(peer, "bob")
        code = RequestCode.GET_BROKER_CONFIG
        assert (await bob.ask(code)).code == 16
        await add_user(table, "bob", ("Cluster:*", "Get", "Allow"))
        assert (await bob.ask(code)).code == 0
        await add_user(table, "bob", ("Cluster:*", "Get", "Deny"))
        answer = await bob.ask(code)
        remark = "User:bob has no permission to access Cluster:DefaultCluster from 127.0.0.1, "
        assert said(answer) == (16, remark + "the decision is deny.")
        await table.update_user("bob", {"password": "other"})
        assert said(await bob.ask(code)) == (16, "check signature failed.")
        await table.delete_user("bob")
        assert said(await bob.ask(code)) == (16, "User:bob is not found.")


async def test_nothing_is_changed_while_access_control_is_off(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer):
        answer = await peer.ask(create("mallory", "pw", "Super"))
        assert answer.code == 1
        assert "authenticationEnabled=true" in (answer.remark or "")
        answer = await peer.ask(RequestCode.AUTH_LIST_USER)
        assert (answer.code, answer.body) == (1, b"")
        assert broker.parts.access.table.users == {}


async def test_users_and_policies_survive_restarts_in_private_files(tmp_path: Path) -> None:
    async with open_broker(tmp_path, **ON) as (broker, peer):
        admin = SignedPeer(peer)
        await admin.ask(create("bob"))
        await admin.ask(create_acl("User:bob", ("Topic:a", "Pub", "Allow")))
        before = dict(broker.parts.access.table.users), dict(broker.parts.access.table.acls)
    settings = {**ON, "init_authentication_user": '{"username":"admin","password":"other"}'}
    async with open_broker(tmp_path, **settings) as (broker, peer):
        table = broker.parts.access.table
        assert (table.users, table.acls) == before
        assert (await SignedPeer(peer).ask(RequestCode.GET_BROKER_CONFIG)).code == 0
    for name in ("access.json", "access.json.bak"):
        path = tmp_path / "config" / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    settings.pop("init_authentication_user")
    async with open_broker(tmp_path, **settings) as (broker, peer):
        assert (await SignedPeer(peer).ask(RequestCode.GET_BROKER_CONFIG)).code == 0


async def test_a_broken_file_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "access.json").write_text('{"users": {"bob": {"username": "bob"}}}')
    with pytest.raises(StoreCorruptError, match=r"access\.json"):
        async with EmbeddedBroker(tmp_path, **ON):
            pass


async def test_nobody_could_get_in(autojump_clock: MockClock) -> None:
    with pytest.raises(ConfigurationError, match="initAuthenticationUser"):
        async with EmbeddedBroker(authentication_enabled=True):
            pass


async def test_a_change_that_cannot_be_written_is_not_in_force(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_broker(**ON) as (broker, peer):
        table = broker.parts.access.table

        async def full(_value: object) -> None:
            raise StoreError("no space")

        monkeypatch.setattr(type(table._file), "save", lambda _self, value: full(value))
        answer = await SignedPeer(peer).ask(create("bob"))
        assert said(answer) == (1, "no space")
        assert list(table.users) == [ADMIN]
        assert table.generation == 1


async def test_many_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    async with open_broker(tmp_path, **ON) as (broker, peer):
        admin = SignedPeer(peer)

        async def add(name: str) -> None:
            assert (await admin.ask(create(name))).code == 0

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(add, f"user{number}")
        names = set(broker.parts.access.table.users)
    content: dict[str, Any] = json.loads((tmp_path / "config" / "access.json").read_text())
    assert set(content["users"]) == names
    assert len(names) == 21


async def test_an_administrator_asks_over_another_connection(autojump_clock: MockClock) -> None:
    """What is remembered of a connection is no other connection's."""
    async with open_broker(**ON) as (broker, peer), trio.open_nursery() as nursery:
        other = await connect(broker, nursery)
        assert (await SignedPeer(peer).ask(RequestCode.GET_BROKER_CONFIG)).code == 0
        answer = await other.ask(Command(RequestCode.GET_BROKER_CONFIG))
        assert said(answer) == (16, "username cannot be null.")
        nursery.cancel_scope.cancel()


async def test_a_name_without_a_signature_makes_nobody_a_super_user(
    autojump_clock: MockClock,
) -> None:
    """Not even where white lists let the request in."""
    lists = {"authentication_whitelist": "3001,3005", "authorization_whitelist": "3001,3005"}
    async with open_broker(**ON, **lists) as (_broker, peer):
        for fields in ({"AccessKey": ADMIN}, {"AccessKey": ADMIN, "Signature": "guessed"}):
            boss = create("boss", kind="Super")
            boss.ext_fields |= fields
            assert (await peer.ask(boss)).code == 1
            answer = await peer.ask(Command(RequestCode.AUTH_LIST_USER, ext_fields=dict(fields)))
            assert SECRET.encode() not in answer.body
        answer = await SignedPeer(peer).ask(RequestCode.AUTH_LIST_USER)
        assert SECRET.encode() in answer.body
