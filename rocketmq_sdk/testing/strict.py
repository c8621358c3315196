"""Errors of listeners that fail the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.failures import watchers
from rocketmq_sdk.testing.failures import ListenerRaisedError

if TYPE_CHECKING:
    from types import TracebackType


class ListenerErrors:
    """Collects what listeners of this process raise, between `with` and its end.

    Whichever door the consumer has, and whatever the program lets be logged.
    """

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self._texts: list[str] = []

    def _note(self, what: str, error: Exception) -> None:
        self.errors.append(error)
        self._texts.append(f"{what}: {type(error).__name__}: {error}")

    def clear(self) -> None:
        """Forget what was collected."""
        self.errors.clear()
        self._texts.clear()

    def __enter__(self) -> ListenerErrors:
        watchers.append(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        watchers.remove(self._note)

    def check(self) -> None:
        """Raise `ListenerRaisedError` from the first error, if there was one."""
        if self.errors:
            raise ListenerRaisedError("\n".join(self._texts)) from self.errors[0]
