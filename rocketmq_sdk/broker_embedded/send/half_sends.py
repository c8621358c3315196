"""Half messages that arrived together (`SEND_MESSAGE_V2`), served as one run.

They are plain but for their transaction: see `PlainSends`. What their commits store is
made here too and kept at hand for their ends (`Ready`). `SendProcessor` serves all
others; both do the same to the store and to the table of transactions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.send.plain_sends import (
    BODY_MAX,
    NO_WAIT,
    RUN_BYTES,
    Asked,
    NumbersOf,
    PlainSends,
    plain_queue,
)
from rocketmq_sdk.broker_embedded.send.properties import HalfProperties
from rocketmq_sdk.broker_embedded.tables.figures import TRANSACTIONAL
from rocketmq_sdk.broker_embedded.transactions.half_messages import half_properties
from rocketmq_sdk.broker_embedded.transactions.ready import Ready
from rocketmq_sdk.broker_embedded.transactions.table import QUEUE_ID, body_crc_of, joined_key
from rocketmq_sdk.model.properties import TRAN_MSG
from rocketmq_sdk.names import MAX_TOPIC_LENGTH, TRANSACTION_HALF_TOPIC, return_problem
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE, HeaderEncoding, SysFlag
from rocketmq_sdk.protocol.shapes.headers import without_escapes
from rocketmq_sdk.protocol.shapes.sends import CutSend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.send.properties import HalfTraits
    from rocketmq_sdk.broker_embedded.send.send_requests import SendProcessor
    from rocketmq_sdk.broker_embedded.store.append.run import Run
    from rocketmq_sdk.broker_embedded.transactions.table import TransactionTable
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel

_MARK: Final = f"{TRAN_MSG}\x01"
_END: Final = "\x02"
_JSON: Final = HeaderEncoding.JSON


class HalfSends(PlainSends):
    """Serves half messages of one connection together, for a `SendProcessor`."""

    __slots__ = ("_begun", "_halves", "_table")

    def __init__(self, core: Core, sends: SendProcessor, table: TransactionTable) -> None:
        super().__init__(core, sends)
        self._table = table
        self._halves = HalfProperties()
        self._numbers = NumbersOf(SysFlag.INNER_BATCH, cleared=SysFlag.TRANSACTION_ROLLBACK)
        self._begun: list[tuple[str, str, int, str, HalfTraits]] = []
        """Of each message: unique key, topic, queue id, properties once it is
        committed, traits.
        """

    def _is_mine(self, first: Command) -> bool:
        text = _text_of(first)
        return (
            _MARK in text
            and self._halves.look(text) is not None
            and not self._core.config.current.reject_transaction_message
        )

    def _admit(self, run: Run, requests: Sequence[Command], *, waits: bool) -> list[Asked]:
        asked: list[Asked] = []
        self._begun = begun = []
        lane = run.lane(TRANSACTION_HALF_TOPIC, QUEUE_ID)
        if lane is None:
            return asked
        suffix, kind, form = self._suffix, requests[0].code, None
        most, room = min(self._sends.max_body, BODY_MAX), RUN_BYTES
        places: dict[tuple[bytes, bytes], tuple[str, int] | None] = {}
        try:
            for request in requests:
                if request.code != kind or request.flag & FLAG_RESPONSE:
                    break
                if type(request) is CutSend:
                    if request.form is not form:
                        form = request.form
                        values, numbers = form.values, self._number(form.constants)
                    topic, wish, born, cut = values(request.texts)
                    text = without_escapes(cut).decode()
                else:
                    form, ext = None, request.ext_fields
                    topic, wish, born = ext["b"].encode(), ext["e"].encode(), ext["g"]
                    text, numbers = ext["i"], self._number(ext)
                    if request.encoding is not _JSON:
                        break
                if (topic, wish) not in places:
                    places[topic, wish] = self._place(topic, wish)
                place, found, body = places[topic, wish], self._halves.look(text), request.body
                size = len(body)
                room -= size
                if (
                    found is None
                    or numbers is None
                    or place is None
                    or not 0 < size <= most
                    or room < 0
                ):
                    break
                unique, traits = found
                if text[-1] != _END:
                    text += _END
                shown, stored = half_properties(text + suffix, unique, *place)
                properties = stored.encode("utf-8", "replace")
                if waits and NO_WAIT in properties:
                    break
                run.messages.append((lane, body, properties, int(born), numbers, traits.tags_code))
                begun.append((unique, *place, shown, traits))
                asked.append((request, wish, unique.encode()))
        except (KeyError, ValueError):
            pass  # a field is missing or no number: the processor says which
        return asked

    def _place(self, raw_topic: bytes, wish: bytes) -> tuple[str, int] | None:
        """Topic and queue that are asked for; None when that is not plain."""
        topic = raw_topic.decode()
        config = self._sends.half_topic(topic)
        if config is None or len(topic) > MAX_TOPIC_LENGTH or return_problem(topic):
            return None
        queue_id = plain_queue(config, wish)
        return None if queue_id is None else (topic, queue_id)

    def _stored(self, run: Run, channel: Channel) -> None:
        """They are open transactions from now on."""
        figures = self._core.stats.figures
        if figures is not None:
            figures.into(TRANSACTION_HALF_TOPIC, TRANSACTIONAL).put_records(run.positions, run.end)
        host, add = channel.remote_host_packed, self._table.add
        ends = pairwise((*run.positions, run.end))
        stored = zip(self._begun, run.messages, run.offsets, ends, strict=False)
        for (unique, topic, queue_id, shown, traits), message, offset, (position, end) in stored:
            _lane, body, _properties, born, (flag, sys_flag, times, _prepared), code = message
            group = traits.group
            ready = Ready(
                topic,
                queue_id,
                body,
                shown.encode("utf-8", "replace"),
                numbers=(flag, sys_flag, times),
                born_timestamp=born,
                born_host=host,
                tags_code=code,
                group=group,
                immunity=traits.immunity,
            )
            key = joined_key(unique, group or "", topic, body_crc_of(body))
            add(key, offset, position, end - position, ready)
        self._begun = []


def _text_of(request: Command) -> str:
    """The properties of a request, decoded or cut."""
    if type(request) is CutSend:
        return without_escapes(request.form.values(request.texts)[-1]).decode()
    return request.ext_fields.get("i", "")
