"""Messages that wait for something slow: a route, or a connection.

One task serves all that wait for the same thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.clock import LAST_CHANCE, STOOD_STILL
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


def _deadline(handle: SendHandle) -> float:
    return handle.deadline


def _limit(handle: SendHandle) -> float:
    return handle.limit


class WaitingRoom:
    """Runs `action(key)` once for all handles that enter under a key.

    Then `ready` is called for each, in the order of entering, or `failed` with the
    error.

    A handle whose own time runs out before is handed to `expired`: its `deadline`, or
    with `limited` the `limit` of its attempt.
    """

    __slots__ = ("_action", "_end_of", "_expired", "_failed", "_nursery", "_ready", "waiting")

    def __init__(
        self,
        nursery: trio.Nursery,
        action: Callable[[str], Awaitable[object]],
        *,
        ready: Callable[[SendHandle], None],
        failed: Callable[[SendHandle, RocketMQError], None],
        expired: Callable[[SendHandle], None],
        limited: bool = False,
    ) -> None:
        self._nursery = nursery
        self._end_of = _limit if limited else _deadline
        self._action = action
        self._ready = ready
        self._failed = failed
        self._expired = expired
        self.waiting: dict[str, _Waiting] = {}
        """Those who wait, by key: who comes later must queue behind them."""

    def enter(self, key: str, handle: SendHandle) -> None:
        """Let a handle wait for a key."""
        waiting = self.waiting.get(key)
        if waiting is None:
            waiting = self.waiting[key] = _Waiting()
            self._nursery.start_soon(self._serve, key, waiting)
        waiting.handles.append(handle)
        end = self._end_of(handle)
        if waiting.scope is not None and end < waiting.scope.deadline:
            waiting.scope.deadline = end

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
            del self.waiting[key]
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
        end_of = self._end_of
        while True:
            first = min(map(end_of, waiting.handles), default=float("inf"))
            with trio.CancelScope(deadline=first) as waiting.scope:
                await trio.sleep_forever()
            if trio.current_time() - first > STOOD_STILL:
                # The loop was blocked. What is waited for may be there.
                await trio.sleep(LAST_CHANCE)
            # Each look goes through all that wait, which may be many.
            await trio.sleep_until(rested)
            now = trio.current_time()
            rested = now + REST
            late = [handle for handle in waiting.handles if handle.done or end_of(handle) <= now]
            waiting.handles[:] = [
                handle for handle in waiting.handles if not handle.done and end_of(handle) > now
            ]
            for handle in late:
                if not handle.done:
                    self._expired(handle)
            if not waiting.handles:
                serving.cancel()
                return
