"""Every command of `rocketmq` against our broker and against Apache's, with access
control and without it; and what mqadmin says to the same question, field by field.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from rocketmq_sdk import ConsumeLater, Credentials, Message, sync
from rocketmq_sdk.cli.operate import COMMANDS
from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.releases import version_text
from support import java
from support.access import LOCK_ADMIN
from support.in_process import rocketmq_here
from support.mqadmin import pairs, table
from support.processes import broker_process
from support.waiting import plain_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk import ReceivedMessage
    from support.processes import BrokerProcess

LOCKED_ONES: Final = pytest.mark.xdist_group("locked")
TOPIC: Final = "orders"
READERS: Final = "readers"
BROKEN: Final = "broken"
"""A group that fails with everything, and gives up at once."""
SECONDS: Final = 30
Rows = list[dict[str, Any]]


class Side:
    """One cluster: our commands for it, mqadmin, and what was sent before."""

    def __init__(
        self,
        namesrv: str,
        broker: str,
        mqadmin: java.Driver,
        directory: Path,
        admin: Credentials | None,
    ) -> None:
        """`admin` is None where nobody checks users."""
        self.namesrv = namesrv
        self.broker = broker
        self.directory = directory
        self.used: set[str] = set()
        self.sent: list[sync.SendResult] = []
        self._mqadmin = mqadmin
        self._admin = admin
        self.signed: tuple[str, ...] = ()
        if admin is not None:
            file = directory / "credentials"
            file.write_text(
                f"accessKey={admin.access_key}\nsecretKey={admin.secret_key}\n", "utf-8"
            )
            self.signed = ("--credentials", str(file))

    def run(self, *arguments: str, code: int = 0) -> str:
        """What one of our commands prints; it must end with the code."""
        self.used.add(arguments[0])
        done = rocketmq_here(*arguments, "--json", "-n", self.namesrv, *self.signed)
        assert done.returncode == code, (arguments, done)
        return done.stdout

    def rows(self, *arguments: str) -> Rows:
        """The rows that a command prints."""
        return [json.loads(line) for line in self.run(*arguments).splitlines()]

    def theirs(self, line: str) -> str:
        """What mqadmin prints."""
        assert self._admin is not None
        words = line.format(broker=self.broker, **self.places()).split()
        command = {
            "args": [*words, "-n", self.namesrv],
            "user": self._admin.access_key,
            "password": self._admin.secret_key,
        }
        return str(self._mqadmin.perform(command))

    def places(self) -> dict[str, str]:
        first = self.sent[0]
        return {"unique": first.message_id, "offset_id": first.offset_message_id}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Look again and again: brokers do some things by and by."""
        plain_until(holds, what, SECONDS, step=0.1)

    @contextmanager
    def clients(self) -> Iterator[None]:
        """A producer and two consumers that stay for the length of the block."""
        here: dict[str, Any] = {
            "namesrv": self.namesrv,
            "enable_trace": True,
            **({} if self._admin is None else {"credentials": self._admin}),
        }
        got: list[str] = []
        failed: list[str] = []

        def fail(message: ReceivedMessage) -> None:
            failed.append(message.message_id)
            raise ConsumeLater("never")

        def read(message: ReceivedMessage) -> None:
            got.append(message.message_id)

        with ExitStack() as stack:
            producer = stack.enter_context(sync.Producer("shop", **here))
            for group, listener in ((READERS, read), (BROKEN, fail)):
                stack.enter_context(
                    sync.PushConsumer(
                        group,
                        subscriptions={TOPIC: "*"},
                        listener=listener,
                        persist_consumer_offset_interval=0.2,
                        **here,
                    )
                )
            for number in range(3):
                message = Message(
                    TOPIC,
                    b"body %d" % number,
                    tags="ab"[number % 2],
                    keys=[f"k{number}", "all"],
                    properties={"colour": "red"},
                )
                self.sent.append(producer.send(message))
            self.until(lambda: len(got) >= 3 and len(failed) >= 3, "messages are consumed")
            yield


def local(text: str | None) -> str:
    """A time of ours as mqadmin writes it."""
    if text is None:
        return "N/A"
    moment = datetime.fromisoformat(text).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}"


# What both say to the same question, as rows of texts that are to be equal.


def topics(side: Side) -> tuple[Any, Any]:
    ours = {row["topic"] for row in side.rows("topicList", "--system")}
    return ours, set(side.theirs("topicList").split())


