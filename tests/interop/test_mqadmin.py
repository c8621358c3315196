"""Every sub-command of Apache's mqadmin against our broker and against Apache's,
outputs compared line by line.

`startMonitoring` and `clusterRT` never end and are left out, and so are commands that
talk to a controller (`getSyncStateSet`, `electMaster`, `getControllerMetaData`,
`getControllerConfig`, `updateControllerConfig`, `cleanBrokerMetadata`), read local
files of RocksDB or compaction (`exportMetadataInRocksDB`, `dumpCompactionLog`). Those
for users and permissions are in `test_access.py`.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from support import java
from support.mqadmin import Step
from support.paths import DOCS
from support.processes import BrokerProcess, broker_process
from support.programs import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.both_releases

LEVELS = "1s 2s 1s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 40s 50s 60s"
ROCKSDB = "Apache keeps two topics for RocksDB; ours has the trace topic from the start"
MOMENT = "depends on the moment of a sample"
OFF = "access control is off"
ACCESS = "nobody plants a user before it is switched on"

MACHINE = (
    "(?i)path|port|addr|rocketmqHome|DiskType|mapp|max(Hash|Index)|Ratio|brokerIP|nonsense|"
    "^(traceTopic|recallMessage)Enable"
)

TOPICS = [
    Step("updateTopic -b {broker} -t T1 -r 2 -w 2 -o true"),
    Step("updateTopic -c DefaultCluster -t T2 -r 4 -w 4 -a +message.type=FIFO"),
    Step(
        "updateTopic -b {broker} -t bad!name",
        mask="DESC: (?!29).*",
        reason="the text of a refusal is our own",
    ),
    Step("updateTopicList -b {broker} -f {topics}"),
    Step("updateTopicPerm -b {broker} -t T1 -p 4"),
    Step("updateTopicPerm -b {broker} -t T1 -p 6"),
    Step("topicRoute -t T1"),
    Step("topicRoute -t T1 -l"),
    Step("topicRoute -t nope"),
    Step("topicStatus -t TA"),
    Step("topicClusterList -t TA"),
    Step("topicList", drop="ROCKSDB|TRACE_TOPIC", reason=ROCKSDB),
    Step("topicList -c", drop="ROCKSDB|TRACE_TOPIC", again=True, reason=ROCKSDB),
    Step("updateOrderConf -t T1 -m put -v broker-a:2"),
    Step("updateOrderConf -t T1 -m get"),
    Step("topicRoute -t T1"),
    Step("updateOrderConf -t T1 -m delete"),
    Step("allocateMQ -t TA -i 1.1.1.1,2.2.2.2"),
    Step("deleteTopic -c DefaultCluster -t T2"),
    Step("topicList", drop="ROCKSDB|TRACE_TOPIC", reason=ROCKSDB),
    Step("exportMetadata -b {broker} -f {out} -t"),
    Step("exportMetadata -c DefaultCluster -f {out}"),
    Step("exportMetrics -c DefaultCluster -f {out}", mask="/.*/"),
    Step(
        "updateStaticTopic -t TS -qn 4 -b broker-a",
        ours="513 not supported",
        reason="static topics are refused",
    ),
    Step("remappingStaticTopic -t TS -b broker-a", ours="", reason="static topics are refused"),
]
GROUPS = [
    Step("updateSubGroup -b {broker} -g G1"),
    Step("updateSubGroup -c DefaultCluster -g G2 -r 3 -d false"),
    Step("updateSubGroupList -b {broker} -f {groups}"),
    Step("setConsumeMode -b {broker} -t TA -g G1 -m POP -q 4"),
    Step("getConsumerConfig -g G2"),
    Step("getConsumerConfig -g nope"),
    Step("consumerConnection -g GC"),
    Step("consumerConnection -g nope"),
    Step("producerConnection -g PG -t TA"),
    Step("producer -b {broker}", mask=r"last update time \S+|clientId \S+"),
    Step("consumerProgress -g GC", again=True, mask=r"TPS: \S+", reason=MOMENT),
    Step("consumerProgress", only=r"\bGC\b", again=True, mask=r" \d+ \d+$", reason=MOMENT),
    Step("consumerProgress -g nope"),
    Step("consumerStatus -g GC"),
    Step("brokerConsumeStats -b {broker}", again=True),
    Step("cloneGroupOffset -s GC -d G2 -t TA -o true"),
    Step("consumerProgress -g G2", again=True),
    Step("resetOffsetByTime -g G2 -t TA -s 0"),
    Step("resetOffsetByTime -g G2 -t TA -s now -b {broker} -q 0 -o 2"),
    Step("consumerProgress -g G2"),
    Step("skipAccumulatedMessage -g G2 -t TA"),
    Step("resetOffsetByTime -g GC -t TA -s now"),
    Step("resetOffsetByTime -g GC -t nope -s now"),
    Step("deleteSubGroup -b {broker} -g G1"),
]
MESSAGES = [
    Step("queryMsgById -i {offset_id} -t TA", again=True),
    Step(
        "queryMsgByKey -t TA -k k1",
        mask=r"<ms>@\S+",
        reason="the last column is a place in a RocksDB index",
    ),
    Step(
        "queryMsgByKey -t TA -k a -p T",
        mask=r"<ms>@\S+",
        reason="the last column is a place in a RocksDB index",
    ),
    Step("queryMsgByKey -t TA -k nope"),
    Step("queryMsgByUniqueKey -t TA -i {unique}", again=True),
    Step("queryMsgByOffset -t TA -b broker-a -i 0 -o 1"),
    Step("queryMsgByOffset -t TA -b broker-a -i 0 -o 99"),
    Step(
        "queryMsgTraceById -i {unique}",
        ours="208",
        reason="nothing was traced; Apache does not even have the topic",
    ),
    Step("printMsg -t TA -d true"),
    Step("printMsgByQueue -t TA -a broker-a -i 0 -p true -d true -f true"),
    Step("queryCq -t TA -q 0 -i 0 -c 2"),
    Step("queryCq -t TA -q 0 -i 0 -c 2 -g GC"),
    Step("queryCq -t TA -q 9 -i 0"),
    Step("sendMessage -t TM -p hello -c tagA -k key1 -b broker-a -i 0"),
    Step("consumeMessage -t TM -b broker-a -i 0 -o 0 -c 1"),
    Step("sendMsgStatus -b broker-a -c 3", mask=r"queueOffset=\d+"),
    Step("checkMsgSendRT -t TM -a 3", mask=r"(broker-a \d+ )?(true )?[\d.]+$"),
]
BROKER = [
    Step("updateBrokerConfig -b {broker} -k fileReservedTime -v 48"),
    Step(
        "updateBrokerConfig -b {broker} -k nonsenseKey -v 1",
        ours="nonsenseKey",
        theirs="success",
        reason="Apache ignores names that do not exist; ours refuses them with the nearest ones",
    ),
    Step("updateBrokerConfig -b {broker} -k brokerConfigPath -v /x"),
    Step("getBrokerConfig -b {broker}", common=True, drop=MACHINE),
    Step(
        "brokerStatus -b {broker}",
        common=True,
        drop="(?i)tps|time|latency|ratio|total|runtime|Offset|remain|size|earliest|version",
        again=True,
    ),
    Step("clusterList", mask=r"\d+\.\d+(\(\S+\))?|V5_\d_0", again=True, reason=MOMENT),
    Step("clusterList -m", mask=r" \d+", reason=MOMENT),
    Step("statsAll -t TA", mask=r"[\d.]+", again=True, reason=MOMENT),
    Step("haStatus -b {broker}", mask=r"Offset \d+"),
    Step("resetMasterFlushOffset -b {broker} -o 1"),
    Step("cleanExpiredCQ -b {broker}"),
    Step("cleanExpiredCQ -c DefaultCluster"),
    Step("deleteExpiredCommitLog -b {broker}"),
    Step("cleanUnusedTopic -b {broker}"),
    Step("wipeWritePerm -b broker-a", mask=r"OK, \d+"),
    Step("topicRoute -t TA"),
    Step("addWritePerm -b broker-a", mask=r"OK, \d+"),
    Step("topicRoute -t TA"),
    Step("updateKvConfig -s NS -k a -v b"),
    Step("deleteKvConfig -s NS -k a"),
    Step("updateNamesrvConfig -k deleteTopicWithBrokerRegistration -v true"),
    Step("getNamesrvConfig", common=True, drop="(?i)path|port|home|threads"),
    Step("exportConfigs -c DefaultCluster -f {out}", mask="/.*/"),
    Step("getColdDataFlowCtrInfo -b {broker}"),
    Step("updateColdDataFlowCtrGroupConfig -b {broker} -g G2 -v 100"),
    Step("getColdDataFlowCtrInfo -b {broker}"),
    Step("removeColdDataFlowCtrGroupConfig -b {broker} -g G2"),
    Step("setCommitLogReadAheadMode -b {broker} -m 1"),
    Step("setCommitLogReadAheadMode -b {broker} -m 0"),
    Step("switchTimerEngine -b {broker} -e F"),
    Step("rocksDBConfigToJson -b {broker} -t topics"),
    Step(
        "exportPopRecord -b {broker} -d true",
        ours="200056 not supported",
        reason="RocksDB is refused",
    ),
    Step(
        "checkRocksdbCqWriteProgress -c DefaultCluster",
        ours="354 not supported",
        reason="RocksDB is refused",
    ),
    Step(
        "getBrokerEpoch -b broker-a",
        ours="1007 not supported",
        theirs="controllerMode",
        reason="controller mode is refused by both",
    ),
    Step("addBroker -b {broker} -c /x"),
    Step("removeBroker -b {broker} -c DefaultCluster:broker-a:0"),
    Step("createUser -b {broker} -u u1 -p p1", ours=OFF, reason=ACCESS),
    Step("getUser -b {broker} -u u1", ours=OFF, reason=ACCESS),
    Step("listUser -b {broker}", ours=OFF, reason=ACCESS),
    Step(
        "createAcl -b {broker} -s User:u1 -r Topic:* -a Pub -d Allow",
        ours=OFF,
        reason=ACCESS,
    ),
    Step("listAcl -b {broker}", ours=OFF, reason=ACCESS),
]
LITE = [
    Step(
        "updateTopic -b {broker} -t TL -a +message.type=LITE,+lite.topic.expiration=60",
        ours="CODE: 1 ",
        reason="lite topics are refused",
    ),
    Step(
        "updateSubGroup -b {broker} -g GL --attributes +lite.bind.topic=TL",
        ours="CODE: 1 ",
        reason="lite topics are refused",
    ),
    Step(
        "getBrokerLiteInfo -b {broker}",
        ours="200074 not supported",
        reason="lite topics are refused",
    ),
    Step("getParentTopicInfo -p TA"),
    Step("getLiteTopicInfo -p TA -l L"),
    Step("getLiteClientInfo -p TA -g GC -c C"),
    Step("getLiteGroupInfo -p TA -g GC", mask=r"\(\d+ s ago\)"),
    Step("triggerLiteDispatch -p TA -g GC"),
]
"""New in 5.5.0."""


class Side:
    """One cluster, mqadmin for it, and what its commands need to be told."""

    def __init__(self, name: str, namesrv: str, broker: str, directory: Path) -> None:
        self.name = name
        self.namesrv = namesrv
        self.mqadmin = java.Driver(program="MqAdmin")
        self.places: dict[str, Any] = {"broker": broker, "out": str(directory / name)}
        listed = {
            "topics": [{"topicName": "LT1", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}],
            "groups": [{"groupName": "LG1"}],
        }
        for what, content in listed.items():
            path = directory / f"{name}-{what}.json"
            path.write_text(json.dumps(content))
            self.places[what] = str(path)

    async def run(self, step: Step) -> str:
        """What a command prints, or throws."""
        arguments = [*step.arguments(self.places), "-n", self.namesrv]
        try:
            return str(await trio.to_thread.run_sync(self.mqadmin.perform, {"args": arguments}))
        except ProgramError as error:
            return f"ERROR {error}"

    async def prepare(self, client: java.Driver) -> None:
        """A topic with six messages and a group that has consumed them."""
        for topic in ("TA", "TM"):
            await self.run(Step(f"updateTopic -b {{broker}} -t {topic} -r 2 -w 2"))
        await client.do("producer", id=f"p{self.name}", group="PG", namesrv=self.namesrv)
        sent = [
            await client.do(
                "send",
                id=f"p{self.name}",
                topic="TA",
                body=f"body {number}",
                tags="ab"[number % 2],
                keys=f"k{number}",
                how="queue",
                broker="broker-a",
                queue_id=number % 2,
            )
            for number in range(6)
        ]
        self.places |= {"unique": sent[0]["msgId"], "offset_id": sent[0]["offsetMsgId"]}
        await client.do(
            "consumer",
            id=f"c{self.name}",
            group="GC",
            namesrv=self.namesrv,
            topic="TA",
            expression="*",
        )
        with trio.fail_after(90):
            while int(await client.do("count", id=f"c{self.name}")) < 6:
                await trio.sleep(0.2)


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[java.ApacheCluster, BrokerProcess]]:
    directory = tmp_path_factory.mktemp("mqadmin")
    with (
        java.apache_cluster(directory, messageDelayLevel=LEVELS) as apache,
        broker_process(messageDelayLevel=LEVELS, **java.IDLES) as ours,
    ):
        yield apache, ours


@pytest.fixture(scope="module")
def sides(
    clusters: tuple[java.ApacheCluster, BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Side]]:
    apache, ours = clusters
    directory = tmp_path_factory.mktemp("files")
    made = [
        Side("apache", apache.namesrv, apache.broker, directory),
        Side("ours", ours.namesrv, ours.address, directory),
    ]
    with contextlib.ExitStack() as stack:
        for side in made:
            stack.callback(side.mqadmin.close)
        yield made


async def both(sides: list[Side], step: Step) -> tuple[str, str]:
    """A command on both clusters at the same time."""
    outputs: dict[str, str] = {}

    async def run(side: Side) -> None:
        outputs[side.name] = await side.run(step)

    async with trio.open_nursery() as nursery:
        for side in sides:
            nursery.start_soon(run, side)
    return outputs["apache"], outputs["ours"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(TOPICS, id="topics"),
        pytest.param(GROUPS, id="groups"),
        pytest.param(MESSAGES, id="messages"),
        pytest.param(
            LITE,
            id="lite",
            marks=pytest.mark.skipif(
                tuple(map(int, java.VERSION.split("."))) < (5, 5),
                reason="these commands came with release 5.5.0",
            ),
        ),
        pytest.param(BROKER, id="broker"),
    ],
)
async def test_commands_print_the_same(
    sides: list[Side], json_driver: java.Driver, steps: list[Step]
) -> None:
    if "unique" not in sides[0].places:
        for side in sides:
            await side.prepare(json_driver)
    problems: dict[str, list[str]] = {}
    for step in steps:
        found = step.differences(*await both(sides, step))
        with trio.move_on_after(30 if step.again else 0):
            while found:
                await trio.sleep(0.5)
                found = step.differences(*await both(sides, step))
        if found:
            problems[step.line] = found[:12]
    assert not problems, json.dumps(problems, indent=1)


def test_every_difference_is_on_its_page() -> None:
    page = (DOCS / "mqadmin.md").read_text("utf-8")
    named = {
        step.name
        for steps in (TOPICS, GROUPS, MESSAGES, BROKER, LITE)
        for step in steps
        if step.reason is not None or step.ours is not None
    }
    assert {name for name in named if f"`{name}" not in page} == set()
