"""A loop that was blocked for longer than calls may take: answers are read first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import SendTimeout
from support.peers import SILENT, open_cluster
from support.producing import Running, message, slow

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize("takes", [0, 0.04])
@pytest.mark.parametrize("blocked", [3.5, 60.0])
async def test_answers_in_the_socket_count(
    autojump_clock: MockClock, blocked: float, takes: float
) -> None:
    """So do those to requests that could not leave before, if they come soon."""
    async with open_cluster() as cluster, Running(cluster) as producer:
        for _ in range(8):  # both brokers are connected
            await producer.send(message())
        for broker in cluster.brokers:
            broker.script = [slow(broker, takes)] * 60
        for _ in range(20):
            handles = [producer.submit(message()) for _ in range(3)]
            autojump_clock.jump(blocked)  # as when a task computes and does not yield
            for handle in handles:
                await handle
        assert producer.in_flight == 0


async def test_what_has_no_answer_is_overdue_all_the_same(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.send(message())
        cluster.brokers[0].script = [SILENT, 0]
        silent, answered = producer.submit(message()), producer.submit(message())
        await trio.sleep(0.001)
        autojump_clock.jump(10)
        await answered
        with pytest.raises(SendTimeout):
            await silent
