"""Messages that wait for something slow: a route, or a connection.

One task serves all that wait for the same thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.producer.handle import SendHandle


REST: Final = 0.01
"""Seconds between two looks for expired messages; they end at most so much late."""


class _Waiting:
    """What waits for one key."""

    __slots__ = ("handles", "scope")

    def __init__(self) -> None:
        self.handles: list[SendHandle] = []
        self.scope: trio.CancelScope | None = None

    def next_deadline(self) -> float:
        return min((handle.deadline for handle in self.handles), default=float("inf"))


class WaitingRoom:
    """Runs `action(key)` once for all handles that enter under a key.

    Then `ready` is called for each, in the order of entering, or `failed` with the
    error.

    A handle whose own time runs out before is handed to `expired`.
    """

    __slots__ = ("_action", "_expired", "_failed", "_nursery", "_ready", "_waiting")

    def __init__(
        self,
        nursery: trio.Nursery,
        action: Callable[[str], Awaitable[object]],
        *,
        ready: Callable[[SendHandle], None],
        failed: Callable[[SendHandle, RocketMQError], None],
        expired: Callable[[SendHandle], None],
    ) -> None:
        self._nursery = nursery
        self._action = action
        self._ready = ready
        self._failed = failed
        self._expired = expired
        self._waiting: dict[str, _Waiting] = {}

    def enter(self, key: str, handle: SendHandle) -> None:
        """Let a handle wait for a key."""
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting()
            self._nursery.start_soon(self._serve, key, waiting)
        waiting.handles.append(handle)
        if waiting.scope is not None and handle.deadline < waiting.scope.deadline:
            waiting.scope.deadline = handle.deadline

    def is_waiting(self, key: str) -> bool:
        """Whether others wait for a key: who comes later must queue behind them."""
        return key in self._waiting

    async def _serve(self, key: str, waiting: _Waiting) -> None:
        error: RocketMQError | None = None
        ended = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire, waiting, nursery.cancel_scope)
                try:
                    await self._action(key)
                except RocketMQError as failure:
                    error = failure
                ended = True
                nursery.cancel_scope.cancel()
        finally:
            del self._waiting[key]
        for handle in waiting.handles:
            if handle.done:
                continue
            if not ended:  # it came when all others had given up and the action was being cancelled
                self.enter(key, handle)
            elif error is None:
                self._ready(handle)
            else:
                self._failed(handle, error)

    async def _expire(self, waiting: _Waiting, serving: trio.CancelScope) -> None:
        rested = float("-inf")
        while True:
            with trio.CancelScope(deadline=waiting.next_deadline()) as waiting.scope:
                await trio.sleep_forever()
            await trio.sleep_until(
                rested
            )  # each look goes through all that wait, which may be many
            now = trio.current_time()
            rested = now + REST
            late = [handle for handle in waiting.handles if handle.done or handle.deadline <= now]
            waiting.handles[:] = [
                handle for handle in waiting.handles if not handle.done and handle.deadline > now
            ]
            for handle in late:
                if not handle.done:
                    self._expired(handle)
            if not waiting.handles:
                serving.cancel()
                return
