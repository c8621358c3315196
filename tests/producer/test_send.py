"""The send loop against scripted brokers, in virtual time: which outcome leads to which next step."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rocketmq_sdk.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    FieldError,
    MessageIllegalError,
    RouteError,
    SendTimeout,
    TooManyRequestsError,
)
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.properties import decode_properties
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.producer.queue_selector import RoundRobin, select_by_key
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.compression import decompress
from support.peers import SILENT, Cluster, open_cluster

RETRYABLE = (1, 2, 14, 16, 17, 204, 205, 215, 1500)



class Running:
    """A client and a producer on it."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.client = cluster.client()
        self.options = options

    async def __aenter__(self) -> Producer:
        await self.client.__aenter__()
        self.producer = Producer("pg", client=self.client, **self.options)
        return await self.producer.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self.producer.__aexit__(*error)
        finally:
            await self.client.__aexit__(*error)


def message(body: bytes = b"body", **options: Any) -> Message:
    return Message("t", body, **options)


async def test_a_message_carries_what_apaches_client_sends(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            result = await producer.send(message(tags="a", keys=["k1", "k2"], properties={"p": "v"}, flag=7))
        _, request, header = cluster.brokers[0].sends[0]
    assert request.code == 310
    assert request.body == b"body"
    assert (header.producer_group, header.topic, header.default_topic, header.default_topic_queue_nums) == ("pg", "t", "TBW102", 4)
    assert (header.sys_flag, header.flag, header.reconsume_times, header.unit_mode, header.batch, header.bname) == (0, 7, 0, False, False, "b0")
    properties = decode_properties(header.properties or "")
    assert properties == {"UNIQ_KEY": result.message_id, "p": "v", "KEYS": "k1 k2", "WAIT": "true", "TAGS": "a"}
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue("t", "b0", header.queue_id)
    assert result.queue_offset == 0
    assert result.region_id == "DefaultRegion"
    assert result.trace_on


@pytest.mark.parametrize("code", RETRYABLE)
async def test_codes_worth_a_retry_go_to_the_other_broker_with_the_same_id(code: int, autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        first, second = cluster.brokers
        first.script = [code] * 3
        second.script = [0]
        with trio.fail_after(10):
            while not first.sends:
                result = await producer.send(message())
        ids = {decode_properties(header.properties or "")["UNIQ_KEY"] for _, _, header in (first.sends[-1], second.sends[-1])}
    assert result.queue.broker_name == "b1"
    assert ids == {result.message_id}


async def test_three_attempts_alternate_between_brokers_and_end_with_the_last_error(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [14] * 9
        with trio.fail_after(10), pytest.raises(BrokerError) as caught:
            await producer.send(message())
        asked = sorted(len(broker.sends) for broker in cluster.brokers)
    assert caught.value.code == 14
    assert caught.value.retryable
    assert not caught.value.outcome_unknown
    assert asked == [1, 2]


async def test_other_codes_are_not_retried(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [13] * 3
        with trio.fail_after(10), pytest.raises(MessageIllegalError) as caught:
            await producer.send(message())
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1
    assert caught.value.topic == "t"
    assert caught.value.address in {broker.address for broker in cluster.brokers}


async def test_own_retry_codes(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster, retry_response_codes=[13], retry_times=1) as producer:
        for broker in cluster.brokers:
            broker.script = [13]
        with trio.fail_after(10), pytest.raises(MessageIllegalError):
            await producer.send(message())
        assert [len(broker.sends) for broker in cluster.brokers] == [1, 1]


@pytest.mark.parametrize(("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")])
async def test_a_status_that_is_not_ok_is_returned(code: int, status: str, autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [code]
        with trio.fail_after(10):
            result = await producer.send(message())
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1
    assert result.status is SendStatus[status]


async def test_another_broker_when_not_store_ok(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster, retry_another_broker_when_not_store_ok=True) as producer:
        for broker in cluster.brokers:
            broker.script = [12]
        with trio.fail_after(10):
            result = await producer.send(message())
        assert result.status is SendStatus.SEND_OK
        assert sorted(len(broker.sends) for broker in cluster.brokers) == [1, 2]


async def test_an_earlier_stored_result_wins_over_a_later_refusal(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster, retry_another_broker_when_not_store_ok=True, retry_times=1) as producer:
        steps = [12, 13]
        for broker in cluster.brokers:
            broker.script = [lambda _channel, request, broker=broker: broker.answer(broker.sends[-1][2], steps.pop(0))] * 2
        with trio.fail_after(10):
            result = await producer.send(message())
    assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert steps == []


async def test_no_answer_uses_up_the_budget(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [SILENT] * 3
        await producer.publish_queues("t")
        began = trio.current_time()
        with trio.fail_after(10), pytest.raises(SendTimeout) as caught:
            await producer.send(message())
        assert trio.current_time() - began == pytest.approx(3.0)
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1
    assert caught.value.outcome_unknown


async def test_a_limit_for_each_attempt_leaves_time_for_others(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster, send_timeout_per_attempt=0.5) as producer:
        await producer.publish_queues("t")
        for broker in cluster.brokers:
            broker.script = [SILENT]
        began = trio.current_time()
        with trio.fail_after(10):
            result = await producer.send(message())
        assert trio.current_time() - began == pytest.approx(1.0)
    assert result.status is SendStatus.SEND_OK


async def test_the_budget_is_shared_by_all_attempts(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster, send_timeout_per_attempt=2) as producer:
        await producer.publish_queues("t")
        for broker in cluster.brokers:
            broker.script = [SILENT] * 3
        began = trio.current_time()
        with trio.fail_after(10), pytest.raises(SendTimeout) as caught:
            await producer.send(message(), timeout=3)
        assert trio.current_time() - began == pytest.approx(3.0)
        assert sum(len(broker.sends) for broker in cluster.brokers) == 2
    assert caught.value.outcome_unknown


async def test_a_connection_that_ends_is_an_unknown_outcome_and_a_retry(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [lambda channel, _request: channel.abort("as the script wants it")]
        with trio.fail_after(10):
            result = await producer.send(message())
    assert result.status is SendStatus.SEND_OK


async def test_all_connections_end(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [lambda channel, _request: channel.abort("as the script wants it")] * 3
        with trio.fail_after(10), pytest.raises(ConnectError) as caught:
            await producer.send(message())
        assert sum(len(broker.sends) for broker in cluster.brokers) == 3
    assert caught.value.outcome_unknown


async def test_a_broker_that_is_not_there_is_passed_over(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        await cluster.brokers[0].stop()
        with trio.fail_after(30):
            results = [await producer.send(message()) for _ in range(6)]
    assert {result.queue.broker_name for result in results} == {"b1"}


async def test_nothing_written_is_no_unknown_outcome(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await cluster.brokers[0].stop()
        with trio.fail_after(30), pytest.raises((ConnectError, SendTimeout)) as caught:
            await producer.send(message())
    assert not caught.value.outcome_unknown


async def test_a_broker_that_moves_is_found_within_one_send(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        with trio.fail_after(30):
            await producer.send(message())
            await broker.stop()
            await broker.start("10.0.0.77:10911")
            cluster.route("t")
            result = await producer.send(message())
    assert result.queue_offset == 1


async def test_a_broker_that_restarts_is_used_again(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        with trio.fail_after(30):
            await producer.send(message())
            await broker.stop()
            with pytest.raises((ConnectError, SendTimeout)):
                await producer.send(message())
            await broker.start()
            await trio.sleep(1)
            assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_an_unknown_topic_takes_the_default_topics_queues(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1, topics=("TBW102",), queues=8) as cluster, Running(cluster) as producer:
        with trio.fail_after(60):
            for _ in range(8):
                await producer.send(message())
            assert sorted(set(cluster.brokers[0].queues)) == [0, 1, 2, 3]
            cluster.route("t", queues=1)
            await trio.sleep(5)
            await producer.send(message())
            assert await producer.publish_queues("t") == [MessageQueue("t", "b0", 0)]


async def test_a_missing_route_fails_at_once_and_the_next_send_asks_again(autojump_clock: MockClock) -> None:
    async with open_cluster(topics=()) as cluster, Running(cluster) as producer:
        with trio.fail_after(30):
            with pytest.raises(RouteError) as caught:
                await producer.send(message())
            assert not caught.value.outcome_unknown
            cluster.route("t")
            assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_a_topic_without_writable_queues(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        cluster.route("t", perm=4)
        with trio.fail_after(30), pytest.raises(RouteError, match="written"):
            await producer.send(message())


async def test_a_silent_name_server_costs_the_senders_time_only(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        cluster.name_servers[0].silent = True
        began = trio.current_time()
        with trio.fail_after(30), pytest.raises(SendTimeout) as caught:
            await producer.send(message(), timeout=0.5)
        assert trio.current_time() - began == pytest.approx(0.5)
        assert not caught.value.outcome_unknown
        with trio.fail_after(30), pytest.raises(SendTimeout):
            await producer.send(message(), timeout=60)
        cluster.name_servers[0].silent = False
        with trio.fail_after(30):
            await producer.send(message())


@pytest.mark.parametrize("how", ["queue", "selector", "key"])
async def test_a_chosen_queue_has_one_attempt(how: str, autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [14] * 3
        arguments: dict[str, Any] = {
            "queue": {"queue": MessageQueue("t", "b1", 1)},
            "selector": {"selector": lambda queues, _message, _key: queues[-1]},
            "key": {"key": "some key"},
        }[how]
        with trio.fail_after(10), pytest.raises(BrokerError):
            await producer.send(message(), **arguments)
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1
        if how != "key":
            assert cluster.brokers[1].queues == [1]


async def test_equal_keys_go_to_one_queue(autojump_clock: MockClock) -> None:
    async with open_cluster(queues=4) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            by_argument = {(await producer.send(message(), key="TagA")).queue for _ in range(5)}
            by_message = {(await producer.send(message(sharding_key="TagA"), selector=select_by_key)).queue for _ in range(5)}
        queues = await producer.publish_queues("t")
    assert by_argument == by_message == {queues[2598919 % 8]}


async def test_round_robin_uses_all_queues(autojump_clock: MockClock) -> None:
    selector = RoundRobin()
    async with open_cluster(queues=3) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            assert len({(await producer.send(message())).queue for _ in range(6)}) == 6
            assert len({(await producer.send(message(), selector=selector)).queue for _ in range(6)}) == 6


@pytest.mark.parametrize(
    "arguments",
    [
        {"queue": MessageQueue("other", "b0", 0)},
        {"queue": MessageQueue("t", "b0", 0), "key": "k"},
        {"selector": lambda _queues, _message, _key: MessageQueue("t", "b9", 0)},
        {"selector": lambda _queues, _message, _key: None},
        {"key": 1.5},
    ],
)
async def test_bad_choices_are_refused(arguments: dict[str, Any], autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(ConfigurationError):
            await producer.send(message(), **arguments)
        assert producer.in_flight == 0


async def test_a_queue_of_an_unknown_broker(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(RouteError):
            await producer.send(message(), queue=MessageQueue("t", "b9", 0))


async def test_an_error_of_the_callers_selector_is_the_outcome(autojump_clock: MockClock) -> None:
    def selector(_queues: Any, _message: Any, _key: Any) -> MessageQueue:
        raise KeyError("mine")

    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(KeyError, match="mine"):
            await producer.send(message(), selector=selector)
        assert producer.in_flight == 0


async def test_large_bodies_are_compressed(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            await producer.send(message(b"x" * 4095))
            await producer.send(message(b"x" * 4096))
        (_, small, small_header), (_, large, large_header) = cluster.brokers[0].sends
    assert small.body == b"x" * 4095
    assert small_header.sys_flag == 0
    assert large_header.sys_flag == 0x301
    assert decompress(large.body, large_header.sys_flag) == b"x" * 4096


@pytest.mark.parametrize(("name", "bits"), [("lz4", 0x101), ("zstd", 0x201)])
async def test_other_compressions(name: str, bits: int, autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, compression=name, compress_over=10) as producer:
        with trio.fail_after(10):
            await producer.send(message(b"y" * 100))
        _, request, header = cluster.brokers[0].sends[0]
    assert header.sys_flag == bits
    assert decompress(request.body, bits) == b"y" * 100


@pytest.mark.parametrize("body", [b"", b"x" * 101])
async def test_bodies_of_a_wrong_size_are_refused(body: bytes, autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, max_message_size=100) as producer:
        for send in (producer.send, producer.send_oneway):
            with trio.fail_after(10), pytest.raises(ConfigurationError, match="body"):
                await send(message(body))
        with pytest.raises(ConfigurationError):
            producer.submit(message(body))
        assert cluster.brokers[0].sends == []


@pytest.mark.parametrize("topic", ["", "SCHEDULE_TOPIC_XXXX", "has blank", "x" * 128])
async def test_topics_that_nobody_may_send_to(topic: str, autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(ConfigurationError):
            await producer.send(Message(topic, b"x"))


async def test_batches(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            result = await producer.send_batch([message(b"one", tags="a", flag=3), message(b"two", keys="k")])
        _, request, header = cluster.brokers[0].sends[0]
    assert request.code == 320
    assert header.batch
    assert header.sys_flag == 0
    items = decode_batch(request.body)
    assert [(flag, body) for flag, body, _ in items] == [(3, b"one"), (0, b"two")]
    inner = [decode_properties(properties.decode())["UNIQ_KEY"] for _, _, properties in items]
    assert result.message_id == ",".join(inner)
    outer = decode_properties(header.properties or "")
    assert outer["WAIT"] == "true"
    assert outer["UNIQ_KEY"] not in inner


async def test_an_inner_batch_has_one_id(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        broker.script = [lambda _channel, _request: broker.answer(broker.sends[-1][2], batchUniqId="ONE", MSG_REGION="r", TRACE_ON="false")]
        with trio.fail_after(10):
            result = await producer.send_batch([message(b"one"), message(b"two")])
    assert (result.message_id, result.region_id, result.trace_on) == ("ONE", "r", False)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [message(), Message("other", b"x")],
        [message(), message(wait_store_ok=False)],
        [message(delay_level=3)],
        [message(deliver_at=1)],
        [Message("%RETRY%g", b"x")],
        [message(b"x" * 60), message(b"x" * 60)],
    ],
)
async def test_batches_that_are_refused(messages: list[Message], autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, max_message_size=100) as producer:
        with trio.fail_after(10), pytest.raises(ConfigurationError):
            await producer.send_batch(messages)


async def test_oneway(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            for _ in range(4):
                await producer.send_oneway(message())
            await producer.send_oneway(message(), key="k")
            while sum(len(broker.sends) for broker in cluster.brokers) < 5:
                await trio.sleep(0.01)
        assert all(request.is_oneway for broker in cluster.brokers for _, request, _ in broker.sends)
        await cluster.brokers[0].stop()
        await cluster.brokers[1].stop()
        with trio.fail_after(10), pytest.raises((ConnectError, SendTimeout)):
            await producer.send_oneway(message())


async def test_submitted_messages_need_no_waiter(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        cluster.brokers[0].script = [14, 14]
        handles = [producer.submit(message(b"%d" % number)) for number in range(10)]
        assert not any(handle.done for handle in handles)
        with trio.fail_after(10):
            await producer.flush()
        assert all(handle.done for handle in handles)
        assert producer.in_flight == 0
        results = [await handle for handle in handles]
    assert {result.message_id for result in results} == {handle.message_id for handle in handles}


async def test_flush_raises_what_nobody_has_awaited(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [13] * 2
        handles = [producer.submit(message()) for _ in range(4)]
        with trio.fail_after(10):
            for handle in handles:
                with pytest.raises(MessageIllegalError):
                    await handle
            await producer.flush()
            for broker in cluster.brokers:
                broker.script = [13] * 2
            for _ in range(4):
                producer.submit(message())
            with pytest.raises(MessageIllegalError):
                await producer.flush()
            await producer.flush()


async def test_several_tasks_may_wait_for_one_message(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        handle = producer.submit(message())
        seen: list[str] = []

        async def wait() -> None:
            seen.append((await handle.wait()).message_id)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(wait)
            await wait()
    assert seen == [handle.message_id] * 4


async def test_cancelling_a_waiter_leaves_the_message_under_way(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]

        async def late() -> Any:
            await trio.sleep(1)
            return broker.answer(broker.sends[-1][2])

        broker.script = [lambda _channel, _request: late]
        handle = producer.submit(message())
        with trio.move_on_after(0.5) as scope:
            await handle
        assert scope.cancelled_caught
        with trio.fail_after(10):
            assert (await handle).status is SendStatus.SEND_OK


async def test_cancelling_send_gives_the_message_up(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        broker.script = [SILENT]
        with trio.move_on_after(0.5) as scope:
            await producer.send(message())
        assert scope.cancelled_caught
        assert producer.in_flight == 0
        with trio.fail_after(10):
            await trio.sleep(5)
            assert len(broker.sends) == 1
            await producer.flush()
            assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_over_the_limit_submit_raises_and_send_waits(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, max_in_flight=2) as producer:
        broker = cluster.brokers[0]

        async def late() -> Any:
            await trio.sleep(1)
            return broker.answer(broker.sends[-1][2])

        broker.script = [lambda _channel, _request: late] * 2
        await producer.publish_queues("t")
        began = trio.current_time()
        producer.submit(message())
        producer.submit(message())
        with pytest.raises(TooManyRequestsError):
            producer.submit(message())
        with trio.fail_after(10):
            with pytest.raises(SendTimeout) as caught:
                await producer.send(message(), timeout=0.5)
            assert not caught.value.outcome_unknown
            await producer.send(message())
        assert trio.current_time() - began == pytest.approx(1.0)


async def test_the_limit_of_bytes_lets_one_message_through(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, max_in_flight_bytes=10) as producer:
        producer.submit(message(b"x" * 50))
        with pytest.raises(TooManyRequestsError):
            producer.submit(message(b"x"))
        with trio.fail_after(10):
            await producer.send(message(b"x" * 20))


async def test_leaving_waits_for_messages_under_way(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster:
        async with Running(cluster) as producer:
            handles = [producer.submit(message()) for _ in range(20)]
        assert all(handle.result is not None for handle in handles)
        assert {fields.get("producerGroup") for broker in cluster.brokers for fields in broker.unregistered} == {"pg"}
        with pytest.raises(ClosedError):
            producer.submit(message())
        with pytest.raises(ClosedError):
            await producer.send(message())


async def test_leaving_by_an_error_is_quick_and_tells_what_is_unknown(autojump_clock: MockClock) -> None:
    handles: list[Any] = []

    async def body(cluster: Cluster) -> None:
        async with Running(cluster) as producer:
            handles.append(producer.submit(message(), timeout=100))
            await trio.sleep(1)
            raise ZeroDivisionError

    async with open_cluster(brokers=1) as cluster:
        cluster.brokers[0].script = [SILENT]
        began = trio.current_time()
        with pytest.raises(ZeroDivisionError):
            await body(cluster)
        assert trio.current_time() - began <= 3.0
        with pytest.raises(ClosedError) as caught:
            await handles[0]
    assert caught.value.outcome_unknown


async def test_closing_wakes_senders_that_wait_for_room_or_an_answer(autojump_clock: MockClock) -> None:
    errors: list[Exception] = []

    async def sender(producer: Producer) -> None:
        try:
            await producer.send(message(), timeout=100)
        except ClosedError as error:
            errors.append(error)

    async with open_cluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        cluster.brokers[0].script = [SILENT] * 3
        async with Running(cluster, max_in_flight=1) as producer:
            for _ in range(3):
                nursery.start_soon(sender, producer)
            await trio.sleep(1)
        with trio.fail_after(5):
            while len(errors) < 3:
                await trio.sleep(0.01)
        assert sorted(error.outcome_unknown for error in errors) == [False, False, True]  # type: ignore[attr-defined]


async def test_leaving_normally_is_bounded(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster:
        cluster.brokers[0].script = [SILENT]
        async with Running(cluster) as producer:
            handle = producer.submit(message(), timeout=100)
            await trio.sleep(1)
            began = trio.current_time()
        assert 9.0 <= trio.current_time() - began <= 13.0
        with pytest.raises(ClosedError):
            await handle


async def test_a_producer_that_is_not_open(autojump_clock: MockClock) -> None:
    producer = Producer("pg", namesrv="10.0.1.0:9876", client_ip="10.0.9.9")
    with pytest.raises(ClosedError):
        producer.submit(message())
    with pytest.raises(ClosedError):
        await producer.send(message())


async def test_one_group_once_for_each_client(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.client() as client, Producer("pg", client=client):
        with pytest.raises(ConfigurationError, match="already"):
            await Producer("pg", client=client).__aenter__()
        async with Producer("other", client=client):
            pass


async def test_order_is_kept_over_a_missing_route_and_connection(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1, queues=1) as cluster, Running(cluster) as producer:
        for number in range(20):
            producer.submit(message(b"%d" % number))
            if number % 3 == 0:
                await trio.lowlevel.checkpoint()
        with trio.fail_after(10):
            await producer.flush()
        assert [int(request.body) for _, request, _ in cluster.brokers[0].sends] == list(range(20))


async def test_a_broken_answer_is_an_error_that_may_be_stored(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        cluster.brokers[0].script = [lambda _channel, _request: Command.response()]
        with trio.fail_after(10), pytest.raises(FieldError) as caught:
            await producer.send(message())
    assert caught.value.outcome_unknown
