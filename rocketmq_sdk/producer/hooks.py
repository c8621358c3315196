"""Calling the hooks of a producer around its sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.hooks import SendContext, run_hooks

if TYPE_CHECKING:
    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.handle import SendHandle


class SendHooks:
    """The hooks of one producer, and the contexts of its messages under way."""

    __slots__ = ("_after", "_before", "_contexts", "_forbidden", "_group", "any")

    def __init__(self, group: str, config: ProducerConfig) -> None:
        self._group = group
        self._forbidden = [hook.check_forbidden for hook in config.forbidden_hooks]
        self._before = [hook.before_send for hook in config.send_hooks]
        self._after = [hook.after_send for hook in config.send_hooks]
        self._contexts: dict[SendHandle, SendContext] = {}
        self.any = bool(self._forbidden or self._before)
        """Whether there are hooks; without them nobody needs to call."""

    def before(self, handle: SendHandle) -> None:
        """A message is about to be sent. Raises what a forbidding hook raises."""
        context = SendContext(self._group, handle.message.topic, handle.message, handle.message_id)
        for check in self._forbidden:
            check(context)
        self._contexts[handle] = context
        run_hooks(self._before, context)

    def after(self, handle: SendHandle) -> None:
        """A message is finished."""
        context = self._contexts.pop(handle, None)
        if context is not None:
            context.result, context.error = handle.result, handle.error
            run_hooks(self._after, context)
