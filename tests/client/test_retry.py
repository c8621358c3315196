"""The table of the send loop, row by row."""

from __future__ import annotations

import pytest

from rocketmq_sdk.client.retry import (
    DEFAULT_RETRY_CODES,
    SEND_STATUS,
    Next,
    judge_error,
    judge_status,
)
from rocketmq_sdk.errors import (
    ClosedError,
    ConnectError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    SendTimeout,
    TooManyRequestsError,
    broker_error,
)
from rocketmq_sdk.model.enums import SendStatus


def test_codes() -> None:
    assert frozenset({17, 14, 1, 2, 16, 204, 205, 1500, 215}) == DEFAULT_RETRY_CODES
    assert {code: status.name for code, status in SEND_STATUS.items()} == {
        0: "SEND_OK",
        10: "FLUSH_DISK_TIMEOUT",
        11: "SLAVE_NOT_AVAILABLE",
        12: "FLUSH_SLAVE_TIMEOUT",
    }


@pytest.mark.parametrize("status", list(SendStatus))
@pytest.mark.parametrize("other_broker", [True, False])
def test_stored(status: SendStatus, other_broker: bool) -> None:
    judgement = judge_status(status, retry_when_not_store_ok=other_broker)
    assert judgement.step is (
        Next.RETRY if other_broker and status is not SendStatus.SEND_OK else Next.DONE
    )
    assert (judgement.isolated, judgement.reachable) == (False, True)


@pytest.mark.parametrize(
    "error",
    [ConnectError("x"), RequestTimeoutError("x"), SendTimeout("x"), TooManyRequestsError("x")],
)
def test_transport(error: RocketMQError) -> None:
    assert judge_error(error) == (Next.RETRY, True, True)
    assert judge_error(error, detector=True) == (Next.RETRY, True, False)


def test_refusals() -> None:
    assert judge_error(broker_error(14)) == (Next.RETRY, True, False)
    assert judge_error(broker_error(17)) == (Next.RETRY, True, False)
    assert judge_error(broker_error(13)) == (Next.DONE, True, False)
    assert judge_error(broker_error(13), retry_codes=frozenset({13})).step is Next.RETRY


def test_no_route_is_tried_again_and_anything_else_is_not() -> None:
    assert judge_error(RouteError("x")) == (Next.RETRY, False, True)
    assert judge_error(ClosedError("x")).step is Next.DONE
    assert judge_error(ClosedError("x")).isolated is None
