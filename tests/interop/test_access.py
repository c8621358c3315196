"""Access control beside Apache's: its broker with ACL 2.0 says the same to the same
requests, its mqadmin manages our users, and its Java client signs and speaks TLS.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.access import AclInfo, UserInfo
from rocketmq_sdk.protocol.command import Command
from support import java
from support.access import LOCK_ADMIN, policy, signed
from support.broker import pull_request, send_request
from support.mqadmin import Step
from support.programs import ProgramError

if TYPE_CHECKING:
    from support.processes import BrokerProcess

pytestmark = pytest.mark.xdist_group("locked")
ADMIN = (LOCK_ADMIN.access_key, LOCK_ADMIN.secret_key)


def user(code: RequestCode, name: str | None, **fields: str) -> Command:
    ext = {} if name is None else {"username": name}
    return Command(int(code), ext_fields=ext, body=UserInfo(None, **fields).encode())


def acl(subject: str, *entries: tuple[str, str, str], source: str | None = None) -> Command:
    info = AclInfo(None, (policy(*entries),) if entries else ())
    body = info.encode()
    if source is not None:
        body = body.replace(b'"decision"', b'"sourceIps":["%s"],"decision"' % source.encode())
    return Command(int(RequestCode.AUTH_CREATE_ACL), ext_fields={"subject": subject}, body=body)


def plain(code: RequestCode, **ext: str) -> Command:
    return Command(int(code), ext_fields=ext)


CREATE, UPDATE = RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER
BOB = ("bob", "bobs")
Signer = tuple[str, str] | None
CONVERSATION: list[tuple[str, Signer, Command]] = [
    ("nobody", None, send_request("allowed", b"x")),
    ("a stranger", ("stranger", "pw"), send_request("allowed", b"x")),
    ("a wrong signature", ("admin", "guessed"), send_request("allowed", b"x")),
    ("a new user", ADMIN, user(CREATE, "bob", password="bobs")),
    ("again", ADMIN, user(CREATE, "bob", password="bobs")),
    ("a blank name", ADMIN, user(CREATE, " ", password="pw")),
    ("an empty name", ADMIN, user(CREATE, "", password="pw")),
    ("no password", ADMIN, user(CREATE, "carol")),
    ("a change of nobody", ADMIN, user(UPDATE, "nobody", password="x")),
    ("a user", ADMIN, plain(RequestCode.AUTH_GET_USER, username="bob")),
    ("no user", ADMIN, plain(RequestCode.AUTH_GET_USER, username="nobody")),
    ("users", ADMIN, plain(RequestCode.AUTH_LIST_USER, filter="bo")),
    ("no policies", BOB, send_request("allowed", b"x")),
    ("policies of nobody", ADMIN, acl("User:nobody", ("Topic:a", "Pub", "Allow"))),
    ("policies without any", ADMIN, acl("User:bob")),
    ("a wrong action", ADMIN, acl("User:bob", ("Topic:a", "Any", "Allow"))),
    ("an unknown action", ADMIN, acl("User:bob", ("Topic:a", "Fly", "Allow"))),
    ("a wrong resource", ADMIN, acl("User:bob", ("Thing:a", "Pub", "Allow"))),
    ("a wrong decision", ADMIN, acl("User:bob", ("Topic:a", "Pub", "Maybe"))),
    ("a wrong address", ADMIN, acl("User:bob", ("Topic:a", "Pub", "Allow"), source="10.0.0")),
    (
        "policies",
        ADMIN,
        acl(
            "User:bob",
            ("Topic:allowed", "Pub,Sub", "Allow"),
            ("Topic:pre*", "Pub", "Allow"),
            ("Topic:prefix*", "Pub", "Deny"),
            ("Group:readers", "Sub", "Allow"),
        ),
    ),
    ("the policies", ADMIN, plain(RequestCode.AUTH_GET_ACL, subject="User:bob")),
    ("all policies", ADMIN, plain(RequestCode.AUTH_LIST_ACL, subjectFilter="bob")),
    ("policies of whom", ADMIN, plain(RequestCode.AUTH_GET_ACL, subject="User:nobody")),
    ("an allowed send", BOB, send_request("allowed", b"x")),
    ("a send by prefix", BOB, send_request("pretty", b"x")),
    ("a denied send", BOB, send_request("prefixed", b"x")),
    ("another topic", BOB, send_request("other", b"x")),
    ("a retry topic", BOB, send_request("%RETRY%others", b"x")),
    ("another's pull", BOB, pull_request("allowed", 0, group="others")),
    ("a pull of another topic", BOB, pull_request("other", 0, group="readers")),
    ("creating a topic", BOB, plain(RequestCode.DELETE_TOPIC_IN_BROKER, topic="allowed")),
    ("statistics", BOB, plain(RequestCode.GET_TOPIC_STATS_INFO, topic="allowed")),
    ("users by a user", BOB, plain(RequestCode.AUTH_LIST_USER)),
    ("a super user by a user", BOB, user(CREATE, "boss", password="p", user_type="Super")),
    ("disabled", ADMIN, user(UPDATE, "bob", user_status="disable")),
    ("a disabled user", BOB, send_request("allowed", b"x")),
    ("enabled", ADMIN, user(UPDATE, "bob", user_status="enable")),
    ("no such policy", ADMIN, plain(RequestCode.AUTH_DELETE_ACL, subject="User:admin")),
    ("none of nobody", ADMIN, plain(RequestCode.AUTH_DELETE_ACL, subject="User:nobody")),
    (
        "one policy less",
        ADMIN,
        plain(RequestCode.AUTH_DELETE_ACL, subject="User:bob", resource="Topic:allowed"),
    ),
    ("what is left", ADMIN, plain(RequestCode.AUTH_GET_ACL, subject="User:bob")),
    ("gone", ADMIN, plain(RequestCode.AUTH_DELETE_USER, username="bob")),
    ("gone again", ADMIN, plain(RequestCode.AUTH_DELETE_USER, username="bob")),
    ("a user who is gone", BOB, send_request("allowed", b"x")),
]
SENT = {10, 310}
THROWN = re.compile(r"^org\.apache\.[\w.]+Exception: (.*), org\.apache\.[\w.]+\([\w.:]+\)$")
"""How Apache's broker tells of what a handler threw."""


