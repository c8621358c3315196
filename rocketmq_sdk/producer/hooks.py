"""Calling the hooks of a producer around its sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.hooks import SendContext, run_hooks
from rocketmq_sdk.client.observers import Operation, OperationKind, installed, observed, tell
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.flags import SysFlag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from rocketmq_sdk.model.message import Message, ReceivedMessage
    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.handle import SendHandle


class SendHooks:
    """The hooks of one producer, and the contexts of its messages under way."""

    __slots__ = (
        "_after",
        "_batches",
        "_before",
        "_client_id",
        "_contexts",
        "_ended",
        "_forbidden",
        "_group",
        "_light",
        "any",
        "observers",
    )

    def __init__(self, group: str, config: ProducerConfig, client_id: str) -> None:
        self._group = group
        self._client_id = client_id
        self.observers = installed()
        """Who sees all that clients do."""
        hooks = (*config.send_hooks, *self.observers)
        self._forbidden = [hook.check_forbidden for hook in config.forbidden_hooks]
        self._before = [hook.before_send for hook in hooks]
        self._after = [hook.after_send for hook in hooks]
        self._ended = [observer.send_ended for observer in self.observers]
        self._light = bool(self.observers) and not config.send_hooks and not self._forbidden
        self._contexts: dict[SendHandle, SendContext] = {}
        self._batches: dict[object, list[Message]] = {}
        self.any = bool(self._forbidden or self._before)
        """Whether there are hooks; without them nobody needs to call."""

    def created(self, message: Message) -> Message:
        """A message that is to leave together with others, as observers want it."""
        for observer in self.observers:
            if more := observer.created(message):
                message = message.with_more(property_text(more))
        return message

    def joined(self, key: object, *messages: Message) -> None:
        """Messages are in a batch, which has the handle or the message ids `key`."""
        if self.observers:
            self._batches.setdefault(key, []).extend(messages)

    def ending(
        self, message: Message, message_id: str, outcome: int
    ) -> AbstractContextManager[Operation]:
        """Around telling a broker the outcome of a transaction."""
        commits = outcome == SysFlag.TRANSACTION_COMMIT
        kind = OperationKind.COMMIT if commits else OperationKind.ROLLBACK
        return self._observed(kind, message, message_id)

    def checking(self, message: ReceivedMessage) -> AbstractContextManager[Operation]:
        """Around a call of the checker."""
        return self._observed(OperationKind.CHECK, message, message.message_id)

    def _observed(
        self, kind: OperationKind, message: Message | ReceivedMessage, message_id: str
    ) -> AbstractContextManager[Operation]:
        operation = Operation(
            kind, self._group, message.topic, self._client_id, (message,), message_id
        )
        return observed(self.observers, operation)

    def before(self, handle: SendHandle) -> None:
        """A message is about to be sent. Raises what a forbidding hook raises."""
        is_batch, message = handle.is_batch, handle.message
        if self._light and not is_batch:
            for observer in self.observers:
                if observer.looks_at_send():
                    break
            else:
                return
        context = SendContext(
            self._group, message.topic, message, handle.message_id, self._client_id
        )
        if handle.sys_flag & SysFlag.TRANSACTION_PREPARED:
            context.is_half = True
        if is_batch:
            found = self._batches.pop(handle, None) or self._batches.pop(handle.message_id, None)
            context.batch = found or ()
        for check in self._forbidden:
            check(context)
        try:
            run_hooks(self._before, context)
            if context.properties and not is_batch:
                handle.tail += property_text(context.properties)
        except BaseException as error:
            context.error = error if isinstance(error, Exception) else None
            run_hooks(self._after, context)
            raise
        self._contexts[handle] = context

    def after(self, handle: SendHandle) -> None:
        """A message is finished."""
        context = self._contexts.pop(handle, None) if self._contexts else None
        if context is None:
            if self._light:
                tell(self._ended, handle.message.topic, handle.error)
        else:
            target = handle.target
            context.address = None if target is None else target.address
            context.result, context.error = handle.result, handle.error
            run_hooks(self._after, context)


def property_text(properties: Mapping[str, str]) -> str:
    """Properties as a message has them. Raises `ConfigurationError`."""
    for name, value in properties.items():
        if (
            not (isinstance(name, str) and isinstance(value, str) and name and value)
            or "\x01" in name + value
            or "\x02" in name + value
        ):
            raise ConfigurationError(
                f"a hook gave the property {name!r:.200}: {value!r:.200}; give texts that are not "
                "empty and have no \\x01 or \\x02"
            )
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
