"""Fixtures for tests of applications that use RocketMQ.

The plugin imports nothing until a test asks for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.testing.broker import TestBroker


@pytest.fixture
async def rocketmq_broker() -> AsyncIterator[TestBroker]:
    """A new in-memory name server and broker for one test, isolated from all others.

    An async fixture of pytest-trio: use it in `async def` tests and pass it as
    `namesrv=` to producers and consumers. With pytest-trio's `autojump_clock` named by
    the test, delays and retries take no time.
    """
    from rocketmq_sdk.testing.broker import TestBroker

    async with TestBroker() as broker:
        yield broker
