"""How long requests take: alone, together, held, one-way, and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.metrics.request_times import RequestTimes
from rocketmq_sdk.broker_embedded.tables.figures import Figures
from rocketmq_sdk.broker_embedded.tables.put_times import PutTimes
from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import CLIENT_VERSION, RequestCode, ResponseCode
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY
from rocketmq_sdk.releases import version_text
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.broker import Peer, open_broker, pull_request, send_request
from support.metrics import page, samples
from support.stream_channels import open_stream_channel

if TYPE_CHECKING:
    from trio.testing import MockClock

COUNT = "rocketmq_rpc_latency_milliseconds_count"
SUM = "rocketmq_rpc_latency_milliseconds_sum"


async def counted(broker: EmbeddedBroker, name: str = COUNT) -> dict[tuple[str, ...], float]:
    """Long polling, request, response and result, and how often."""
    return samples(await page(broker)).get(name, {})


async def test_a_held_pull_is_long_polling_and_takes_as_long_as_it_is_held(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(metrics=0) as (broker, peer):
        await peer.send("orders", b"1")
        assert await peer.pull("orders")

        async def send_later() -> None:
            await trio.sleep(3)
            await peer.send("orders", b"2")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_later)
            assert (await peer.ask(pull_request("orders", 1, hold=10))).code == 0
        assert (await peer.ask(RequestCode.GET_TOPIC_CONFIG, topic="none")).code
        assert (await peer.ask(9999)).code
        found = await counted(broker)
        assert found["true", "pull_message", "success", "success"] == 1
        assert found["false", "pull_message", "success", "success"] == 1
        assert found["false", "send_message_v2", "success", "success"] == 2
        assert found["false", "get_topic_config", "topic_not_exist", "success"] == 1
        assert found["false", "9999", "request_code_not_supported", "success"] == 1
        assert (await counted(broker, SUM))["true", "pull_message", "success", "success"] == 3000


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_requests_that_arrive_together_count_each(
    flush: str, autojump_clock: MockClock
) -> None:
    network, peer = MemoryNetwork(), Peer()
    listener = network.listen("broker:1")
    async with (
        EmbeddedBroker(metrics=0, flush_disk_type=flush) as broker,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(broker.server.serve, [listener])
        async with open_stream_channel(await network.connect("broker:1"), peer.handle) as channel:
            peer.channel = channel
            await peer.send("orders", b"first", queue_id=1)
            unique = "UNIQ_KEY\x010A0B0C\x02"
            calls = [
                channel.submit(
                    send_request("orders", b"x" * size, queue_id=1, properties=unique), 10
                )
                for size in (10, 20, 2000, 9000)
            ]
            oneway = send_request("orders", b"oneway", queue_id=1, properties=unique)
            oneway.flag |= FLAG_ONEWAY
            channel.send_oneway(oneway)
            fifo = f"{unique}__SHARDINGKEY\x01one\x02"
            calls.append(channel.submit(send_request("orders", b"f", properties=fifo), 10))
            for call in calls:
                assert (await call.wait()).code == 0
        found = await counted(broker)
        assert found["false", "send_message_v2", "success", "success"] == 6
        assert found["false", "send_message_v2", "success", "oneway"] == 1
        every = samples(await page(broker))
        assert every["rocketmq_messages_in_total"] == {
            ("false", "normal", "orders"): 6,
            ("false", "fifo", "orders"): 1,
        }
        sizes = every["rocketmq_message_size_bucket"]
        of_normal = {key[1]: value for key, value in sizes.items() if key[2] == "normal"}
        assert [of_normal[le] for le in ("1024.0", "4096.0", "524288.0")] == [4, 5, 6]
        total = every["rocketmq_message_size_sum"]["false", "normal", "orders"]
        assert total == every["rocketmq_throughput_in_total"]["false", "normal", "orders"]
        assert every["rocketmq_processor_watermark"]["send",] == 0
        nursery.cancel_scope.cancel()


async def test_a_turn_that_did_not_last_counts_as_errors() -> None:
    class Fails:
        def begin(self) -> None:
            pass

        def end(self) -> None:
            raise StoreError("the disk is full")

    times = RequestTimes(Figures(10), TrioClock(), Fails())
    times.begin()
    async with open_broker() as (_broker, peer):
        requests = [send_request("t", b"x") for _ in range(5)]
        for oneway in requests[3:]:
            oneway.flag |= FLAG_ONEWAY
        times.together(peer.channel, requests, [b""] * 3 + [None] * 2)
    try:
        times.end()
    except StoreError:
        pass
    counts = {key[1:]: found.count for key, found in times.times.values.items()}
    assert counts == {(1, False, "success"): 3, (1, False, "oneway"): 2}


async def test_answers_of_requests_that_were_served_together_count_by_their_codes() -> None:
    times = RequestTimes(Figures(10), TrioClock(), PutTimes(TrioClock(), BrokerStats()))
    busy, fine = Command.response(ResponseCode.SYSTEM_BUSY), Command.response()
    times.begin()
    async with open_broker() as (_broker, peer):
        requests = [send_request("t", b"x") for _ in range(4)]
        times.together(peer.channel, requests, [busy, busy, fine])
        times.together(peer.channel, requests, [b"frame", fine, busy, b"frame"])
    times.end()
    counts = {key[1:]: found.count for key, found in times.times.values.items()}
    assert counts == {
        (ResponseCode.SYSTEM_BUSY, False, "success"): 3,
        (0, False, "success"): 4,
    }


async def test_requests_under_way_are_the_watermark(autojump_clock: MockClock) -> None:
    async with open_broker(metrics=0) as (broker, peer):
        await peer.send("orders", b"1")

        async def held() -> None:
            await peer.ask(pull_request("orders", 1, hold=10))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(held)
            await trio.sleep(1)
            found = samples(await page(broker))
            assert found["rocketmq_sdk_held_requests"]["pull",] == 1
            assert found["rocketmq_processor_watermark"]["pull",] == 0
            assert len(found["rocketmq_processor_watermark"]) == 12
            peer.channel.abort("gone")
            nursery.cancel_scope.cancel()
        await trio.sleep(1)
        assert samples(await page(broker))["rocketmq_sdk_connections"]["broker",] == 0
        assert not broker._exporter._times._open  # type: ignore[union-attr]


def test_names_of_versions() -> None:
    assert version_text(CLIENT_VERSION) == "v5_4_0"
    assert version_text(CLIENT_VERSION - 1) == "v5_4_0_snapshot"
    assert version_text(401) == "v4_9_4"
    assert version_text(413) == "v5_0_0"
    assert version_text(100) == "ordinal_100"
