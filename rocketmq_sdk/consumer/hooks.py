"""Consume hooks around a listener, and filter hooks after pulls and pops."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from rocketmq_sdk.client.hooks import ConsumeContext, ConsumeHook, FilterHook, run_hooks
from rocketmq_sdk.consumer.outcome import ConsumeOrderlyStatus
from rocketmq_sdk.errors import WrongTypeError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.received import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.listener import AsyncListener
    from rocketmq_sdk.model.queue import MessageQueue

logger = logging.getLogger("rocketmq_sdk.consumer")
_Received = TypeVar("_Received", bound=ReceivedMessage)


def filtered(
    messages: list[_Received], queue: MessageQueue, *, group: str, hooks: Sequence[FilterHook]
) -> list[_Received]:
    """The messages of one pull or pop that the filter hooks keep.

    A hook that fails removes nothing. Nor does one that returns something else than
    messages that it was given: what is consumed stays in its order, each once.
    """
    for hook in hooks:
        try:
            kept = {
                id(each) for each in hook.filter_messages(list[ReceivedMessage](messages), queue)
            }
            if not kept <= {id(message) for message in messages}:
                raise WrongTypeError("filter_messages returned messages that it was not given")
            messages = [message for message in messages if id(message) in kept]
        except Exception:
            logger.exception(
                "group %s: the filter hook %r has failed; it leaves nothing out",
                group,
                hook,
                extra=about(group=group),
            )
    return messages


def address_of_all(
    messages: Sequence[ReceivedMessage], address_of: Callable[[str], str | None]
) -> str | None:
    """The address of the broker of messages; None if there are several."""
    names = {message.broker_name for message in messages}
    return address_of(names.pop()) if len(names) == 1 else None


def hooked(
    listener: AsyncListener,
    *,
    group: str,
    hooks: Sequence[ConsumeHook],
    client: Client | None = None,
) -> AsyncListener:
    """The listener with hooks around each call.

    Its errors and its cancellation pass through.
    """
    before, after = [hook.before_consume for hook in hooks], [hook.after_consume for hook in hooks]

    async def call(argument: Any) -> object:
        messages = tuple(argument) if isinstance(argument, list) else (argument,)
        context = ConsumeContext(group, messages)
        if client is not None:
            context.client_id = client.client_id
            context.address = address_of_all(messages, client.broker_address)
        run_hooks(before, context)
        context.success = False
        try:
            answer = await listener(argument)
            context.success = answer is not ConsumeOrderlyStatus.ROLLBACK
            return answer
        except BaseException as error:
            context.error = error
            raise
        finally:
            run_hooks(after, context)

    return call
