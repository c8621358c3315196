"""Errors of listeners that fail the test."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.testing.failures import ListenerRaisedError

if TYPE_CHECKING:
    from types import TracebackType

_LOGGER: Final = logging.getLogger("rocketmq_sdk.consumer")


class ListenerErrors(logging.Handler):
    """Collects what listeners of this process raise, between `with` and its end.

    A consumer tells of each failure in the log, with the exception as `error` of the
    record; that is where they come from, whichever door the consumer has.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: list[BaseException] = []
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record that tells of a listener."""
        error = getattr(record, "error", None)
        if isinstance(error, BaseException) and "listener failed" in record.getMessage():
            self.errors.append(error)
            self._texts.append(f"{record.getMessage()}: {type(error).__name__}: {error}")

    def clear(self) -> None:
        """Forget what was collected."""
        self.errors.clear()
        self._texts.clear()

    def __enter__(self) -> ListenerErrors:
        _LOGGER.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _LOGGER.removeHandler(self)

    def check(self) -> None:
        """Raise `ListenerRaisedError` from the first error, if there was one."""
        if self.errors:
            raise ListenerRaisedError("\n".join(self._texts)) from self.errors[0]
