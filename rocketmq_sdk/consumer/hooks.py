"""Consume hooks around a listener."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rocketmq_sdk.client.hooks import ConsumeContext, ConsumeHook, run_hooks

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.workers import AsyncListener


def hooked(listener: "AsyncListener", *, group: str, hooks: Sequence[ConsumeHook]) -> "AsyncListener":
    """The listener with hooks around each call. Its errors and its cancellation pass through."""
    before, after = [hook.before_consume for hook in hooks], [hook.after_consume for hook in hooks]

    async def call(argument: Any) -> object:
        context = ConsumeContext(group, tuple(argument) if isinstance(argument, list) else (argument,))
        run_hooks(before, context)
        context.success = False
        try:
            answer = await listener(argument)
            context.success = True
            return answer
        except BaseException as error:
            context.error = error
            raise
        finally:
            run_hooks(after, context)

    return call