def told(asker: java.Asker, signer: Signer, request: Command) -> tuple[int, str | None, Any]:
    copy = Command(request.code, ext_fields=dict(request.ext_fields), body=request.body)
    answer = asker.ask(copy if signer is None else signed(copy, *signer))
    stored = request.code in SENT and answer.code == 0
    body = json.loads(answer.body) if answer.body and not stored else None
    # Apache leaves "not set any response code" in answers that are successes.
    remark = THROWN.sub(r"\1", answer.remark or "") if answer.code else None
    return int(answer.code), remark, body


def test_both_brokers_say_the_same(
    locked_apache: java.ApacheCluster, locked_broker: BrokerProcess
) -> None:
    """Codes, remarks and bodies, request by request; a replay with another body too."""
    different = {}
    with java.Asker(locked_apache.broker) as theirs, java.Asker(locked_broker.address) as own:
        for name, signer, request in CONVERSATION:
            apache, mine = (told(asker, signer, request) for asker in (theirs, own))
            if apache != mine:
                different[name] = (apache, mine)
        for asker in (theirs, own):
            replayed = signed(send_request("allowed", b"x"), *ADMIN)
            assert asker.ask(replayed).code == 0
            replayed.body = b"y"
            answer = asker.ask(replayed)
            assert (answer.code, answer.remark) == (16, "check signature failed.")
    assert different == {}, json.dumps(different, indent=1)