def topics_of_clusters(side: Side) -> tuple[Any, Any]:
    """But for topics of groups, which mqadmin leaves out here."""
    rows = side.rows("topicList", "-c", "--system")
    ours = {(row["cluster"], row["topic"]) for row in rows if not row["topic"].startswith("%")}
    found = table(side.theirs("topicList -c"))
    return ours, {(row["Cluster Name"], row["Topic"]) for row in found}


def route(side: Side) -> tuple[Any, Any]:
    told = json.loads(re.sub(r"(\d+):\"", r'"\1":"', side.theirs(f"topicRoute -t {TOPIC}")))
    addresses = {each["brokerName"]: each["brokerAddrs"] for each in told["brokerDatas"]}
    return side.rows("topicRoute", "-t", TOPIC), [
        {
            "broker": each["brokerName"],
            "readQueues": each["readQueueNums"],
            "writeQueues": each["writeQueueNums"],
            "perm": each["perm"],
            "addresses": addresses[each["brokerName"]],
        }
        for each in told["queueDatas"]
    ]


def ends(side: Side) -> tuple[Any, Any]:
    ours = {
        (
            row["broker"],
            *(str(row[name]) for name in ("queue", "minOffset", "maxOffset")),
            local(row["lastUpdated"]) if row["lastUpdated"] else "",
        )
        for row in side.rows("topicStatus", "-t", TOPIC)
    }
    names = ("Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated")
    found = table(side.theirs(f"topicStatus -t {TOPIC}"))
    return ours, {tuple(row.get(name, "") for name in names) for row in found}


def progress(side: Side) -> tuple[Any, Any]:
    ours = {
        (
            row["topic"],
            row["broker"],
            *(str(row[name]) for name in ("queue", "brokerOffset", "consumerOffset", "lag")),
            local(row["lastConsumed"]),
        )
        for row in side.rows("consumerProgress", "-g", READERS)
    }
    names = ("Topic", "Broker Name", "QID", "Broker Offset", "Consumer Offset", "Diff", "LastTime")
    found = table(side.theirs(f"consumerProgress -g {READERS}"))
    # mqadmin's times have no milliseconds here.
    return {(*row[:-1], row[-1].split(",")[0]) for row in ours}, {
        tuple(row[name].split(",")[0] for name in names) for row in found
    }


def groups(side: Side) -> tuple[Any, Any]:
    ours = {
        (row["group"], str(row["members"]), str(row["lag"]))
        for row in side.rows("consumerProgress")
        if row["members"]
    }
    found = table(side.theirs("consumerProgress"))
    return ours, {
        (row["Group"], row["Count"], row["Diff Total"]) for row in found if row["Count"] != "0"
    }


def _member(row: dict[str, Any]) -> tuple[str, ...]:
    assert LanguageCode[row["language"]] is LanguageCode.PYTHON
    return (
        row["client"],
        row["address"],
        row["language"],
        version_text(row["version"]).upper(),
    )


def _members(text: str) -> set[tuple[str, ...]]:
    found = re.findall(r"(\S+@\S+)\s+(\S+:\d+)\s+(\w+)\s+(V\w+)", text)
    return set(found)


def members(side: Side) -> tuple[Any, Any]:
    ours = {_member(row) for row in side.rows("consumerConnection", "-g", READERS)}
    return ours, _members(side.theirs(f"consumerConnection -g {READERS}"))


def producers(side: Side) -> tuple[Any, Any]:
    ours = {_member(row) for row in side.rows("producerConnection", "-g", "shop", "-t", TOPIC)}
    return ours, _members(side.theirs(f"producerConnection -g shop -t {TOPIC}"))


def _message(row: dict[str, Any]) -> dict[str, str]:
    """A message of ours with mqadmin's names."""
    return {
        "OffsetID": row["offsetId"],
        "Topic": row["topic"],
        "Tags": f"[{row['tags']}]",
        "Keys": f"[{' '.join(row['keys'])}]",
        "Queue ID": str(row["queue"]),
        "Queue Offset": str(row["offset"]),
        "Reconsume Times": str(row["reconsumeTimes"]),
        "Born Timestamp": local(row["born"]),
        "Store Timestamp": local(row["stored"]),
        "Properties": _properties(", ".join(f"{k}={v}" for k, v in row["properties"].items())),
    }


def _properties(text: str) -> str:
    return " ".join(sorted(text.strip("{}").split(", ")))


def _their_message(text: str) -> dict[str, str]:
    found = pairs(text, ":")
    return {name: found.get(name, "") for name in _NAMES} | {
        "Properties": _properties(found.get("Properties", ""))
    }


