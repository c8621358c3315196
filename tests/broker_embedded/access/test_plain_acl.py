"""ACL 1.0: accounts of `plain_acl.yml` as Apache RocketMQ 4.9 to 5.3 read them, every
request code with them, files that change, and the way to ACL 2.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Credentials, EmbeddedBroker, Message, Producer
from rocketmq_sdk.broker_embedded.access.addresses import matcher
from rocketmq_sdk.broker_embedded.access.plain_acl import read_plain_acl
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError
from rocketmq_sdk.protocol.command import Command
from support.access import GROUP, TOPIC, SignedPeer, sample, signed
from support.broker import connect, open_broker, send_request
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from support.broker import Peer

pytest.importorskip("yaml")
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
FILE = f"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
  - accessKey: everything
    secretKey: everything
    topicPerms: ["{TOPIC}=PUB|SUB", "OtherTopic=SUB"]
    groupPerms: ["{GROUP}=SUB", "OtherGroup=SUB"]
"""
USER = ("RocketMQ", "12345678")
ADMIN = ("rocketmq2", "12345678")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "conf" / "plain_acl.yml"
    write(file, FILE)
    return file


def settings(path: Path) -> dict[str, Any]:
    return {"acl_enable": True, "plain_acl_file": str(path)}


def said(answer: Command) -> tuple[int, str | None]:
    return int(answer.code), answer.remark


