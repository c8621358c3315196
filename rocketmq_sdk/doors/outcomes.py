"""How blocks and calls end, as users outside of trio are told."""

from __future__ import annotations

import trio

from rocketmq_sdk.errors import ClosedError
from rocketmq_sdk.lifecycle import unwrap_single


class LeftByErrorError(Exception):
    """The block was left by an exception, which is the caller's own."""


def is_reason(failure: BaseException, reason: Exception | None) -> bool:
    """Whether a failure is the reason why a block was left.

    Nurseries take the only member out of a group, also out of a group of the user's.
    """
    known: BaseException | None = reason
    while failure is not known:
        if not isinstance(known, BaseExceptionGroup) or len(known.exceptions) != 1:
            return False
        known = known.exceptions[0]
    return True


def told_outside(error: BaseException, ended: str) -> BaseException:
    """What a caller outside of trio is told of an error.

    A cancellation that is not its own ends everything; then `ended` says so.
    """
    if isinstance(error, BaseExceptionGroup):
        rest = error.split(trio.Cancelled)[1]
        if rest is error:
            return error
        if rest is not None:
            return unwrap_single(rest)
    elif not isinstance(error, trio.Cancelled):
        return error
    return ClosedError(ended)
