"""Running a test's coroutine in asyncio, as strictly as trio runs one."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LIMIT = 60.0


def run(
    main: Callable[..., Coroutine[Any, Any, object]],
    *args: object,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run `main(*args)` in a loop of its own.

    Fails when it takes too long, when something is told to the loop's exception handler
    (lost exceptions, destroyed tasks), or when tasks or sockets are left behind.
    """
    told: list[dict[str, Any]] = []

    async def all_of_it() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        async with asyncio.timeout(LIMIT):
            await main(*args)
        gc.collect()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    with asyncio.Runner(debug=True, loop_factory=loop_factory) as runner:
        runner.run(all_of_it())
    gc.collect()
    assert not told
