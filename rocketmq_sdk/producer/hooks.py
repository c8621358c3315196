"""Calling the hooks of a producer around its sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.client.hooks import SendContext, run_hooks
from rocketmq_sdk.client.observers import Operation, OperationKind, installed, observed, tell
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.flags import SysFlag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
        "_looks",
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
        self._looks = [observer.looks_at_send for observer in self.observers]
        self._ended = [observer.sends_ended for observer in self.observers]
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
        self, message: Message, message_id: str, outcome: int, address: str | None
    ) -> AbstractContextManager[Operation]:
        """Around telling the broker at `address` the outcome of a transaction."""
        commits = outcome == SysFlag.TRANSACTION_COMMIT
        kind = OperationKind.COMMIT if commits else OperationKind.ROLLBACK
        return self._observed(kind, message, message_id, address)

    def checking(
        self, message: ReceivedMessage, address: str | None
    ) -> AbstractContextManager[Operation]:
        """Around a call of the checker about a message of the broker at `address`."""
        return self._observed(OperationKind.CHECK, message, message.message_id, address)

    def _observed(
        self,
        kind: OperationKind,
        message: Message | ReceivedMessage,
        message_id: str,
        address: str | None,
    ) -> AbstractContextManager[Operation]:
        operation = Operation(
            kind, self._group, message.topic, self._client_id, (message,), message_id, address
        )
        return observed(self.observers, operation)

    def before(self, handle: SendHandle) -> None:
        """A message is about to be sent. Raises what a forbidding hook raises."""
        is_batch, message = handle.is_batch, handle.message
        if self._light and not is_batch:
            now = handle.started or trio.current_time()  # what is one-way has no time
            for looks in self._looks:
                if looks(now):
                    break
            else:
                return
        context = SendContext(
            self._group, message.topic, message, handle.message_id, self._client_id
        )
        context.started = handle.started or trio.current_time()
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
            context.ended = trio.current_time()
            run_hooks(self._after, context)
            raise
        self._contexts[handle] = context

    def after(self, handles: Sequence[SendHandle]) -> None:
        """Messages are finished.

        Raises at the end what a hook has raised that is no `Exception`.
        """
        contexts, light = self._contexts, self._light
        failure: BaseException | None = None
        stored: dict[str, int] = {}
        now = 0.0
        for handle in handles:
            context = contexts.pop(handle, None) if contexts else None
            if context is not None:
                target = handle.target
                context.address = None if target is None else target.address
                context.result, context.error = handle.result, handle.error
                context.ended = now = now or trio.current_time()
                try:
                    run_hooks(self._after, context)
                except BaseException as error:  # noqa: BLE001 - the others have ended too
                    failure = error
            elif not light:
                continue
            elif handle.error is None:
                topic = handle.message.topic
                stored[topic] = stored.get(topic, 0) + 1
            else:
                tell(self._ended, handle.message.topic, 1, handle.error)
        for topic, number in stored.items():
            tell(self._ended, topic, number, None)
        if failure is not None:
            raise failure


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
