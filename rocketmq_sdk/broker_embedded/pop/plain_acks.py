"""Acks of one pop of one queue that arrived together, served as one run.

A consumer that acknowledges each message by itself still has many acks under way. Those
that differ in the offset only are checked once, and become one record, as those of a
batch do. `AckProcessor` serves all others, and each that comes alone; both give the
same answers and count the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.pop.ack import DIGITS
from rocketmq_sdk.broker_embedded.pop.records import is_stored
from rocketmq_sdk.broker_embedded.short_answers import ShortAnswers
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.errors import BrokerError, FieldError
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.headers.pop import AckMessageRequestHeader
from rocketmq_sdk.protocol.limits import TEXT_MAX
from rocketmq_sdk.protocol.text import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pop.ack import AckProcessor
    from rocketmq_sdk.broker_embedded.pop.state import PopState
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, Reply


class PlainAcks:
    """Serves acks of one connection together, for an `AckProcessor`."""

    __slots__ = ("_acks", "_answers", "_core")

    def __init__(self, core: Core, state: PopState, acks: AckProcessor) -> None:
        self._core = core
        self._answers = ShortAnswers(core, state.intake)
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
        taken, frames = requests[:good], not channel.in_process
        if result is None or not is_stored(result):
            failure = None if result is None else result.status
            return self._answers.now(taken, failure, frames=frames)
        return self._answers.when_durable(
            channel, taken, result, frames=frames, failure=PutStatus.SERVICE_NOT_AVAILABLE
        )


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