@pytest.mark.parametrize(
    ("request_of", "problem"),
    [
        (lambda: send_request("topicB", b"x"), None),
        (lambda: send_request("topicA", b"x"), "No permission for topic:topicA"),
        (lambda: send_request("topicC", b"x"), "No permission for topic:topicC"),
        (lambda: send_request("topicD", b"x"), "No default permission for topic:topicD"),
        (lambda: send_request("RMQ_SYS_TRACE_TOPIC", b"x"), None),
        (lambda: send_request("%RETRY%groupX", b"x"), None),
        (lambda: send_request("%RETRY%groupA", b"x"), "No permission for group:groupA"),
        (
            lambda: Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"a=b"),
            "Need admin permission for request code=25, but accessKey=RocketMQ is not",
        ),
        (
            lambda: Command(RequestCode.PUT_KV_CONFIG),
            "",
        ),
        (lambda: Command(RequestCode.GET_BROKER_CONFIG), None),
        (
            lambda: Command(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": "topicA"}),
            "No permission for topic:topicA",
        ),
        (lambda: Command(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": "topicC"}), None),
    ],
)
async def test_what_an_account_may_do(path: Path, request_of: Any, problem: str | None) -> None:
    async with open_broker(**settings(path)) as (_broker, peer):
        answer = await SignedPeer(peer, *USER).ask(request_of())
        if problem:
            assert said(answer) == (1, EXCEPTION + problem)
        else:
            assert EXCEPTION not in (answer.remark or "")
        answer = await SignedPeer(peer, *ADMIN).ask(request_of())
        assert EXCEPTION not in (answer.remark or "")


async def test_who_is_not_let_in_whatever_is_asked(path: Path) -> None:
    async with open_broker(**settings(path)) as (broker, peer):
        rows = {row.code: row for row in broker.requests}
        for code in RequestCode:
            await check_refusals(peer, code, rows)


async def check_refusals(peer: Peer, code: RequestCode, rows: Any) -> None:
    def request() -> Command:
        return sample(rows[code]) if code in rows else Command(int(code))

    assert said(await peer.ask(request())) == (1, EXCEPTION + "No accessKey is configured")
    answer = await peer.ask(signed(request(), "stranger", "12345678"))
    assert said(answer) == (1, EXCEPTION + "No acl config for stranger")
    wrong = (1, EXCEPTION + "Check signature failed for accessKey=RocketMQ")
    assert said(await peer.ask(signed(request(), "RocketMQ", "87654321"))) == wrong
    replayed = signed(request(), *USER)
    replayed.body += b" "
    assert said(await peer.ask(replayed)) == wrong, code.name


async def test_every_request_needs_something(path: Path) -> None:
    """An account without permissions may ask for what tells of the cluster; one with
    PUB and SUB for all names of the samples may do what changes nothing else.
    """
    async with open_broker(**settings(path)) as (broker, peer):
        cluster = {row.code for row in broker.requests if row.needs.text.startswith("Cluster")}
        for row in broker.requests:
            code = f"request code={int(row.code)}"
            answer = await SignedPeer(peer, *USER).ask(sample(row))
            refused = EXCEPTION in (answer.remark or "")
            if row.code in cluster:
                assert refused is ("Update" in row.needs.text), row.code.name
            elif row.code in (35, 38, 203, 307, 343, 352):
                assert not refused, row.code.name  # Group GroupOfTheSample: SUB by default.
            else:
                assert refused, row.code.name
            answer = await SignedPeer(peer, "everything", "everything").ask(sample(row))
            if EXCEPTION in (answer.remark or ""):
                assert answer.remark == (
                    f"{EXCEPTION}Need admin permission for {code}, but accessKey=everything is not"
                )
                assert not {"Pub", "Sub", "Get"} & set(row.needs.text.replace(":", "").split())
            answer = await SignedPeer(peer, *ADMIN).ask(sample(row))
            assert EXCEPTION not in (answer.remark or ""), row.code.name


async def test_addresses_that_need_nothing(path: Path) -> None:
    write(path, FILE.replace("10.10.103.*", "127.0.0.{1,2}"))
    async with open_broker(**settings(path)) as (_broker, peer):
        assert (await peer.ask(Command(RequestCode.GET_BROKER_CONFIG))).code == 0
    write(path, FILE.replace("192.168.1.*", "127.0.0.1"))
    async with open_broker(**settings(path)) as (_broker, peer):
        request = Command(RequestCode.GET_BROKER_CONFIG, ext_fields={"AccessKey": "rocketmq2"})
        assert (await peer.ask(request)).code == 0
        assert (await peer.ask(Command(RequestCode.GET_BROKER_CONFIG))).code == 1


@pytest.mark.real_time
async def test_files_that_change_are_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_sdk.broker_embedded.access.plain_accounts.WATCH_INTERVAL", 0.02)
    async with open_broker(**settings(path)) as (broker, peer):
        user = SignedPeer(peer, *USER)
        assert (await user.ask(send_request("topicD", b"x"))).code == 1
        accounts: Any = broker.parts.access._plain
        write(path, FILE.replace("topicA=DENY", "topicD=PUB"))
        await until(lambda: accounts.generation == 2)
        assert (await user.ask(send_request("topicD", b"x"))).code == 0
        write(path, FILE.replace("secretKey: 12345678", "secretKey: 1"))
        await until(lambda: accounts.problem is not None)
        assert "longer than 6" in str(broker.health())
        assert (await user.ask(send_request("topicD", b"x"))).code == 0
        more = path.parent / "acl" / "more.yml"
        write(path, FILE)
        write(more, "accounts:\n  - {accessKey: another, secretKey: another1, admin: true}\n")
        await until(lambda: accounts.generation == 3)
        assert accounts.problem is None
        another = SignedPeer(peer, "another", "another1")
        assert (await another.ask(Command(RequestCode.GET_BROKER_CONFIG))).code == 0


async def test_the_name_server_and_a_client(path: Path) -> None:
    async with EmbeddedBroker(**settings(path)) as broker:
        keys = Credentials(*USER)
        async with Producer("PG", namesrv=broker, credentials=keys) as producer:
            await producer.send(Message("topicB", b"x"))
            with pytest.raises(BrokerError, match="No permission for topic:topicA"):
                await producer.send(Message("topicA", b"x"))
        async with Producer("PG", namesrv=broker) as producer:
            with pytest.raises(BrokerError, match="No accessKey"):
                await producer.send(Message("topicB", b"x"))


async def test_accounts_become_users(path: Path, tmp_path: Path) -> None:
    new: dict[str, Any] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "migrate_auth_from_v1_enabled": True,
        "plain_acl_file": str(path),
    }
    async with open_broker(tmp_path / "store", **new) as (broker, peer):
        user, admin = SignedPeer(peer, *USER), SignedPeer(peer, *ADMIN)
        assert (await admin.ask(Command(RequestCode.GET_BROKER_CONFIG))).code == 0
        assert (await user.ask(Command(RequestCode.GET_BROKER_CONFIG))).code == 16
        assert (await user.ask(send_request("topicB", b"x"))).code == 0
        for name, decision in (("topicA", "the decision is deny."), ("topicC", "no matched")):
            answer = await user.ask(send_request(name, b"x"))
            assert answer.code == 16
            assert decision in (answer.remark or "") or "the decision is deny" in (
                answer.remark or ""
            )
        answer = await user.ask(send_request("%RETRY%groupZ", b"x"))
        assert answer.code != 16
        answer = await user.ask(send_request("%RETRY%groupA", b"x"))
        assert answer.code == 16
        await broker.parts.access.table.update_user("RocketMQ", {"password": "changed"})
    async with open_broker(tmp_path / "store", **new) as (broker, peer):
        assert broker.parts.access.table.users["RocketMQ"].password == "changed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: 7", "accounts is no list"),
        ("accounts: [7]", "no table"),
        ("- a", "no accounts"),
        ("accounts: [", "no YAML"),
        ("accounts: [{accessKey: short, secretKey: 12345678}]", "longer than 6"),
        ("accounts: [{accessKey: longenough, secretKey: 1}]", "longer than 6"),
        (
            "accounts: [{accessKey: longenough, secretKey: hush-hush, topicPerms: [a]}]",
            "name=PUB|SUB",
        ),
        (
            "accounts: [{accessKey: longenough, secretKey: hush-hush, topicPerms: [a=ANY]}]",
            "'ANY' is none of",
        ),
        ("accounts: [{accessKey: longenough, secretKey: hush-hush, admin: 'no way'}]", "admin"),
        ("globalWhiteRemoteAddresses: [a.b]", "list of addresses"),
    ],
)
def test_what_is_no_file_of_accounts(path: Path, text: str, words: str) -> None:
    write(path, text)
    with pytest.raises(ConfigurationError) as error:
        read_plain_acl(path)
    assert words in str(error.value)
    assert "hush-hush" not in str(error.value)


