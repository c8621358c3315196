"""Calling the hooks of a producer around its sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

from rocketmq_sdk.client.hooks import SendContext, run_hooks
from rocketmq_sdk.client.observers import Operation, OperationKind, installed, observed, tell
from rocketmq_sdk.producer.departures import Departures, has_room, property_text
from rocketmq_sdk.protocol.flags import SysFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.departures import Joined
    from rocketmq_sdk.producer.handle import SendHandle

_Accumulated = TypeVar("_Accumulated")


class SendHooks:
    """The hooks of one producer, and what they know of its messages under way.

    A message *joins* where observers see it with others that leave together
    (`Departures`); whoever else looks at it has its `SendContext`.
    """

    __slots__ = (
        "_after",
        "_batches",
        "_before",
        "_client_id",
        "_contexts",
        "_ended",
        "_forbidden",
        "_group",
        "_is_light",
        "_joins_only",
        "_looks",
        "_singly",
        "any",
        "departures",
        "observers",
    )

    def __init__(self, group: str, config: ProducerConfig, client_id: str) -> None:
        self._group = group
        self._client_id = client_id
        self.observers = installed()
        """Who sees all that clients do."""
        self._singly = [observer for observer in self.observers if not observer.joins]
        joining = [observer for observer in self.observers if observer.joins]
        self.departures = [Departures(observer, group, client_id) for observer in joining]
        self._forbidden = [hook.check_forbidden for hook in config.forbidden_hooks]
        # By whether a message joins.
        hooks = {
            False: (*config.send_hooks, *self.observers),
            True: (*config.send_hooks, *self._singly),
        }
        self._before = {joins: [hook.before_send for hook in hooks[joins]] for joins in hooks}
        self._after = {joins: [hook.after_send for hook in hooks[joins]] for joins in hooks}
        self._looks = {
            False: [observer.looks_at_send for observer in self.observers],
            True: [observer.looks_at_send for observer in self._singly],
        }
        self._ended = {
            False: [observer.sends_ended for observer in self.observers],
            True: [observer.sends_ended for observer in joining],
        }
        self._is_light = bool(self.observers) and not config.send_hooks and not self._forbidden
        self._joins_only = self._is_light and not self._singly
        self._contexts: dict[SendHandle, tuple[SendContext, bool]] = {}
        self._batches: dict[object, list[Message]] = {}
        self.any = bool(self._forbidden or self._before[False])
        """Whether there are hooks; without them nobody needs to call."""

    # --- batches

    def join(self, messages: Sequence[Message], encode: Callable[[Sequence[Message]], str]) -> None:
        """Messages become a batch by `encode`, which gives their unique ids.

        Raises what it raises, and `ConfigurationError`.
        """
        begun = [(each, each.batch(messages)) for each in self.departures if messages]
        for _, departure in begun:
            messages = [self._with_text(message, departure.text) for message in messages]
        messages = [self._created(message) for message in messages]
        try:
            ids = encode(messages)
        except BaseException as error:
            for each, departure in begun:
                each.count(departure, departure, messages)
                each.forget(departure, error)
            raise
        for each, departure in begun:
            each.count(departure, ids, messages)
        self._batches[ids] = list(messages)

    def gather(
        self,
        message: Message,
        add: Callable[[Message, Callable[[SendHandle], None]], _Accumulated],
    ) -> _Accumulated:
        """A message goes into a batch by `add`, which tells its handle.

        Raises what that raises.
        """
        begun: list[tuple[Departures, Joined]] = []
        for each in self.departures:
            departure = each.gather(message)
            begun.append((each, departure))
            message = self._with_text(message, departure.text)
        created = self._created(message)

        def added(batch: SendHandle) -> None:
            for each, departure in begun:
                each.count(departure, batch, (created,))
            if self._singly:
                self._batches.setdefault(batch, []).append(created)

        failure: BaseException | None = None
        try:
            return add(created, added)
        except BaseException as error:
            failure = error
            raise
        finally:
            for each, departure in begun:
                each.gathered(departure, failure)

    def _with_text(self, message: Message, text: str) -> Message:
        """A message with the context of its departure, unless it has one of its own."""
        if not text or not has_room(message.property_text()):
            return message
        if message.properties and any(each.brings_context(message) for each in self.departures):
            return message
        return message.with_more(text)

    def _created(self, message: Message) -> Message:
        """A message that is to leave together with others, as observers want it."""
        for observer in self._singly:
            if more := observer.created(message):
                message = message.with_more(property_text(more))
        return message

    def forget(self, ids: str, error: BaseException) -> None:
        """A batch with these unique ids is not sent."""
        self._batches.pop(ids, None)
        for each in self.departures:
            each.forget(ids, error)

    # --- transactions

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

    # --- requests

    def before(self, handle: SendHandle, *, gathered: bool = False) -> None:
        """A message is about to be sent, or a batch, which has perhaps gathered.

        Raises what a forbidding hook raises.
        """
        message = handle.message
        if self._joins_only and message.is_plain and not handle.sys_flag and not handle.is_batch:
            for each in self.departures:
                each.join(handle)
            return
        is_batch = handle.is_batch
        joins = bool(self.departures) and self._can_join(handle, gathered=gathered)
        if joins and self._joins_only:
            self._join(handle)
            return
        if self._is_light and not is_batch:
            now = handle.started or trio.current_time()  # what is one-way has no time
            for looks in self._looks[joins]:
                if looks(now):
                    break
            else:
                if joins:
                    self._join(handle)
                return
        context = self._context(handle)
        for check in self._forbidden:
            check(context)
        try:
            if joins:
                self._join(handle)
            run_hooks(self._before[joins], context)
            if context.properties and not is_batch:
                handle.tail += property_text(context.properties)
        except BaseException as error:
            context.error = error if isinstance(error, Exception) else None
            context.ended = trio.current_time()
            run_hooks(self._after[joins], context)
            for each in self.departures:
                each.ended((handle,), error)
            raise
        self._contexts[handle] = context, joins

    def _can_join(self, handle: SendHandle, *, gathered: bool) -> bool:
        """Whether a message may be seen with others: its context is not its own."""
        if handle.is_batch:
            return gathered or handle.message_id in self._batches
        message = handle.message
        return not (
            handle.sys_flag & SysFlag.TRANSACTION_PREPARED
            or (
                not message.is_plain
                and message.properties
                and any(each.brings_context(message) for each in self.departures)
            )
        )

    def _join(self, handle: SendHandle) -> None:
        for each in self.departures:
            if handle.is_batch:
                each.leaves(handle)
            else:
                each.join(handle)

    def _context(self, handle: SendHandle) -> SendContext:
        message = handle.message
        context = SendContext(
            self._group, message.topic, message, handle.message_id, self._client_id
        )
        context.started = handle.started or trio.current_time()
        if handle.sys_flag & SysFlag.TRANSACTION_PREPARED:
            context.is_half = True
        if handle.is_batch:
            found = self._batches.pop(handle, None) or self._batches.get(handle.message_id)
            context.batch = found or ()
        return context

    def after(self, handles: Sequence[SendHandle]) -> None:
        """Messages are finished.

        Raises at the end what a hook has raised that is no `Exception`.
        """
        for each in self.departures:
            each.ended(handles)
        contexts, batches, light = self._contexts, self._batches, self._is_light
        failure: BaseException | None = None
        stored: dict[str, int] = {}
        now = 0.0
        alone = not contexts and light
        for handle in handles:
            if alone and handle.error is None and not handle.is_batch:
                topic = handle.message.topic
                stored[topic] = stored.get(topic, 0) + 1
                continue
            number = 1
            if handle.is_batch:
                batches.pop(handle, None)
                number = len(batches.pop(handle.message_id, ())) or handle.count
            found = contexts.pop(handle, None) if contexts else None
            joined = False
            if found is not None:
                context, joined = found
                target = handle.target
                context.address = None if target is None else target.address
                context.result, context.error = handle.result, handle.error
                context.ended = now = now or trio.current_time()
                try:
                    run_hooks(self._after[joined], context)
                except BaseException as error:  # noqa: BLE001 - the others have ended too
                    failure = error
                if not joined:
                    continue
            elif not light:
                continue
            if handle.error is None and not joined:
                topic = handle.message.topic
                stored[topic] = stored.get(topic, 0) + number
            elif number:
                tell(self._ended[joined], handle.message.topic, number, handle.error)
        for topic, number in stored.items():
            tell(self._ended[False], topic, number, None)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """The turn of the loop is over: what is sent from now on leaves later."""
        for each in self.departures:
            each.close()