_NAMES: Final = (
    *("OffsetID", "Topic", "Tags", "Keys", "Queue ID", "Queue Offset", "Reconsume Times"),
    *("Born Timestamp", "Store Timestamp"),
)


def by_id(side: Side) -> tuple[Any, Any]:
    [row] = side.rows("queryMsgById", "-i", side.places()["offset_id"], "-t", TOPIC)
    return _message(row), _their_message(side.theirs(f"queryMsgById -i {{offset_id}} -t {TOPIC}"))


def by_unique_key(side: Side) -> tuple[Any, Any]:
    [row] = side.rows("queryMsgByUniqueKey", "-i", side.places()["unique"], "-t", TOPIC)
    told = side.theirs(f"queryMsgByUniqueKey -i {{unique}} -t {TOPIC}")
    return _message(row) | {"OffsetID": ""}, _their_message(told)  # mqadmin leaves it out


def by_offset(side: Side) -> tuple[Any, Any]:
    queue = side.sent[0].queue
    where = ("-b", queue.broker_name, "-i", str(queue.queue_id), "-o", "0")
    [row] = side.rows("queryMsgByOffset", "-t", TOPIC, *where)
    return _message(row), _their_message(
        side.theirs(f"queryMsgByOffset -t {TOPIC} {' '.join(where)}")
    )


def by_key(side: Side) -> tuple[Any, Any]:
    ours = {
        (row["id"], str(row["queue"]), str(row["offset"]))
        for row in side.rows("queryMsgByKey", "-t", TOPIC, "-k", "all")
    }
    found = table(side.theirs(f"queryMsgByKey -t {TOPIC} -k all"))
    return ours, {(row["Message ID"], row["QID"], row["Offset"].split()[0]) for row in found}


_PRINTED: Final = re.compile(
    r"MSGID: (\S+) .*? queueId=(\d+), .*?queueOffset=(\d+), .*? msgId=(\S+), .*? BODY: (.*)"
)


def printed(side: Side) -> tuple[Any, Any]:
    ours = {
        (row["id"], str(row["queue"]), str(row["offset"]), row["offsetId"], row["body"])
        for row in side.rows("printMsg", "-t", TOPIC)
    }
    return ours, set(_PRINTED.findall(side.theirs(f"printMsg -t {TOPIC} -d true")))


def traced(side: Side) -> tuple[Any, Any]:
    rows = side.rows("trace", side.places()["unique"], "-t", TOPIC)
    ours = {
        (row["group"], row["what"], local(row["time"])[:-4], row["details"].split()[-2])
        for row in rows
        if row["what"] in TRACED.values()
    }
    told = side.theirs("queryMsgTraceById -i {unique}")
    found = re.findall(r"^(Pub|Sub) +(\S+) +\S+ +(\S+ \S+) +(\d+)ms +(\w+)", told, re.MULTILINE)
    return ours, {
        (group, TRACED[kind, result], time, cost) for kind, group, time, cost, result in found
    }


TRACED: Final = {
    ("Pub", "success"): "sent",
    ("Sub", "success"): "consumed",
    ("Sub", "failed"): "not consumed",
}


def cluster(side: Side) -> tuple[Any, Any]:
    ours = {
        (row["cluster"], row["broker"], str(row["id"]), row["address"], row["version"])
        for row in side.rows("clusterList")
    }
    names = ("Cluster Name", "Broker Name", "BID", "Addr", "Version")
    return ours, {tuple(row[name] for name in names) for row in table(side.theirs("clusterList"))}


MOVES: Final = re.compile(r"(?i)tps|time|latency|ratio|runtime|capacity|total|offset|size|remain")


def status(side: Side) -> tuple[Any, Any]:
    """Names, and those values that do not move."""
    [ours] = side.rows("brokerStatus", "-b", side.broker)
    theirs = pairs(side.theirs("brokerStatus -b {broker}"), ":")
    kept = {name: value for name, value in ours.items() if not MOVES.search(name)}
    return (set(ours), kept), (
        set(theirs),
        {name: value for name, value in theirs.items() if name in kept},
    )


def settings(side: Side) -> tuple[Any, Any]:
    [ours] = side.rows("getBrokerConfig", "-b", side.broker)
    told = side.theirs("getBrokerConfig -b {broker}")
    theirs = pairs(told.replace(f"{side.broker}=", ""), "=")
    theirs.pop("", None)  # a line above them
    return {name: value.strip() for name, value in ours.items()}, theirs


