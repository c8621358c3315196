"""The broker at the name server in its own process: whatever takes it out of the route,
it comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.namesrv.registration import OWN_BROKER
from rocketmq_sdk.codes import RequestCode
from support.broker import Peer, connect, open_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.model.route import TopicRoute

PERIOD = 31


def route(broker: EmbeddedBroker, topic: str) -> TopicRoute | None:
    return broker.namesrv.table.route(topic)


async def update_topic(peer: Peer, topic: str) -> None:
    answer = await peer.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums="4",
        writeQueueNums="4",
        perm="6",
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
        order="false",
    )
    assert answer.code == 0, answer.remark


async def unregister(namesrv: Peer, address: str) -> None:
    answer = await namesrv.ask(
        RequestCode.UNREGISTER_BROKER,
        brokerName="broker-a",
        brokerAddr=address,
        clusterName="DefaultCluster",
        brokerId="0",
    )
    assert answer.code == 0


async def test_a_topic_deleted_at_the_name_server_comes_back(autojump_clock: MockClock) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            namesrv = await connect(broker, nursery, namesrv=True)
            await update_topic(peer, "T")
            for by_period in (False, True):
                await namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T")
                assert route(broker, "T") is None
                if by_period:
                    await trio.sleep(PERIOD)
                else:
                    await update_topic(peer, "T")
                assert route(broker, "T") is not None
            nursery.cancel_scope.cancel()


async def test_a_broker_unregistered_by_anybody_comes_back_whole(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            namesrv = await connect(broker, nursery, namesrv=True)
            await update_topic(peer, "T")
            for by_period in (False, True):
                await unregister(namesrv, OWN_BROKER)
                assert route(broker, "T") is None
                if by_period:
                    await trio.sleep(PERIOD)
                else:
                    await update_topic(peer, "T")
                for topic in ("T", "TBW102"):
                    assert route(broker, topic) is not None
            nursery.cancel_scope.cancel()


async def test_a_second_broker_of_the_name_comes_and_goes(autojump_clock: MockClock) -> None:
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            namesrv = await connect(broker, nursery, namesrv=True)
            await update_topic(peer, "T")
            own = route(broker, "T")
            answer = await namesrv.ask(
                RequestCode.REGISTER_BROKER,
                brokerName="broker-a",
                brokerAddr="10.0.0.9:10911",
                clusterName="DefaultCluster",
                haServerAddr="10.0.0.9:10912",
                brokerId="0",
                compressed="false",
                bodyCrc32="0",
            )
            assert answer.code == 0
            await unregister(namesrv, "10.0.0.9:10911")
            await trio.sleep(PERIOD)
            assert route(broker, "T") == own
            nursery.cancel_scope.cancel()


async def test_write_permission_stays_taken(autojump_clock: MockClock) -> None:
    """Registering the same again changes no permission that an administrator set."""
    with trio.fail_after(300):
        async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
            namesrv = await connect(broker, nursery, namesrv=True)
            await update_topic(peer, "T")
            await namesrv.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
            await trio.sleep(PERIOD)
            found = route(broker, "T")
            assert found is not None
            assert found.queue_datas[0].perm == 4
            nursery.cancel_scope.cancel()
