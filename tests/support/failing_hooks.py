"""Hooks of applications that fail when a test wants it."""

from __future__ import annotations

from collections import Counter
from typing import Any


class HookError(Exception):
    """What hooks of applications raise."""


class Hooks:
    """Hooks of all kinds that fail, and one that refuses some sends."""

    def __init__(self) -> None:
        self.failing = False
        self.refusing = False
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def check_forbidden(self, _context: Any) -> None:
        if self.refusing:
            raise HookError("not now")

    def before_send(self, context: Any) -> None:
        self.begun[context.message_id] += 1
        self._fail()

    def after_send(self, context: Any) -> None:
        self.ended[context.message_id] += 1
        self._fail()

    def before_consume(self, _context: Any) -> None:
        self._fail()

    def after_consume(self, _context: Any) -> None:
        self._fail()

    def filter_messages(self, messages: list[Any], _queue: Any) -> list[Any]:
        self._fail()
        return messages

    def _fail(self) -> None:
        if self.failing:
            raise HookError("a hook that fails")