async def test_a_start_without_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    for given in ({"plain_acl_file": str(tmp_path / "nowhere.yml")}, {}):
        monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
        with pytest.raises(ConfigurationError, match=r"nowhere|ROCKETMQ_HOME"):
            async with EmbeddedBroker(acl_enable=True, **given):
                pass
    with pytest.raises(ConfigurationError, match="two ways"):
        EmbeddedBroker(acl_enable=True, authentication_enabled=True)
    monkeypatch.setenv("ROCKETMQ_HOME", str(path.parent.parent))
    async with open_broker(acl_enable=True) as (_broker, peer):
        assert (
            await SignedPeer(peer, *ADMIN).ask(Command(RequestCode.GET_BROKER_CONFIG))
        ).code == 0


async def test_secrets_of_accounts_are_not_shown(path: Path) -> None:
    acl = read_plain_acl(path)
    assert "12345678" not in repr(acl)
    async with open_broker(**settings(path)) as (_broker, peer):
        answer = await SignedPeer(peer, *ADMIN).ask(Command(RequestCode.GET_BROKER_CONFIG))
        assert b"12345678" not in answer.body


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("", [], ["10.0.0.1", "::1"]),
        ("*", ["10.0.0.1", "::1"], []),
        ("*.*.*.*", ["10.0.0.1"], []),
        ("10.0.0.1", ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.2", "unknown"]),
        ("10.0.0.{1,3}", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.1,10.0.1.1", ["10.0.0.1", "10.0.1.1"], ["10.0.0.2"]),
        ("10.0.0.1-9", ["10.0.0.1", "10.0.0.9"], ["10.0.0.10", "10.0.1.5", "::1"]),
        ("10.0.*.*", ["10.0.7.9"], ["10.1.7.9"]),
        ("10.*", ["10.9.7.9"], ["11.1.7.9"]),
        ("fe80:*", ["fe80::1"], ["fe81::1", "10.0.0.1"]),
        ("1:2:3:4:5:6:7:{a,b}", ["1:2:3:4:5:6:7:a"], ["1:2:3:4:5:6:7:c"]),
        ("1:2:3:4:5:6:7:a-f", ["1:2:3:4:5:6:7:b"], ["1:2:3:4:5:6:7:9"]),
    ],
)
def test_white_lists(text: str, inside: list[str], outside: list[str]) -> None:
    on_list = matcher(text)
    assert [address for address in inside if not on_list(address)] == []
    assert [address for address in outside if on_list(address)] == []


@pytest.mark.parametrize(
    "text",
    ["10.0.0", "10.0.0.256", "a", "10.0.0.{1,b}", "10.0.0.9-1", "10.0.-1.*", "10.0-1", "1,,"],
)
def test_what_is_no_white_list(text: str) -> None:
    with pytest.raises(ConfigurationError, match="list of addresses"):
        matcher(text)


async def test_the_name_server_is_guarded(path: Path) -> None:
    async with EmbeddedBroker(**settings(path)) as broker, trio.open_nursery() as nursery:
        peer = await connect(broker, nursery, namesrv=True)
        answer = await peer.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert said(answer) == (1, EXCEPTION + "No accessKey is configured")
        nursery.cancel_scope.cancel()
