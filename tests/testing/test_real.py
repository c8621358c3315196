"""What a test sees of a real cluster in the place of its broker."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ConfigurationError, ConsumeFrom, PushConsumer, ReceivedMessage
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.testing import BlockingBroker, BrokerThread, WaitTimeoutError
from rocketmq_sdk.testing.real import RealBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real_time


@pytest.fixture
def real() -> Iterator[RealBroker]:
    with BrokerThread() as thread:
        yield RealBroker(BlockingBroker(thread).namesrv_address)


async def test_a_seed_leaves_what_is_there_as_it_is(real: RealBroker) -> None:
    async with real.admin() as admin:
        await admin.topics.create("orders", queues=8)
        await admin.groups.create(SubscriptionGroupConfig("billing", retry_max_times=3))
        for _ in range(2):
            await real.seed(
                topics=["orders", "new"], groups=["billing"], offsets={"billing": {"orders": 0}}
            )
        assert len(await admin.topics.offsets("orders")) == 8
        assert len(await admin.topics.offsets("new")) == 4
        assert (await admin.groups.config("billing")).retry_max_times == 3


async def test_a_wait_for_the_lag_waits_for_the_group(real: RealBroker) -> None:
    await real.seed(topics=["orders"], groups=["billing"])
    for topic in (None, "orders"):
        with pytest.raises(WaitTimeoutError, match="it has no members and no offsets"):
            await real.wait.lag("billing", topic, within=0.5)


async def test_the_lag_of_a_member_counts_before_its_first_commit(real: RealBroker) -> None:
    await real.seed(messages={"orders": ["1", "2", "3"]})
    go_on = trio.Event()

    async def listener(_message: ReceivedMessage) -> None:
        await go_on.wait()

    async with PushConsumer(
        "billing",
        namesrv=real.namesrv_address,
        subscriptions={"orders": "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        persist_consumer_offset_interval=0.1,
    ):
        for topic in (None, "orders"):
            with pytest.raises(WaitTimeoutError, match="it is 3 behind"):
                await real.wait.lag("billing", topic, within=1)
        go_on.set()
        await real.wait.lag("billing")


async def test_a_wait_refuses_seconds_that_are_none(real: RealBroker) -> None:
    for within in (-1.0, math.nan):
        with pytest.raises(ConfigurationError, match="give seconds"):
            await real.wait.stored("orders", within=within)
