"""What the administration requests do beyond what was recorded."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_sdk.broker_embedded.admin.runtime_info import RateMeter, Totals, duration_text
from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.codes import LanguageCode, RequestCode
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from rocketmq_sdk.protocol.bodies.members import ConsumerData
from rocketmq_sdk.protocol.bodies.progress import ConsumeStats, TopicStatsTable
from rocketmq_sdk.protocol.bodies.topics import CreateTopicListRequestBody, TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.subscription import build_subscription
from support.administration import FakeChannel, Scene, body_of


def ask(scene: Scene, code: int, body: bytes = b"", **fields: str) -> Command:
    request = Command.request(code, body=body)
    request.ext_fields = fields
    return scene.ask(request)


def create(
    scene: Scene, topic: str, *, queues: int = 4, attributes: str = "", perm: int = 6
) -> Command:
    fields = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "attributes": attributes}
    return ask(
        scene,
        17,
        topic=topic,
        readQueueNums=str(queues),
        writeQueueNums=str(queues),
        perm=str(perm),
        **fields,
    )


def join(
    scene: Scene, group: str, topic: str, language: LanguageCode | None = LanguageCode.GO
) -> FakeChannel:
    """A member of a group appears."""
    channel = FakeChannel()
    client = ClientChannel(channel, "client-1", language, 317, 0.0, 1234)
    subscriptions = (build_subscription(topic, "a || b", sub_version=1),)
    data = ConsumerData(
        group,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFrom.LAST_OFFSET,
        subscriptions,
    )
    scene.members.consumers.register(channel, client, data, notifies=False)
    scene.members.producers.register("PG", channel, client)
    return channel


def test_a_created_topic_is_at_the_name_server_at_once() -> None:
    scene = Scene()
    assert create(scene, "T").code == 0
    assert scene.namesrv.table.route("T") is not None
    assert scene.files["topics"].writes == 1
    assert create(scene, "T").code == 0
    assert scene.files["topics"].writes == 1, "nothing was different"


@pytest.mark.parametrize(
    ("topic", "options", "code"),
    [
        ("", {}, 29),
        ("t" * 128, {}, 29),
        ("DefaultCluster", {}, 29),
        ("rmq_sys_mine", {}, 29),
        ("T", {"queues": -1}, 29),
        ("T", {"queues": 1 << 30}, 29),
        ("T", {"attributes": "+message.type=MIXED"}, 29),
        ("T", {"attributes": "+queue.type=BatchCQ"}, 0),
        ("T", {"attributes": "+cleanup.policy=COMPACTION"}, 29),
        ("T", {"attributes": "+reserve.time=10"}, 29),
        ("T", {"attributes": "message.type=FIFO"}, 1),
        ("T", {"attributes": "+message.type=FIFO,+cleanup.policy=DELETE"}, 0),
        ("%RETRY%" + "g" * 200, {}, 0),
    ],
)
def test_which_topics_are_created(topic: str, options: dict[str, Any], code: int) -> None:
    scene = Scene()
    assert create(scene, topic, **options).code == code
    assert (scene.topics.get(topic) is not None) is (code == 0 or topic == "DefaultCluster")


def test_mixed_topics_and_system_topics_when_allowed() -> None:
    scene = Scene(
        BrokerConfig(
            broker_ip1="127.0.0.1",
            enable_mixed_message_type=True,
            validate_system_topic_when_update_topic=False,
        )
    )
    assert create(scene, "T", attributes="+message.type=MIXED").code == 0
    assert create(scene, "TBW102", perm=7, queues=2).code == 0


def test_a_list_of_topics_is_all_or_none() -> None:
    scene = Scene()
    bad = CreateTopicListRequestBody((TopicConfig("A"), TopicConfig("bad topic!")))
    assert ask(scene, 18, bad.encode()).code == 29
    assert scene.topics.get("A") is None
    good = CreateTopicListRequestBody(
        (TopicConfig("A"), TopicConfig("B", attributes={"+message.type": "DELAY"}))
    )
    assert ask(scene, 18, good.encode()).code == 0
    made = scene.topics.get("B")
    assert made is not None
    assert made.attributes == {"message.type": "DELAY"}


def test_a_deleted_topic_takes_its_offsets_files_and_pop_retry_topics_along() -> None:
    scene = Scene()
    told: list[str] = []
    scene.core.topic_deleted.append(told.append)
    create(scene, "T")
    for name in ("%RETRY%g_T", "%RETRY%g+T", "%RETRY%g"):
        scene.topics.create_retry(name)
    scene.offsets.commit("g", "T", 0, 5)
    assert ask(scene, 215, topic="T").code == 0
    assert scene.offsets.query("g", "T", 0) == -1
    assert sorted(scene.store.deleted) == sorted(told) == ["%RETRY%g+T", "%RETRY%g_T", "T"]
    assert scene.topics.get("%RETRY%g") is not None
    assert ask(scene, 351, topic="T").code == 17


def test_tables_in_parts() -> None:
    scene = Scene()
    for number in range(5):
        create(scene, f"T{number}")
        scene.groups.get(f"G{number}")
    total = len(scene.topics.all())
    answer = ask(scene, 21, topicSeq=str(total - 2), maxTopicNum="10")
    assert answer.ext_fields == {"totalTopicNum": str(total)}
    assert list(body_of(answer)["topicConfigTable"]) == ["T3", "T4"]
    version = scene.topics.data_version.encode().decode()
    assert list(
        body_of(ask(scene, 21, topicSeq=str(total - 2), maxTopicNum="1", dataVersion=version))[
            "topicConfigTable"
        ]
    ) == ["T3"]
    restarted = body_of(
        ask(scene, 21, topicSeq=str(total - 2), maxTopicNum="1", dataVersion='{"counter":0}')
    )
    assert list(restarted["topicConfigTable"]) == ["SELF_TEST_TOPIC"]
    assert ask(scene, 21, topicSeq="1", dataVersion="{broken").code == 1
    assert len(body_of(ask(scene, 21))["topicConfigTable"]) == total
    groups = ask(scene, 201, groupSeq=str(len(scene.groups.all()) - 1))
    assert list(body_of(groups)["subscriptionGroupTable"]) == ["G4"]


def test_groups() -> None:
    scene = Scene()
    assert ask(scene, 200, SubscriptionGroupConfig("g" * 121).encode()).code == 29
    both = SubscriptionGroupList(
        (SubscriptionGroupConfig("a", retry_max_times=1), SubscriptionGroupConfig("b"))
    )
    assert ask(scene, 225, both.encode()).code == 0
    assert body_of(ask(scene, 352, group="a"))["retryMaxTimes"] == 1
    assert ask(scene, 352, group="bad group!").code == 26
    assert body_of(ask(scene, 353, group="a", topic="T")) == {
        "group": "a",
        "topic": "T",
        "readable": True,
    }
    assert body_of(ask(scene, 353, group="a", topic="T", readable="false"))["readable"] is False
    assert scene.groups.is_forbidden("a", "T")
    scene.offsets.commit("a", "T", 0, 5)
    assert ask(scene, 207, groupName="a", cleanOffset="false").code == 0
    assert scene.offsets.query("a", "T", 0) == 5
    assert ask(scene, 207, groupName="a", cleanOffset="true").code == 0
    assert scene.offsets.query("a", "T", 0) == -1
    assert scene.groups.find_existing("a") is None


@pytest.mark.parametrize(
    ("language", "name"), [(LanguageCode.JAVA, "JAVA"), (LanguageCode.GO, "GO"), (None, "OTHER")]
)
def test_connections(language: LanguageCode | None, name: str) -> None:
    scene = Scene()
    join(scene, "g", "T", language)
    connection = {
        "clientAddr": "127.0.0.1:50000",
        "clientId": "client-1",
        "language": name,
        "version": 317,
    }
    answer = body_of(ask(scene, 203, consumerGroup="g"))
    assert answer["connectionSet"] == [connection]
    assert answer["subscriptionTable"]["T"]["tagsSet"] == ["a", "b"]
    assert (answer["consumeType"], answer["messageModel"], answer["consumeFromWhere"]) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )
    assert body_of(ask(scene, 204, producerGroup="PG")) == {"connectionSet": [connection]}
    assert ask(scene, 204, producerGroup="nobody").code == 1
    assert ask(scene, 203, consumerGroup="nobody").code == 206
    assert body_of(ask(scene, 328))["data"]["PG"][0]["remoteIP"] == "/127.0.0.1:50000"
    scene.offsets.commit("offline", "T", 0, 1)
    assert body_of(ask(scene, 300, topic="T")) == {"groupList": ["g", "offline"]}
    assert (
        body_of(ask(scene, 345, group="g", topic="T"))["subscriptionData"]["subString"] == "a || b"
    )
    assert body_of(ask(scene, 345, group="offline", topic="T")) == {
        "group": "offline",
        "topic": "T",
    }


def test_statistics_of_topics_and_groups() -> None:
    scene = Scene()
    create(scene, "T", queues=2)
    scene.store.ends[("T", 1)] = 7
    table = TopicStatsTable.decode(ask(scene, 202, topic="T").body).offset_table
    assert {
        queue.queue_id: (offset.max_offset, offset.last_update_timestamp)
        for queue, offset in table.items()
    } == {0: (0, 0), 1: (7, 6000)}
    assert ask(scene, 202, topic="nowhere").code == 17
    scene.offsets.commit("g", "T", 1, 5)
    scene.offsets.note_pulled("g", "T", 1, 6)
    stats = ConsumeStats.decode(ask(scene, 208, consumerGroup="g").body)
    wrapper = stats.offset_table[MessageQueue("T", "broker-a", 1)]
    assert (
        wrapper.broker_offset,
        wrapper.consumer_offset,
        wrapper.pull_offset,
        wrapper.last_timestamp,
    ) == (7, 5, 6, 4000)
    assert stats.offset_table[MessageQueue("T", "broker-a", 0)].consumer_offset == 0
    join(scene, "g", "Other")
    assert ConsumeStats.decode(ask(scene, 208, consumerGroup="g").body).offset_table == {}
    assert (
        len(
            ConsumeStats.decode(
                ask(scene, 208, consumerGroup="g", topicList="T;nowhere").body
            ).offset_table
        )
        == 2
    )


def test_settings() -> None:
    scene = Scene()
    refused = ask(scene, 25, b"longPollingEnable=false\nlongPolingEnable=1\n")
    assert (refused.code, scene.config.current.long_polling_enable) == (1, True)
    assert "no setting longPolingEnable; did you mean longPollingEnable" in (refused.remark or "")
    assert ask(scene, 25, b"longPollingEnable=false\ntransferMsgByHeap=true\n").code == 0
    assert scene.config.current.long_polling_enable is False
    answer = ask(scene, 26)
    assert b"\nlongPollingEnable=false\n" in answer.body
    assert b"\ntransferMsgByHeap=true\n" in answer.body
    assert '"counter":1' in answer.ext_fields["version"]
    for body, code in (
        (b"", 1),
        (b"\xff", 1),
        (b"brokerPermission=x", 1),
        (b"storeType=defaultRocksDB", 1),
        (b"configBlackList=a", 16),
    ):
        assert ask(scene, 25, body).code == code
    refused = ask(scene, 25, b"brokerPermission=x")
    assert "brokerPermission=x" in (refused.remark or "")


def test_a_changed_permission_of_the_broker_reaches_the_routes() -> None:
    scene = Scene()
    create(scene, "T")
    assert ask(scene, 25, b"brokerPermission=4").code == 0
    route = scene.namesrv.table.route("T")
    assert route is not None
    assert route.queue_datas[0].perm == 4
    create(scene, "U")
    ask(scene, 25, b"brokerPermission=6")
    routes = [scene.namesrv.table.route(name) for name in ("T", "U")]
    assert [route.queue_datas[0].perm for route in routes if route is not None] == [6, 6]


def test_runtime_information() -> None:
    scene = Scene()
    scene.core.stats.put("T", 0, 10, 1000)
    scene.clock.time_ms += 20_000
    scene.store.ends[("SCHEDULE_TOPIC_XXXX", 0)] = 3
    table = body_of(ask(scene, 28))["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["bootTimestamp"] == str(scene.core.boot_ms)
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 20 seconds ]"
    assert (
        table["putMessageTimesTotal"],
        table["putMessageSizeTotal"],
        table["putMessageAverageSize"],
    ) == ("1", "1000", "100.0")
    assert table["putTps"] == "0.5 0.5 0.5"
    assert (table["commitLogDiskRatio"], table["commitLogDiskRatio_/store/commitlog"]) == (
        "0.25",
        "0.25",
    )
    assert (table["msgPutTotalTodayMorning"], table["msgPutTotalTodayNow"]) == ("0", "10")
    assert (table["scheduleMessageOffset_1"], table["scheduleMessageOffset_18"]) == ("2,3", "0,0")
    assert (
        table["commitLogMaxOffset"],
        table["dispatchBehindBytes"],
        table["remainHowManyDataToFlush"],
    ) == ("1000", "100", "200 B")


def test_rates() -> None:
    meter = RateMeter(0.0, Totals(0, 0, 0, 0, 0))
    assert meter.look(0.0, Totals(0, 0, 0, 0, 0))[10.0] == (0,) * 7
    meter.look(100.0, Totals(100, 0, 0, 0, 0))
    rates = meter.look(120.0, Totals(300, 0, 0, 0, 0))
    assert rates[10.0][0] == 10.0
    assert rates[60.0][0] == 2.5
    assert meter.look(10_000.0, Totals(300, 0, 0, 0, 0))[600.0][0] == 0.0


def test_durations() -> None:
    assert (
        duration_text(((2 * 24 + 3) * 60 + 4) * 60_000 + 5_999)
        == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"
    )


def test_dumps_of_offsets() -> None:
    scene = Scene()
    scene.offsets.commit("g", "T", 3, 9)
    assert body_of(ask(scene, 43))["offsetTable"] == {"T@g": {"3": 9}}
    assert body_of(ask(scene, 45))["offsetTable"] == {"1": 2, "18": 0}


def test_what_is_known_and_not_served_says_why() -> None:
    scene = Scene()
    for code in (
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.POP_ROLLBACK,
    ):
        answer = ask(scene, code)
        assert answer.code == 3
        assert code.name in (answer.remark or "")
    assert ask(scene, 4711).remark == " request type 4711 not supported"


def test_missing_fields_are_answered() -> None:
    assert ask(Scene(), 17, topic="T").code == 1
    assert ask(Scene(), 200, b"no json").code == 1
    assert Scene().broker.codes >= {
        17,
        18,
        215,
        21,
        351,
        305,
        200,
        225,
        207,
        201,
        352,
        353,
        202,
        208,
        203,
        204,
        328,
        300,
        343,
        345,
    }


def test_settings_of_retention_change_while_the_broker_runs() -> None:
    scene = Scene()
    assert ask(scene, 25, b"fileReservedTime=48\ndeleteWhen=03;15").code == 0
    assert scene.config.current.store.file_reserved_time == 48
    assert ask(scene, 25, b"mappedFileSizeCommitLog=4096").code == 1
