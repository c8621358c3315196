"""Extreme values to every request of broker and name server: no call of a well-behaved
client fails or waits, memory stays within the budget, all tables persist.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.routes import decode_route
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.source import TcpChannelSource
from support.broker import Peer, connect
from support.extreme_requests import Extremes
from support.extreme_run import rows, run
from support.hostile import assert_quiet, processor_seconds
from support.measured import GOOD_GROUP, GOOD_TOPIC, percentile
from support.processes import BrokerProcess, broker_process

if TYPE_CHECKING:
    from pathlib import Path

REQUESTS = 1200
SECONDS_OF_REQUEST = 0.01
"""Of processor time of the broker, on average, those of the good client beside them
included.
"""
GIBIBYTE = 1024 * 1024 * 1024


@pytest.mark.real_time
def test_every_request_with_extreme_values(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        report = trio.run(partial(run, broker, requests=REQUESTS, seed=1))
        print(report)
        assert report.failures == []
        assert report.requests >= REQUESTS - 5
        # A machine that does much else is slow for everybody; work is counted exactly.
        assert broker.process is not None
        assert processor_seconds(broker.process.pid) < REQUESTS * SECONDS_OF_REQUEST
        assert percentile(report.good.times, 0.5) < 5.0
        assert report.good.most < GIBIBYTE / 2
        trio.run(_assert_well, broker)
        assert broker.stop() == 0
        assert_quiet(broker.log)
        assert not any("could not be written" in line for line in broker.log)
    trio.run(_assert_kept, tmp_path)


async def _assert_well(broker: BrokerProcess) -> None:
    """It serves on, and its route is there."""
    async with trio.open_nursery() as nursery:
        name_server = await TcpChannelSource().open_channel(broker.namesrv, Dispatcher(), nursery)
        request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": GOOD_TOPIC})
        answer = await name_server.call(request, 30.0)
        assert answer.code == ResponseCode.SUCCESS
        assert [data.broker_name for data in decode_route(answer.body).queue_datas] == ["broker-a"]
        nursery.cancel_scope.cancel()


async def _assert_kept(path: Path) -> None:
    """What the well-behaved client did is there after a restart."""
    async with EmbeddedBroker(path) as broker, trio.open_nursery() as nursery:
        peer: Peer = await connect(broker, nursery)
        assert await peer.pull(GOOD_TOPIC, 0, group=GOOD_GROUP)
        assert broker.core.offsets.query(GOOD_GROUP, GOOD_TOPIC, 0) > 0
        assert broker.core.groups.find_existing(GOOD_GROUP) is not None
        nursery.cancel_scope.cancel()


async def test_the_generator_asks_every_request_and_changes_every_field() -> None:
    of_broker, of_name_server = await rows()
    for served in (of_broker, of_name_server):
        extremes = Extremes(served, seed=5)
        made = [extremes.make() for _ in range(12 * len(served))]
        assert {one.command.code for one in made} == {int(row.code) for row in served}
        seen = "".join(one.what for one in made)
        for row in served:
            assert row.header is None or f"{row.code.name} " in seen
        again = Extremes(served, seed=5)
        assert [again.make().what for _ in range(100)] == [one.what for one in made[:100]]
