"""Acks of one pop of one queue that arrived together, served as one run.

A consumer that acknowledges each message by itself still has many acks under way. Those
that differ in the offset only are checked once, and become one record, as those of a
batch do. `AckProcessor` serves all others, and each that comes alone; both give the
same answers and count the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.pop.ack import DIGITS
from rocketmq_sdk.broker_embedded.pop.records import is_stored
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.broker_embedded.timers.intake import STORED
from rocketmq_sdk.errors import BrokerError, FieldError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame_template import FrameTemplate, frame_of
from rocketmq_sdk.protocol.headers.pop import AckMessageRequestHeader
from rocketmq_sdk.protocol.limits import TEXT_MAX
from rocketmq_sdk.protocol.text import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pop.ack import AckProcessor
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.broker_embedded.store.messages import PutResult
    from rocketmq_sdk.remoting.channel import Channel, Reply

_FORM: Final = FrameTemplate(Command.response(), ()).form


class PlainAcks:
    """Serves acks of one connection together, for an `AckProcessor`."""

    __slots__ = ("_acks", "_core", "_state")

    def __init__(self, core: Core, state: PopState, acks: AckProcessor) -> None:
        self._core = core
        self._state = state
        self._acks = acks

    def serve(self, channel: Channel, requests: Sequence[Command]) -> Sequence[Reply]:
        """Take the first ones, up to one that differs in more than the offset.

        Returns their answers.
        """
        store = self._core.store
        if store.needs_wait and (channel.in_process or not store.tells_durable):
            return []
        offsets = _alike(requests)
        if len(offsets) < 2:
            return []
        try:
            header = AckMessageRequestHeader.from_ext(requests[0].ext_fields)
            handle = self._acks.admitted(channel, header)
        except (BrokerError, FieldError):
            return []  # each is told for itself
        topic, queue_id = header.topic, header.queue_id
        least, most = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        good = next(
            (at for at, offset in enumerate(offsets) if not least <= offset <= most), len(offsets)
        )
        if good < 2 or handle.is_ordered or handle.offset < 0 or handle.commit_log_offset >= 0:
            return []
        result = self._acks.acknowledge(
            topic, header.consumer_group, queue_id, handle, offsets[:good], good
        )
        return self._answers(channel, requests[:good], result)

    def _answers(
        self, channel: Channel, requests: Sequence[Command], result: PutResult | None
    ) -> Sequence[Reply]:
        """The answers to acks that are taken; they follow the sync if there is one."""
        failure = None if result is None or is_stored(result) else result.status
        if result is None or failure is not None or not self._core.store.needs_wait:
            return self._told(channel, requests, failure)
        answers: Sequence[Reply] | None = None

        def tell(status: PutStatus) -> None:
            nonlocal answers
            failure = None if status in STORED else PutStatus.SERVICE_NOT_AVAILABLE
            if later:
                for request in requests:
                    channel.respond(request, self._command(failure))
            else:
                answers = self._told(channel, requests, failure)

        later = False
        self._core.store.when_durable(result, tell)
        if answers is None:
            later = True
            return [None] * len(requests)
        return answers

    def _told(
        self, channel: Channel, requests: Sequence[Command], failure: PutStatus | None
    ) -> list[Reply]:
        if failure is not None or channel.in_process:
            return [self._command(failure) for _ in requests]
        return [frame_of((_FORM % (request.opaque,)).encode()) for request in requests]

    def _command(self, failure: PutStatus | None) -> Command:
        if failure is None:
            return Command.response()
        code, remark = self._state.intake.failure(failure)
        return Command.response(code, remark=remark)


def _alike(requests: Sequence[Command]) -> list[int]:
    """Offsets of the first requests, up to one that is not as the first one, or comes a
    second time.
    """
    first, fields = requests[0], requests[0].ext_fields
    offsets: dict[int, None] = {}
    head, _space, _own = fields.get("extraInfo", "").rpartition(" ")
    if sum(map(len, fields.values())) + 2 * DIGITS > TEXT_MAX:
        return []
    others = {**fields, "extraInfo": "", "offset": ""}
    for request in requests:
        ext = request.ext_fields
        start, _space, own = ext.get("extraInfo", "").rpartition(" ")
        offset = ext.get("offset", "")
        if (
            start != head
            or not is_number(own, DIGITS)
            or not is_number(offset, DIGITS)
            or request.code != first.code
            or request.flag
            or request.body
            or request.encoding is not HeaderEncoding.JSON
            or {**ext, "extraInfo": "", "offset": ""} != others
            or int(offset) in offsets
        ):
            break
        offsets[int(offset)] = None
    return list(offsets)
