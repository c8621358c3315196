"""Answers to messages that left together, taken together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.producer.outcome import CutResults
from rocketmq_sdk.protocol.answer_shapes import CutAnswer
from rocketmq_sdk.remoting.channel import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy
    from rocketmq_sdk.producer.handle import SendHandle
    from rocketmq_sdk.producer.under_way import UnderWay
    from rocketmq_sdk.remoting.channel import PendingCall

logger = logging.getLogger("rocketmq_sdk.producer")


class Answers(Sweep):
    """Takes answers: the plain ones in one go, `answered` each of the others.

    While brokers are watched, each answer tells of its broker, and none is plain.
    """

    def __init__(
        self,
        answered: Callable[[SendHandle, PendingCall], None],
        under_way: UnderWay,
        strategy: MQFaultStrategy,
    ) -> None:
        self._answered = answered
        self._under_way = under_way
        self._strategy = strategy
        self._results = CutResults()

    def __call__(self, call: PendingCall, /) -> None:
        handle: SendHandle = call.tag  # type: ignore[assignment]
        self._answered(handle, call)

    def together(self, calls: Sequence[PendingCall], /) -> None:
        result_of, plain = self._results.of, not self._strategy.active
        stored: list[SendHandle] = []
        failure: BaseException | None = None
        for call in calls:
            handle: SendHandle = call.tag  # type: ignore[assignment]
            response, target = call.response, handle.target
            result = None
            if plain and type(response) is CutAnswer and target is not None:
                result = result_of(handle, target, response)
            if result is not None:
                if not handle.done:
                    handle.result = result
                    stored.append(handle)
                continue
            try:
                self._answered(handle, call)
            except Exception:
                logger.exception("what follows for %r has failed", handle)
            except BaseException as error:  # noqa: BLE001 - the others have their answers too
                failure = error
        self._under_way.end_stored(stored)
        if failure is not None:
            raise failure
