"""Calls that are made again: which errors, for how long, and what is said at the
end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import BusyError, ConfigurationError, ConnectError, TopicNotFoundError
from rocketmq_sdk.spark.cluster.retry import UnreachableError, persistently

if TYPE_CHECKING:
    from trio.testing import MockClock


class Calls:
    """Fails with given errors, one after the other, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = 0
        self.refreshed = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def refresh(self) -> None:
        self.refreshed += 1
        raise ConnectError("no name server either")


async def test_errors_that_may_pass_are_tried_again_and_routes_are_asked_for_anew(
    autojump_clock: MockClock,
) -> None:
    calls = Calls(ConnectError("refused"), BusyError(2, "busy"), ConnectError("refused"))
    assert await persistently("asking", 60, calls, refresh=calls.refresh) == "done"
    assert (calls.made, calls.refreshed) == (4, 2)


async def test_errors_that_stay_are_raised_at_once(autojump_clock: MockClock) -> None:
    calls = Calls(ConfigurationError("wrong"))
    with pytest.raises(ConfigurationError):
        await persistently("asking", 60, calls)
    calls = Calls(TopicNotFoundError(17, "gone"))
    with pytest.raises(TopicNotFoundError):
        await persistently("asking", 60, calls, final=(TopicNotFoundError,))
    assert calls.made == 1


async def test_the_end_names_what_was_asked_and_the_last_error(autojump_clock: MockClock) -> None:
    calls = Calls(*[ConnectError("refused by host:1")] * 1000)
    begin = trio.current_time()
    with pytest.raises(
        UnreachableError,
        match=r"asking broker b did not succeed within retryTimeout=30s \(\d+ tries\): refused by "
        r"host:1",
    ) as caught:
        await persistently("asking broker b", 30, calls)
    assert 25 < trio.current_time() - begin <= 30
    assert isinstance(caught.value.__cause__, ConnectError)