def rates(side: Side) -> tuple[Any, Any]:
    ours = {
        (row["topic"], row["group"], str(row["inDay"]), str(row["outDay"]))
        for row in side.rows("statsAll", "-t", TOPIC)
    }
    names = ("Topic", "Consumer Group", "InMsg24Hour", "OutMsg24Hour")
    return ours, {
        tuple(row[name] for name in names) for row in table(side.theirs(f"statsAll -t {TOPIC}"))
    }


def _users(side: Side, *ours: str, theirs: str) -> tuple[Any, Any]:
    return {(row["user"], row["type"], row["status"]) for row in side.rows(*ours)}, {
        (row["UserName"], row["UserType"], row["UserStatus"]) for row in table(side.theirs(theirs))
    }


def _policies(side: Side, *ours: str, theirs: str) -> tuple[Any, Any]:
    names = ("Subject", "PolicyType", "Resource", "Actions", "SourceIp", "Decision")
    return {
        (
            *(row["subject"], row["policy"], row["resource"]),
            f"[{', '.join(row['actions'])}]",
            f"[{', '.join(row['sourceIps'])}]" if row["sourceIps"] else "null",
            row["decision"],
        )
        for row in side.rows(*ours)
    }, {tuple(row[name] for name in names) for row in table(side.theirs(theirs))}


def user(side: Side) -> tuple[Any, Any]:
    return _users(side, "getUser", "-u", "clerk", theirs="getUser -b {broker} -u clerk")


def users(side: Side) -> tuple[Any, Any]:
    return _users(side, "listUser", theirs="listUser -c DefaultCluster")


def policy(side: Side) -> tuple[Any, Any]:
    return _policies(side, "getAcl", "-s", "clerk", theirs="getAcl -b {broker} -s User:clerk")


def policies(side: Side) -> tuple[Any, Any]:
    return _policies(side, "listAcl", theirs="listAcl -c DefaultCluster")


QUESTIONS: Final = (
    *(topics, topics_of_clusters, route, ends, progress, groups, members, producers),
    *(by_id, by_unique_key, by_offset, by_key, printed, traced, cluster, status, settings),
    *(rates, user, users, policy, policies),
)


# Commands that change something, or that mqadmin does not have.


def make(side: Side) -> None:
    """Topics, groups and users, by our commands without saying where."""
    side.run("updateTopic", "-t", TOPIC, "-r", "2", "-w", "2")
    side.run("updateTopic", "-t", "copies", "-c", "DefaultCluster", "-r", "2", "-w", "2")
    side.run("updateTopic", "-t", "measured", "-b", side.broker, "-r", "2", "-w", "2")
    side.run("updateSubGroup", "-g", READERS)
    side.run("updateSubGroup", "-g", BROKEN, "-r", "0")
    side.run("createUser", "-u", "clerk", "-p", "of the shop")
    side.run("createUser", "-u", "clerk", "-p", "again", code=1)
    side.run("updateUser", "-u", "clerk", "-p", "of the market")
    side.run(
        *("createAcl", "-s", "clerk", "-r", f"Topic:{TOPIC},Group:g*", "-a", "Pub,Sub"),
        *("-i", "10.0.0.0/8"),
    )
    side.run("updateAcl", "-s", "clerk", "-r", f"Topic:{TOPIC}", "-a", "Pub", "-d", "Deny")


def change_topics(side: Side) -> None:
    side.run("updateTopicPerm", "-t", "copies", "-p", "4")
    assert [row["perm"] for row in side.rows("topicRoute", "-t", "copies")] == [4]
    side.run("updateTopicPerm", "-t", "copies", "-p", "6")
    sent = side.rows("sendMessage", "-t", "copies", "-p", "{}", "-b", "broker-a", "-i", "1")
    assert [(row["status"], row["queue"]) for row in sent] == [("SEND_OK", 1)]
    tail = side.rows("tail", "copies", "-b", "1h", "--limit", "1", "--body", "json")
    assert [(row["id"], row["body"]) for row in tail] == [(sent[0]["id"], "{}")]
    file = str(side.directory / "orders.jsonl.zst")
    assert side.rows("export", "-t", TOPIC, file)[-1]["count"] == 3
    assert side.rows("import", "-t", "copies", file)[-1]["count"] == 3
    bodies = sorted(row["body"] for row in side.rows("printMsg", "-t", "copies"))
    assert bodies == ["body 0", "body 1", "body 2", "{}"]