MQADMIN = [
    Step("createUser -b {broker} -u shop -p pw1"),
    Step("createUser -b {broker} -u shop -p pw1"),
    Step("updateUser -b {broker} -u shop -p pw2"),
    Step("getUser -b {broker} -u shop"),
    Step("listUser -b {broker} -f sho"),
    Step("createAcl -b {broker} -s User:shop -r Topic:orders,Group:g* -a Pub,Sub -d Allow"),
    Step("updateAcl -b {broker} -s User:shop -r Topic:orders -a Pub -i 10.0.0.0/8 -d Deny"),
    Step("getAcl -b {broker} -s User:shop"),
    Step("listAcl -b {broker} -s shop"),
    Step("copyUser -f {broker} -t {broker} -u shop"),
    Step("copyAcl -f {broker} -t {broker} -s User:shop"),
    Step("deleteAcl -b {broker} -s User:shop -r Topic:orders"),
    Step("getAcl -b {broker} -s User:shop"),
    Step("deleteUser -b {broker} -u shop"),
    Step("getUser -b {broker} -u shop"),
    Step("getAcl -b {broker} -s User:shop"),
]


async def test_mqadmin_prints_the_same(
    locked_apache: java.ApacheCluster, locked_broker: BrokerProcess
) -> None:
    mqadmin = java.Driver(program="MqAdmin")
    try:

        async def run(step: Step, broker: str, namesrv: str) -> str:
            command = {
                "args": [*step.arguments({"broker": broker}), "-n", namesrv],
                "user": ADMIN[0],
                "password": ADMIN[1],
            }
            try:
                return str(await trio.to_thread.run_sync(mqadmin.perform, command))
            except ProgramError as error:
                return f"ERROR {error}"

        problems = {}
        for step in MQADMIN:
            theirs = await run(step, locked_apache.broker, locked_apache.namesrv)
            own = await run(step, locked_broker.address, locked_broker.namesrv)
            if found := step.differences(theirs, own):
                problems[step.line] = found[:12]
        assert not problems, json.dumps(problems, indent=1)
        named = await run(Step("clusterList"), locked_broker.address, locked_broker.namesrv)
        assert "DefaultCluster" in named, "the name server believes its signature"
    finally:
        mqadmin.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_the_java_client_signs(
    locked_broker: BrokerProcess, json_driver: java.Driver, tls: bool
) -> None:
    """A writer and a reader with no more permissions than they need, in plain text and
    over TLS at the same port.
    """
    topic, group = f"java{tls}", f"readers{tls}"
    with java.Asker(locked_broker.address) as asker:
        for name, entries in (
            (f"writer{tls}", [(f"Topic:{topic}", "Pub", "Allow")]),
            (
                f"reader{tls}",
                [(f"Topic:{topic}", "Sub", "Allow"), (f"Group:{group}", "Sub", "Allow")],
            ),
        ):
            assert told(asker, ADMIN, user(CREATE, name, password="pw"))[0] == 0
            assert told(asker, ADMIN, acl(f"User:{name}", *entries))[0] == 0
    common = {"namesrv": locked_broker.namesrv, "password": "pw", "tls": tls}
    await json_driver.do("producer", id=f"p{tls}", group="PG", user=f"writer{tls}", **common)
    for number in range(5):
        sent = await json_driver.do("send", id=f"p{tls}", topic=topic, body=f"{number}")
        assert sent["status"] == "SEND_OK"
    with pytest.raises(ProgramError, match="still failed"):
        await json_driver.do("send", id=f"p{tls}", topic="forbidden", body="x")
    await json_driver.do(
        "consumer", id=f"c{tls}", group=group, topic=topic, user=f"reader{tls}", **common
    )
    got: list[Any] = []

    async def received() -> bool:
        got[:] = await json_driver.do("received", id=f"c{tls}")
        return len(got) >= 5

    with trio.fail_after(60):
        while not await received():
            await trio.sleep(0.2)
    for name in (f"p{tls}", f"c{tls}"):
        await json_driver.do("stop", id=name)


async def test_the_java_client_without_keys_gets_nothing(
    locked_broker: BrokerProcess, json_driver: java.Driver
) -> None:
    await json_driver.do("producer", id="pn", group="PG", namesrv=locked_broker.namesrv)
    with pytest.raises(ProgramError):
        await json_driver.do("send", id="pn", topic="allowed", body="x")
    await json_driver.do("stop", id="pn")
