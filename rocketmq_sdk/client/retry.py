"""What follows from the outcome of a send attempt: the synchronous send as a table.

`DefaultMQProducerImpl.sendDefaultImpl` of Apache RocketMQ 5.4.0. There is no pause
between attempts; all attempts share one time budget, so that an attempt that times out
is normally the last one.

| outcome                    | next                       | isolated | reachable     |
|----------------------------|----------------------------|----------|---------------|
| stored, SEND_OK            | done                       | no       | yes           |
| stored, another status     | next attempt if another    | no       | yes           |
|                            | broker is wanted, else     |          |               |
|                            | done                       |          |               |
| no route, no such broker   | next attempt               | no       | yes           |
| not connected, cut off, no | next attempt               | yes      | no with the   |
| answer, too much in flight |                            |          | detector      |
| refused, worth a retry     | next attempt               | yes      | no            |
| refused with another code  | done: the earlier result   | yes      | no            |
|                            | that was stored, else the  |          |               |
|                            | error                      |          |               |
| anything else              | done: the error            | -        | -             |

When no attempt is left the earlier result that was stored is returned, else the last
error is raised.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import (
    RETRYABLE_CODES,
    BrokerError,
    ConnectError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    TooManyRequestsError,
)
from rocketmq_sdk.model.enums import SendStatus

SEND_STATUS: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
"""Answers that say that the message is stored, and how well."""

DEFAULT_RETRY_CODES: Final = RETRYABLE_CODES | {ResponseCode.NO_PERMISSION}
"""Answers after which another broker may take the message.

Those of `DefaultMQProducer.retryResponseCodes`, and 215 (flow control), which a broker
answers when it is busy. After NO_PERMISSION another broker is tried, but when all have
refused it is no use to try again.
"""


class Next(Enum):
    """What to do after an attempt."""

    DONE = auto()
    """Stop with this result, or with this error unless an earlier attempt was stored.
    """
    RETRY = auto()
    """Try again if an attempt and time are left."""


class RetryJudgement(NamedTuple):
    """What follows from one outcome.

    `isolated` and `reachable` are what fault avoidance notes about the broker;
    `isolated` None means nothing.
    """

    step: Next
    isolated: bool | None = None
    reachable: bool = True


_STORED: Final = RetryJudgement(Next.DONE, isolated=False)
_STORED_ELSEWHERE: Final = RetryJudgement(Next.RETRY, isolated=False)
_NO_WAY: Final = RetryJudgement(Next.RETRY, isolated=False)
_TRANSPORT: Final = RetryJudgement(Next.RETRY, isolated=True)
_TRANSPORT_SEEN: Final = RetryJudgement(Next.RETRY, isolated=True, reachable=False)
_REFUSED_FOR_NOW: Final = RetryJudgement(Next.RETRY, isolated=True, reachable=False)
_REFUSED: Final = RetryJudgement(Next.DONE, isolated=True, reachable=False)
_OTHER: Final = RetryJudgement(Next.DONE)


def judge_status(status: SendStatus, *, retry_when_not_store_ok: bool) -> RetryJudgement:
    """The row of the table for a message that a broker has stored."""
    if status is SendStatus.SEND_OK or not retry_when_not_store_ok:
        return _STORED
    return _STORED_ELSEWHERE


def judge_error(
    error: RocketMQError,
    *,
    retry_codes: frozenset[int] = DEFAULT_RETRY_CODES,
    detector: bool = False,
) -> RetryJudgement:
    """The row of the table for an attempt that failed."""
    if isinstance(error, BrokerError):
        return _REFUSED_FOR_NOW if error.code in retry_codes else _REFUSED
    if isinstance(error, RouteError):
        return _NO_WAY
    if isinstance(error, ConnectError | RequestTimeoutError | TooManyRequestsError):
        return _TRANSPORT_SEEN if detector else _TRANSPORT
    return _OTHER