def change_offsets(side: Side) -> None:
    side.until(lambda: not _lag(side, READERS), "offsets are committed")
    side.run("updateSubGroup", "-g", "idle")
    assert {"idle", READERS, BROKEN} <= {row["group"] for row in side.rows("groupList")}
    side.run("cloneGroupOffset", "-s", READERS, "-d", "idle", "-t", TOPIC, "-o", "true")
    assert _lag(side) == 0
    side.run("resetOffsetByTime", "-g", "idle", "-t", TOPIC, "-s", "0")
    assert _lag(side) == 3
    side.run("lag", "idle", "--fail-above", "2", code=1)
    queue = side.sent[0].queue
    where = ("-b", queue.broker_name, "-q", str(queue.queue_id))
    side.run("resetOffsetByTime", "-g", "idle", "-t", TOPIC, "-o", "1", *where)
    assert _lag(side) == 2
    side.run("skipAccumulatedMessage", "-g", "idle", "-t", TOPIC)
    assert _lag(side) == 0
    side.run("deleteSubGroup", "-g", "idle")
    assert "idle" not in {row["group"] for row in side.rows("groupList")}


def _lag(side: Side, group: str = "idle") -> int:
    [row] = side.rows("lag", group, "-t", TOPIC)
    return int(row["lag"])


def dead_letters(side: Side) -> None:
    def listed() -> dict[str, int]:
        return {row["group"]: row["messages"] for row in side.rows("dlq", "list")}

    side.until(lambda: listed().get(BROKEN) == 3, "dead letters are listed")
    [shown] = side.rows("dlq", "show", BROKEN, "-k", "k1")
    assert shown["body"] == "body 1"
    assert side.rows("dlq", "resend", BROKEN, "-k", "k1")[-1]["count"] == 1
    side.until(lambda: listed()[BROKEN] == 4, "it was given up again")
    assert side.rows("dlq", "purge", BROKEN, "--yes")[-1]["count"] == 4
    side.until(lambda: BROKEN not in listed(), "nothing is left")


def look_after_the_broker(side: Side) -> None:
    side.run("updateBrokerConfig", "-b", side.broker, "-k", "fileReservedTime", "-v", "48")
    [told] = side.rows("getBrokerConfig", "-b", side.broker)
    assert told["fileReservedTime"] == "48"
    side.run("updateKvConfig", "-s", "shop", "-k", "door", "-v", "open")
    assert side.rows("getKvConfig", "-s", "shop") == [{"key": "door", "value": "open"}]
    side.run("deleteKvConfig", "-s", "shop", "-k", "door")
    found = side.rows("doctor", "-t", TOPIC, "-g", READERS)
    assert {row["state"] for row in found} <= {"ok", "warning"}
    sent = side.rows("bench", "producer", "-t", "measured", "-w", "4", "-q", "20")[-1]
    assert (sent["kind"], sent["messages"], sent["failed"]) == ("total", 20, 0)
    got = side.rows(
        *("bench", "consumer", "-t", "measured", "-p", "false", "--limit", "20"),
        *("--duration", "20"),
    )[-1]
    assert (got["kind"], got["messages"], got["failed"]) == ("total", 20, 0)


def take_away(side: Side) -> None:
    here = ("-f", side.broker, "-t", side.broker)
    side.run("copyUser", *here, "-u", "clerk")
    side.run("copyAcl", *here, "-s", "User:clerk")
    side.run("deleteAcl", "-s", "clerk", "-r", f"Topic:{TOPIC}")
    assert [row["resource"] for row in side.rows("listAcl", "-s", "clerk")] == ["Group:g*"]
    side.run("deleteAcl", "-s", "clerk")
    side.run("deleteUser", "-u", "clerk")
    side.run("getUser", "-u", "clerk", code=1)
    for topic in (TOPIC, "copies", "measured"):
        side.run("deleteTopic", "-t", topic)
        side.run("topicRoute", "-t", topic, code=1)


@pytest.fixture(scope="module")
def mqadmin() -> Iterator[java.Driver]:
    driver = java.Driver(program="MqAdmin")
    yield driver
    driver.close()


