"""Plain sends that arrived together (`SEND_MESSAGE_V2`), served as one run.

Nearly all messages are plain: an ordinary topic that is known and checked, a queue that
exists, properties that ask for nothing, a body of moderate size. What they have in
common is looked up once for many of them, the store takes them as one `Run`, and their
answers are written from a template. `SendProcessor` serves all others, and each plain
send that comes alone; both do the same to the store and give the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.send.properties import CutProperties
from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.model.properties import WAIT
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE, HeaderEncoding, SysFlag
from rocketmq_sdk.protocol.frame_template import CommandTemplate, FrameTemplate, frames_of
from rocketmq_sdk.protocol.shapes.sends import CutSend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.send.send_requests import SendProcessor
    from rocketmq_sdk.broker_embedded.store.append.run import Lane, Numbers, Run
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Channel

BODY_MAX: Final = 16 * 1024
"""Bytes of a body up to which a message is plain; copying a larger one does not pay."""
RUN_BYTES: Final = 256 * 1024
"""Bytes of bodies after which a run ends, so that others have their turn."""
_END: Final = "\x02"
_REMEMBERED: Final = 1024
_SHORT: Final = 64
"""Characters of numbers that are remembered."""
_INT_MAX: Final = 0x7FFFFFFF
_NOT_PLAIN: Final = SysFlag.TRANSACTION_ROLLBACK | SysFlag.INNER_BATCH
_JSON: Final = HeaderEncoding.JSON
NO_WAIT: Final = f"{WAIT}\x01false".encode()
_VARYING: Final = ("msgId", "queueId", "queueOffset", "transactionId")
_FORMS: Final = (b"%016X", b"%b", b"%d", b"%b", b"%d")
"""Of the rest of the message id, of the others that vary, and of the opaque."""


Asked = tuple[Command, bytes, bytes]
"""A request with its queue id and unique key."""
_Found = tuple[bytes, bytes, int]
"""Unique key, stored properties and tags code of a plain message."""


class NumbersOf(dict[tuple[str, str, str, str], "Numbers | None"]):
    """Flag, system flag and reconsume times by their texts with the mark of batches.

    None when they are not those of a plain message: a batch, and one with a system flag
    in `refused`. Those in `cleared` are taken out. A look-up raises `ValueError`.
    """

    __slots__ = ("_cleared", "_refused")

    def __init__(self, refused: int, cleared: int = 0) -> None:
        super().__init__()
        self._refused = refused
        self._cleared = cleared

    def __missing__(self, texts: tuple[str, str, str, str]) -> Numbers | None:
        flag, sys_flag, times = int(texts[1]), int(texts[0]), int(texts[2] or 0)
        plain = (
            texts[3] != "true"
            and not sys_flag & self._refused
            and all(-_INT_MAX <= number <= _INT_MAX for number in (flag, sys_flag, times))
        )
        if not plain:
            return None
        numbers = flag, sys_flag & ~self._cleared, times, 0
        if sum(map(len, texts)) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[texts] = numbers
        return numbers


def plain_queue(config: TopicConfig, wish: bytes) -> int | None:
    """The queue that is asked for; None for one that does not exist, or any."""
    if not wish.isdigit():
        return None
    queue_id = int(wish)
    if b"%d" % queue_id != wish:
        return None  # the answer has the number, not its text
    if queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
        return None
    return queue_id


class PlainSends:
    """Serves plain sends of one connection together, for a `SendProcessor`."""

    __slots__ = (
        "_core",
        "_cut",
        "_form",
        "_host_hex",
        "_look",
        "_numbers",
        "_properties",
        "_sends",
        "_suffix",
        "_template",
    )

    def __init__(self, core: Core, sends: SendProcessor) -> None:
        self._core = core
        self._sends = sends
        self._host_hex = core.store_host.hex().upper()
        self._properties = sends.properties
        self._look = self._properties.look
        self._numbers = NumbersOf(_NOT_PLAIN)
        self._suffix = ""
        self._cut = CutProperties(self._properties, "")
        self._form = b""
        self._template = CommandTemplate(Command(0))

    def _configure(self) -> None:
        """Settings have changed: what every message and every answer has in common."""
        sends = self._sends
        self._suffix = sends.suffix
        fields = {
            "msgId": "",
            "queueId": "",
            "queueOffset": "",
            "MSG_REGION": sends.region,
            "TRACE_ON": sends.trace,
            "transactionId": "",
        }
        sample = Command(0, flag=FLAG_RESPONSE, ext_fields=fields)
        pieces = FrameTemplate(sample, _VARYING).form.pieces
        front, *others = [piece.replace("%", "%%").encode() for piece in pieces]
        self._form = b"".join(
            [front, self._host_hex.encode(), *map(b"".join, zip(_FORMS, others, strict=True))]
        )
        self._cut = CutProperties(self._properties, self._suffix)
        self._template = CommandTemplate(sample)

    def serve(
        self, channel: Channel, requests: Sequence[Command]
    ) -> Sequence[bytes | Command | None]:
        """Store the first of what arrived, up to one that is not plain.

        Returns their answers.
        """
        sends, core = self._sends, self._core
        if self._suffix != sends.suffix:
            self._configure()
        if not self._is_mine(requests[0]):
            return []  # as all sends of a program may be
        store = core.store
        waits = store.needs_wait
        if waits and (channel.in_process or not store.tells_durable):
            return []
        run = store.begin_run() if core.put_times.in_turn else None
        if run is None:
            return []
        asked = self._admit(run, requests, waits=waits)
        if not asked or not store.put_run(run, channel.remote_host_packed):
            return []
        count_put = core.stats.put
        for lane in run.lanes:
            if lane.units:
                times = len(lane.units)
                count_put(lane.topic, lane.queue_id, times, lane.size, times)
        self._stored(run, channel)
        if waits:
            return self._durable(channel, run, asked)
        return self._replies(run, asked) if channel.in_process else self._answers(run, asked)

    def _durable(self, channel: Channel, run: Run, asked: list[Asked]) -> Sequence[Command | None]:
        """The answers if the run is on the disk already; else they follow its sync."""
        times, started = self._core.put_times, 0.0
        replies = self._replies(run, asked)
        waiting = [
            (request, reply)
            for (request, _wish, _unique), reply in zip(asked, replies, strict=False)
            if reply is not None
        ]
        told: list[Command] | None = None

        def tell(status: PutStatus) -> None:
            nonlocal told
            times.put_over(started, len(waiting))
            told = [self._sends.told(reply, status) for _request, reply in waiting]
            if later:
                for (request, _reply), answer in zip(waiting, told, strict=True):
                    channel.respond(request, answer)

        later = False
        if waiting:
            started = times.start(len(waiting))
            size = run.end - run.positions[0]
            result = PutResult(PutStatus.PUT_OK, run.positions[0], size)
            self._core.store.when_durable(result, tell)
        if told is None:
            later = True
            return [None] * len(replies)
        answers = iter(told)
        return [None if reply is None else next(answers) for reply in replies]

    def _stored(self, run: Run, _channel: Channel) -> None:
        """The messages of a run are stored."""
        figures = self._core.stats.figures
        if figures is not None:
            figures.put_run(run, sharded=self._properties.saw_sharding)

    def _is_mine(self, first: Command) -> bool:
        """Whether the properties of the first request are plain."""
        if type(first) is CutSend:
            return self._cut.of(first.form.values(first.texts)[-1]) is not None
        return self._look(first.ext_fields.get("i", "")) is not None

    def _admit(self, run: Run, requests: Sequence[Command], *, waits: bool) -> list[Asked]:
        """Fill the run with the first requests, up to one that is not plain.

        With `waits`, one that does not wait for the disk is none.
        """
        asked: list[Asked] = []
        messages, cut = run.messages, self._cut.of
        lanes: dict[tuple[bytes, bytes], Lane] = {}
        kind, form = requests[0].code, None
        most, room = min(self._sends.max_body, BODY_MAX), RUN_BYTES
        try:
            for request in requests:
                if request.code != kind or request.flag & FLAG_RESPONSE:
                    break
                if type(request) is CutSend:
                    if request.form is not form:
                        form = request.form
                        values, number = form.values, self._number(form.constants)
                    topic, wish, born, text = values(request.texts)
                    found = cut(text)
                else:
                    form, ext = None, request.ext_fields
                    topic, wish, born = ext["b"].encode(), ext["e"].encode(), ext["g"]
                    number, found = self._number(ext), self._found(request)
                place = (topic, wish)
                lane = lanes.get(place)
                if lane is None:
                    lane = self._lane(run, *place)
                    if lane is None:
                        break
                    lanes[place] = lane
                body = request.body
                size = len(body)
                room -= size
                if found is None or number is None or not 0 < size <= most or room < 0:
                    break
                unique, properties, code = found
                if waits and NO_WAIT in properties:
                    break
                messages.append((lane, body, properties, int(born), number, code))
                asked.append((request, wish, unique))
        except (KeyError, ValueError):
            pass  # a field is missing or no number: the processor says which
        return asked

    def _number(self, ext: dict[str, str]) -> Numbers | None:
        """Flag, system flag and reconsume times; None if the message is not plain."""
        return self._numbers[ext["f"], ext["h"], ext["j"], ext["m"]]

    def _found(self, request: Command) -> _Found | None:
        """What the properties of a request are that was decoded."""
        text = request.ext_fields["i"]
        found = self._look(text)
        if found is None or request.encoding is not _JSON:
            return None
        unique, code = found
        if text[-1] != _END:
            text += _END
        return unique.encode(), (text + self._suffix).encode("utf-8", "replace"), code

    def _lane(self, run: Run, raw_topic: bytes, wish: bytes) -> Lane | None:
        """The way into the queue that is asked for; None when that is not plain."""
        topic = raw_topic.decode()
        config = self._sends.plain_topic(topic)
        queue_id = None if config is None else plain_queue(config, wish)
        return None if queue_id is None else run.lane(topic, queue_id)

    def _replies(self, run: Run, asked: list[Asked]) -> list[Command | None]:
        """`_answers` for a channel that makes no bytes."""
        command, host = self._template.command, self._host_hex
        places = zip(run.positions, run.offsets, strict=True)
        return [
            None
            if request.flag & FLAG_ONEWAY
            else command(
                {
                    "msgId": f"{host}{position:016X}",
                    "queueId": wish.decode(),
                    "queueOffset": str(offset),
                    "transactionId": unique.decode(),
                }
            )
            for (request, wish, unique), (position, offset) in zip(asked, places, strict=False)
        ]

    def _answers(self, run: Run, asked: list[Asked]) -> list[bytes | None]:
        """The answers to what was put, from the first on."""
        form = self._form
        headers = [
            form % (position, wish, offset, unique, request.opaque)
            for (request, wish, unique), position, offset in zip(
                asked, run.positions, run.offsets, strict=False
            )
        ]
        return [
            None if request.flag & FLAG_ONEWAY else frame
            for (request, _wish, _unique), frame in zip(asked, frames_of(headers), strict=False)
        ]
