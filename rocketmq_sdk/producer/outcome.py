"""What becomes of a message: its result out of an answer, or its error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.errors import (
    ConnectError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    SendTimeout,
)
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.protocol.headers.send import SendMessageResponseHeader
from rocketmq_sdk.protocol.shapes.answers import CutAnswer
from rocketmq_sdk.remoting.channel import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy
    from rocketmq_sdk.producer.handle import SendHandle
    from rocketmq_sdk.producer.targets import Target, TopicTargets
    from rocketmq_sdk.producer.under_way import UnderWay
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.shapes.headers import Shape
    from rocketmq_sdk.remoting.channel import PendingCall

logger = logging.getLogger("rocketmq_sdk.producer")
_BATCH: Final = 320
_LONG_DIGITS: Final = 19


def log_retry(handle: SendHandle, failed: Target, error: RocketMQError) -> None:
    logger.info(
        "an attempt to send %s to %r failed at %s, the next one follows: %s",
        handle.message_id,
        failed.queue,
        failed.address,
        error,
        exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
        extra=about(queue=failed.queue, message_id=handle.message_id),
    )


def used_up(handle: SendHandle) -> str:
    """What became of a message whose time is up."""
    outcome = "it may be stored all the same" if handle.unknown else "it is not stored"
    first, *others = handle.message_id.split(",")
    what = (
        f"the batch of {1 + len(others)} messages that begins with {first}"
        if others
        else f"the message {first}"
    )
    return (
        f"{what} to topic {handle.topic.topic!r} used up its time; {outcome}{handle.last_failure}"
    )


def send_result(
    handle: SendHandle, target: Target, response: Command, status: SendStatus
) -> SendResult:
    """What a broker says of a message that it has stored.

    Raises `FieldError` when it says it badly.
    """
    fields = response.ext_fields
    queue_id = fields.get("queueId")
    offset = fields.get("queueOffset", "")
    if (
        queue_id is None
        or not offset.isdecimal()
        or "msgId" not in fields
        or not queue_id.isdecimal()
    ):
        header = SendMessageResponseHeader.from_ext(fields)
        queue_id, offset = str(header.queue_id), str(header.queue_offset)
    queue = (
        target.queue
        if queue_id == target.queue_id_text
        else MessageQueue(target.queue.topic, target.broker_name, int(queue_id))
    )
    message_id = handle._id
    if handle.code == _BATCH:
        message_id = fields.get("batchUniqId") or handle.message_id
    return SendResult(
        status,
        message_id,
        fields["msgId"],
        queue,
        int(offset),
        fields.get("transactionId"),
        fields.get("recallHandle"),
        fields.get("MSG_REGION", "DefaultRegion"),
        fields.get("TRACE_ON") != "false",
    )


class _Places(NamedTuple):
    """Where the values of a result stand among those of an answer."""

    msg_id: int
    queue_id: int
    queue_offset: int
    transaction_id: int | None
    region_id: str
    trace_on: bool


class CutResults:
    """Results of plain messages out of answers that were cut."""

    __slots__ = ("_places", "_shape")

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self._places: _Places | None = None

    def of(self, handle: SendHandle, target: Target, answer: CutAnswer) -> SendResult | None:
        """What `send_result` would give; None where it has to be asked."""
        shape = answer.shape
        if shape is not self._shape:
            self._shape, self._places = shape, _places(shape)
        places = self._places
        if places is None:
            return None
        texts = answer.texts + shape.constants
        queue_id, offset = texts[places.queue_id], texts[places.queue_offset]
        if (
            not offset.isdigit()
            or len(offset) > _LONG_DIGITS
            or queue_id != target.queue_id_text.encode()
        ):
            return None
        transaction_at = places.transaction_id
        return SendResult(
            SendStatus.SEND_OK,
            handle.message_id,
            texts[places.msg_id].decode(),
            target.queue,
            int(offset),
            None if transaction_at is None else texts[transaction_at].decode(),
            None,
            places.region_id,
            places.trace_on,
        )


def _places(shape: Shape) -> _Places | None:
    """None for answers of a shape that is not that of a plain message's."""
    names = shape.names
    varying = len(names) - len(shape.constants)
    constant = dict(zip(names[varying:], shape.constants, strict=True))
    if (
        not {"msgId", "queueId", "queueOffset"} <= {*names}
        or {"MSG_REGION", "TRACE_ON", "recallHandle"} & {*names[:varying]}
        or "recallHandle" in constant
    ):
        return None
    return _Places(
        names.index("msgId"),
        names.index("queueId"),
        names.index("queueOffset"),
        names.index("transactionId") if "transactionId" in names else None,
        constant.get("MSG_REGION", b"DefaultRegion").decode(),
        constant.get("TRACE_ON") != b"false",
    )


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

    def result(
        self, handle: SendHandle, target: Target, response: Command, status: SendStatus
    ) -> SendResult:
        """As `send_result`, cheaper for an answer that was cut."""
        if type(response) is CutAnswer and handle.code != _BATCH:
            result = self._results.of(handle, target, response)
            if result is not None:
                return result
        return send_result(handle, target, response, status)

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


def no_queue(topic: TopicTargets) -> RouteError:
    """The error for a topic that nobody takes messages for."""
    return RouteError(
        f"topic {topic.topic!r} has no queue that can be written to, or no broker of it has a "
        "master"
    )


def final_error(error: RocketMQError, *, unknown: bool) -> RocketMQError:
    """The error that a message ends with.

    Its `outcome_unknown` speaks for all attempts, and the object belongs to this
    message alone.

    Messages that waited for the same route or connection have failed by one object;
    each gets a copy of it, with its cause.
    """
    kind = type(error)
    if isinstance(error, RequestTimeoutError) and not isinstance(error, SendTimeout):
        kind = SendTimeout
    # Not `copy.copy`: that runs `__init__` with the finished text, and an error is made
    # from its parts.
    final = kind.__new__(kind, *error.args)
    final.__dict__.update(error.__dict__)
    if isinstance(error, (ConnectError, RequestTimeoutError)):
        final.outcome_unknown = unknown
    else:
        final.outcome_unknown = unknown or error.outcome_unknown
    final.__cause__ = error.__cause__
    return final
