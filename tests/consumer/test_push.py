"""The push consumer against the embedded broker, in virtual time."""

from trio.testing import MockClock

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.push import PushConsumer
from support.consuming import Collector, open_sender, until


async def test_everything_is_consumed(autojump_clock: MockClock, collector: Collector) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *(f"early {n}" for n in range(50)))
        async with PushConsumer("billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector) as consumer:
            await sender.send("orders", *(f"late {n}" for n in range(50)))
            await until(lambda: len(collector.bodies) >= 100)
            assert {queue.queue_id for queue in consumer.statistics().queues if queue.topic == "orders"} == {0, 1, 2, 3}
    assert sorted(collector.bodies) == sorted([f"early {n}" for n in range(50)] + [f"late {n}" for n in range(50)])
