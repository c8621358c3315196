"""Delays of groups, progress of all groups, counters."""

from __future__ import annotations

from rocketmq_sdk.protocol.bodies.progress import ConsumeStatsList
from rocketmq_sdk.protocol.command import Command
from support.administration import Scene, body_of


def ask(scene: Scene, code: int, **fields: str) -> Command:
    request = Command.request(code)
    request.ext_fields = fields
    return scene.ask(request)


def scene_with(*topics: str, order: str = "false") -> Scene:
    scene = Scene()
    for topic in topics:
        fields = {
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
            "defaultTopic": "TBW102",
            "topicFilterType": "SINGLE_TAG",
        }
        assert ask(scene, 17, topic=topic, order=order, **fields).code == 0
    return scene


def test_time_spans_of_a_group() -> None:
    scene = scene_with("T")
    scene.clock.time_ms = 1_000_000
    scene.store.ends["T", 0] = 10
    scene.offsets.commit("g", "T", 0, 4)
    answer = ask(scene, 303, topic="T", group="g")
    spans = {
        span["messageQueue"]["queueId"]: span for span in body_of(answer)["consumeTimeSpanSet"]
    }
    assert (spans[0]["minTimeStamp"], spans[0]["maxTimeStamp"], spans[0]["consumeTimeStamp"]) == (
        0,
        9000,
        3000,
    )
    assert spans[0]["delayTime"] == 1_000_000 - 4000, (
        "since the first message that was not consumed"
    )
    assert spans[0]["maxTimeStampStr"].endswith(":09:000")
    assert (spans[1]["minTimeStamp"], spans[1]["maxTimeStamp"], spans[1]["delayTime"]) == (
        -1,
        -1,
        0,
    ), "an empty queue"
    assert ask(scene, 303, topic="nope", group="g").code == 17


def test_a_group_that_consumed_all_has_no_delay() -> None:
    scene = scene_with("T")
    scene.store.ends["T", 0] = 10
    scene.offsets.commit("g", "T", 0, 10)
    assert {
        span["delayTime"]
        for span in body_of(ask(scene, 303, topic="T", group="g"))["consumeTimeSpanSet"]
    } == {0}


def test_progress_of_all_groups() -> None:
    scene = scene_with("T", "U")
    scene.store.ends.update({("T", 0): 10, ("T", 1): 3, ("U", 0): 5})
    scene.groups.get("g")
    scene.offsets.commit("g", "T", 0, 4)
    scene.offsets.note_pulled("g", "T", 0, 6)
    scene.offsets.commit("g", "gone", 0, 4)
    scene.core.stats.got("T", "g", 0, 30, 300)
    scene.core.stats.advance(1)
    listed = ConsumeStatsList.decode(ask(scene, 317, isOrder="false").body)
    table = {group: stats for entry in listed.consume_stats_list for group, stats in entry.items()}
    (stats,) = table["g"]
    assert {
        (queue.queue_id, entry.broker_offset, entry.consumer_offset)
        for queue, entry in stats.offset_table.items()
    } == {(0, 10, 4), (1, 3, 0)}
    assert stats.consume_tps == 3.0
    assert (listed.total_diff, listed.total_inflight_diff, listed.broker_addr) == (
        9,
        2,
        scene.core.address(),
    )
    ordered = ConsumeStatsList.decode(ask(scene, 317, isOrder="true").body)
    assert all(not stats for entry in ordered.consume_stats_list for stats in entry.values())


def test_counters_by_name_and_key() -> None:
    scene = scene_with()
    for _ in range(3):
        scene.core.stats.put("T", 0, 2, 100)
    scene.core.stats.advance(1)
    minute = body_of(ask(scene, 315, statsName="TOPIC_PUT_SIZE", statsKey="T"))["statsMinute"]
    assert (minute["sum"], minute["tps"], minute["avgpt"]) == (300, 30.0, 100.0)
    refused = ask(scene, 315, statsName="NOPE", statsKey="T")
    assert (refused.code, refused.remark) == (1, "The stats <NOPE> <T> not exist")


def test_the_lowest_offsets_of_all_groups() -> None:
    scene = scene_with("T")
    for group, offsets in {"a": (5, 9), "b": (7, 2), "c": (1, 1)}.items():
        for queue_id, offset in enumerate(offsets):
            scene.offsets.commit(group, "T", queue_id, offset)
    body = body_of(ask(scene, 308, topic="T", compareGroup="a", filterGroups="c"))
    assert body["correctionOffsets"] == {"0": 5, "1": 2}
    body = body_of(ask(scene, 308, topic="T", compareGroup="b"))
    assert body["correctionOffsets"] == {"0": 5, "1": 2}
    assert scene.offsets.offsets_of("c", "T") == {}, (
        "the group to leave out lost its offsets, as with Apache"
    )
    scene.offsets.commit("low", "U", 0, 1)
    assert body_of(ask(scene, 308, topic="U", compareGroup="low"))["correctionOffsets"] == {"0": 1}


def test_one_group_gets_the_offsets_of_another() -> None:
    scene = scene_with("T", "U")
    for topic in ("T", "U", "gone"):
        scene.offsets.commit("a", topic, 0, 5)
    assert ask(scene, 314, srcGroup="a", destGroup="b", topic="T", offline="true").code == 0
    assert scene.offsets.offsets_of("b", "T") == {0: 5}
    assert scene.offsets.offsets_of("b", "U") == {}
    assert ask(scene, 314, srcGroup="a", destGroup="c", offline="false").code == 0
    assert scene.offsets.topics_of("c") == {"T", "U"}
