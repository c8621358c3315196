"""How a queue is chosen, and mistakes in choosing."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import ConfigurationError, RequestTimeoutError, RouteError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.producer.queue_selector import select_by_hash
from support.peers import open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_no_key_is_told_from_a_key_that_is_none(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with pytest.raises(ConfigurationError, match="key is None"):
            await producer.send(message(), key=None)
        with pytest.raises(ConfigurationError, match="key is None"):
            producer.submit(message(), selector=select_by_hash, key=None)
        with pytest.raises(ConfigurationError, match="key is None"):
            await producer.send_oneway(message(), key=None)
        assert producer.in_flight == 0
        await producer.send(message(), key=0)


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_a_sharding_key_routes(autojump_clock: MockClock, auto_batch: bool) -> None:
    async with (
        open_cluster(queues=4) as cluster,
        Running(cluster, auto_batch=auto_batch) as producer,
    ):
        queues = await producer.publish_queues("t")
        for key in ("order 1", "order 2", "order 3"):
            wanted = queues[abs(java_hash(key)) % len(queues)]
            for _ in range(3):
                assert (await producer.send(message(sharding_key=key))).queue == wanted
            assert (await producer.send(message(), key=key)).queue == wanted
            batch = await producer.send_batch([message(sharding_key=key)] * 2)
            assert batch.queue == wanted
        other = next(queue for queue in queues if queue != wanted)
        assert (await producer.send(message(sharding_key=key), queue=other)).queue == other


async def test_a_batch_has_one_sharding_key(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        mixed = [message(sharding_key="a"), message(sharding_key="b")]
        with pytest.raises(ConfigurationError, match="sharding key"):
            await producer.send_batch(mixed)
        [queue, *_] = await producer.publish_queues("t")
        assert (await producer.send_batch(mixed, queue=queue)).queue == queue


async def test_a_queue_may_have_the_users_name_of_its_topic(autojump_clock: MockClock) -> None:
    async with open_cluster(topics=("shop%t",)) as cluster:
        running = Running(cluster)
        running.client = cluster.client(namespace="shop")
        async with running as producer:
            assert producer.group == "pg"
            result = await producer.send(message(), queue=MessageQueue("t", "b1", 1))
            assert (result.queue.broker_name, result.queue.queue_id) == ("b1", 1)


async def test_warming_up_connects_to_the_brokers(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=3, topics=("t", "u")) as cluster, Running(cluster) as producer:
        await cluster.brokers[2].stop()
        cluster.holes.add(cluster.brokers[2].address)
        await producer.warm_up("t", "u", timeout=1)
        remoting = producer.client.remoting
        connected = [remoting.channel_nowait(broker.address) for broker in cluster.brokers]
        assert [channel is not None for channel in connected] == [True, True, False]


async def test_warming_up_keeps_to_its_time_and_names_what_is_missing(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster(topics=("t", "u")) as cluster,
        Running(cluster, create_topic_key="none") as producer,
    ):
        with pytest.raises(RouteError, match="nowhere"):
            await producer.warm_up("t", "nowhere", "u")
        cluster.name_servers[0].silent = True
        began = trio.current_time()
        with pytest.raises(RequestTimeoutError, match=r"the routes of t, other within 0\.5 s"):
            await producer.warm_up("t", "other", timeout=0.5)
        assert trio.current_time() - began == pytest.approx(0.5)
        handle = b64encode(b"v1 other b9 1700000000000 id").decode()
        with pytest.raises(RequestTimeoutError, match=r"the routes of other within 0\.5 s"):
            await producer.recall(handle, timeout=0.5)
        assert trio.current_time() - began == pytest.approx(1)


class Picker:
    """Selectors of several kinds."""

    def pick(self, queues: Any, _message: Any, key: Any) -> Any:
        return queues[key]

    def few(self, queues: Any) -> Any:
        return queues[0]

    def failing(self, queues: Any, _message: Any, _key: Any) -> Any:
        return queues["0"]

    def listing(self, queues: Any, _message: Any, _key: Any) -> Any:
        return queues


WRONG_SELECTORS = {
    "few": (Picker().few, r"selector Picker\.few\(queues.*called with .*\(queues, message, key\)"),
    "named": (lambda queues, *, message, key: (queues, message, key)[0][0], r"lambda.*called with"),
    "listing": (Picker().listing, "returned .* none of the 4 queues"),
    "none": (lambda *_: None, "returned None, which is none of the 4 queues"),
}


@pytest.mark.parametrize("case", WRONG_SELECTORS)
async def test_a_selector_with_wrong_arguments_or_results(
    case: str, autojump_clock: MockClock
) -> None:
    selector: Any
    selector, said = WRONG_SELECTORS[case]
    async with open_cluster() as cluster, Running(cluster) as producer:
        for send in (producer.send, producer.submit, producer.send_oneway):
            with pytest.raises(ConfigurationError, match=said):
                await send(message(), selector=selector)
        assert producer.in_flight == 0


async def test_a_type_error_inside_a_selector_stays_what_it_is(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with pytest.raises(TypeError, match="indices") as caught:
            await producer.send(message(), selector=Picker().failing)
        assert not isinstance(caught.value, ConfigurationError)
        sent = await producer.send(message(), selector=Picker().pick, key=1)
        assert sent.queue == (await producer.publish_queues("t"))[1]
