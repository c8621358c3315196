"""What access control decided: counters, and records in the log.

Each refusal is a record at INFO of the logger `rocketmq_sdk.audit`, each permission one
at DEBUG; the fields stand in the record as attributes too (`audit_user`,
`audit_request` and so on). No record holds a secret or a signature. A connection whose
requests are refused over and over is recorded once a second, with how many refusals
were left out.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.codes import request_name

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.channel import Channel

logger = logging.getLogger("rocketmq_sdk.audit")
_PAUSE: Final = 1.0
_NAME_SHOWN: Final = 100
_SESSIONS: Final = "audit"


class Audit:
    """The counters of one broker, and its records."""

    __slots__ = ("counters",)

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(
            authenticated=0, notAuthenticated=0, allowed=0, denied=0
        )
        """Requests by what was decided, and refusals by their kind of reason."""

    def refused(
        self, channel: Channel, user: str | None, code: int, stage: str, reason: str
    ) -> None:
        """A request was refused with a reason that holds no secret."""
        self.counters[stage] += 1
        now, key = trio.current_time(), stage
        last = channel.attributes.get(_SESSIONS)
        left_out = 0
        if isinstance(last, tuple) and last[0] == key and now - last[1] < _PAUSE:
            channel.attributes[_SESSIONS] = (key, last[1], last[2] + 1)
            return
        if isinstance(last, tuple):
            left_out = last[2]
        channel.attributes[_SESSIONS] = (key, now, 0)
        self._record(logging.INFO, channel, user, code, stage, reason, left_out)

    @property
    def tells_all(self) -> bool:
        """Whether requests that are served are recorded too."""
        return logger.isEnabledFor(logging.DEBUG)

    def passed(self, channel: Channel, user: str | None, code: int) -> None:
        """A request is served."""
        if logger.isEnabledFor(logging.DEBUG):
            self._record(logging.DEBUG, channel, user, code, "allowed", "", 0)

    @staticmethod
    def _record(
        level: int,
        channel: Channel,
        user: str | None,
        code: int,
        stage: str,
        reason: str,
        left_out: int,
    ) -> None:
        shown = None if user is None else user[:_NAME_SHOWN]
        logger.log(
            level,
            "%s: %s of the user %r from %s%s%s",
            stage,
            request_name(code),
            shown,
            channel.remote_address,
            f": {reason[:500]!r}" if reason else "",
            f" ({left_out} refusals before were left out)" if left_out else "",
            extra={
                "audit_stage": stage,
                "audit_user": shown,
                "audit_request": int(code),
                "audit_source": channel.remote_address,
                "audit_reason": reason,
                "audit_left_out": left_out,
            },
        )