@LOCKED_ONES
@pytest.mark.parametrize("whose", ["ours", "apache"])
def test_commands(
    whose: str,
    locked_apache: java.ApacheCluster,
    locked_broker: BrokerProcess,
    mqadmin: java.Driver,
    tmp_path: Path,
) -> None:
    if whose == "ours":
        namesrv, broker = locked_broker.namesrv, locked_broker.address
    else:
        namesrv, broker = locked_apache.namesrv, locked_apache.broker
    side = Side(namesrv, broker, mqadmin, tmp_path, LOCK_ADMIN)
    make(side)
    different: dict[str, Any] = {}
    with side.clients():
        for question in QUESTIONS:
            deadline = time.monotonic() + SECONDS / 3
            ours, theirs = question(side)
            while ours != theirs and time.monotonic() < deadline:
                time.sleep(0.2)
                ours, theirs = question(side)
            if ours != theirs:
                different[question.__name__] = (ours, theirs)
        assert different == {}
        for phase in (change_topics, change_offsets, dead_letters):
            phase(side)
    look_after_the_broker(side)
    take_away(side)
    assert side.used == set(COMMANDS)


ONCE: Final = """topicList
topicRoute -t orders
topicStatus -t orders
groupList
consumerProgress -g readers
consumerConnection -g readers
producerConnection -g shop -t orders
lag readers
queryMsgById -i {offset_id} -t orders
queryMsgByUniqueKey -i {unique} -t orders
queryMsgByKey -t orders -k all
queryMsgByOffset -t orders -b broker-a -i {queue} -o 0
printMsg -t orders
sendMessage -t copies -p text
tail copies -b 1h --limit 1
trace {unique} -t orders
dlq list
export -t orders {file}
import -t copies {file}
clusterList
brokerStatus -b {broker}
getBrokerConfig -b {broker}
statsAll -t orders
updateBrokerConfig -b {broker} -k fileReservedTime -v 72
updateKvConfig -s shop -k door -v open
getKvConfig -s shop
deleteKvConfig -s shop -k door
resetOffsetByTime -g idle -t orders -s 0
skipAccumulatedMessage -g idle -t orders
cloneGroupOffset -s readers -d idle -t orders -o true
deleteSubGroup -g idle
updateTopicPerm -t copies -p 6
doctor -t orders -g readers
bench producer -t copies -w 2 -q 5
deleteTopic -t copies"""
"""Each command once, in an order in which it has something to do."""
WITH_APACHE: Final = str(Path(__file__).with_name("test_simple_consumer.py"))
"""The group of tests that have started a cluster of Apache's without users."""
OF_USERS: Final = """createUser -u clerk -p secret
updateUser -u clerk -p another
getUser -u clerk
listUser
createAcl -s clerk -r Topic:orders -a Pub
updateAcl -s clerk -r Topic:orders -a Sub
getAcl -s clerk
listAcl
copyUser -f {broker} -t {broker} -u clerk
copyAcl -f {broker} -t {broker} -s User:clerk
deleteAcl -s clerk
deleteUser -u clerk"""


@contextmanager
def unlocked(apache: java.ApacheCluster | None) -> Iterator[tuple[str, str]]:
    """A cluster where nobody checks users, Apache's or ours."""
    if apache is not None:
        yield apache.namesrv, apache.broker
        return
    with broker_process() as broker:
        yield broker.namesrv, broker.address


@pytest.mark.parametrize(
    "whose",
    [
        "ours",
        pytest.param("apache", marks=pytest.mark.xdist_group(WITH_APACHE)),
    ],
)
def test_commands_where_nobody_checks_users(
    whose: str, request: pytest.FixtureRequest, mqadmin: java.Driver, tmp_path: Path
) -> None:
    """Users are not managed then, which both say."""
    there = request.getfixturevalue("apache") if whose == "apache" else None
    with unlocked(there) as (namesrv, broker):
        side = Side(namesrv, broker, mqadmin, tmp_path, None)
        for topic in (TOPIC, "copies"):
            side.run("updateTopic", "-t", topic, "-r", "2", "-w", "2")
        for group in (READERS, "idle"):
            side.run("updateSubGroup", "-g", group)
        side.run("updateSubGroup", "-g", BROKEN, "-r", "0")
        with side.clients():
            traced = ("trace", side.places()["unique"], "-t", TOPIC)
            side.until(lambda: bool(side.rows(*traced)), "it is traced")
            more = {"broker": broker, "queue": side.sent[0].queue.queue_id}
            file = str(tmp_path / "orders.jsonl")
            for line in ONCE.splitlines():
                words = line.format(**side.places(), **more, file=file).split()
                assert side.run(*words), line
        for line in OF_USERS.splitlines():
            side.run(*line.format(broker=broker).split(), code=1)
        side.run("deleteTopic", "-t", TOPIC)
    assert side.used == set(COMMANDS)
