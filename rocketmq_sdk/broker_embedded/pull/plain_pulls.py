"""Pulls of one queue that arrived together, served as one run.

A reader that knows how many messages an answer brings asks for several of them at once,
as consumers with a backlog and the Spark source do: the same queue, group and
subscription, other offsets. What they have in common is looked up and checked once, and
their answers are written from a template. The first one may commit an offset. Those
that may be held, that commit behind the first, or that find nothing are served by
`PullProcessor`, and so is each that comes alone; both give the same answers and count
the same.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.messages import GetStatus, QueueRead
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE, HeaderEncoding, PullSysFlag
from rocketmq_sdk.protocol.frame_template import CommandTemplate, FrameTemplate
from rocketmq_sdk.protocol.limits import TEXT_MAX
from rocketmq_sdk.protocol.text import is_number
from rocketmq_sdk.remoting.queued_frames import frame_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pull.pull_requests import PlainRead, PullProcessor
    from rocketmq_sdk.remoting.channel import Channel, Reply

RUN_BYTES: Final = 512 * 1024
"""Bytes of answers after which a run ends, so that others have their turn."""
_COMMITS: Final = str(int(PullSysFlag.COMMIT_OFFSET))
_READS: Final = frozenset(
    str(flag | lite)
    for flag in (0, int(PullSysFlag.SUBSCRIPTION))
    for lite in (0, int(PullSysFlag.LITE_PULL))
)
"""The `sysFlag` of pulls that ask for nothing but what is there."""
_OFFSET_DIGITS: Final = 18
_COUNT_DIGITS: Final = 9
_VARYING: Final = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")


class PlainPulls:
    """Serves plain pulls of one connection together, for a `PullProcessor`."""

    __slots__ = ("_core", "_flags", "_form", "_pulls", "_template")

    def __init__(self, core: Core, pulls: PullProcessor) -> None:
        self._core = core
        self._pulls = pulls
        self._flags: tuple[int, int] | None = None
        self._form = ""
        self._template = CommandTemplate(Command(0))

    def _configure(self, flags: tuple[int, int]) -> None:
        """What all answers have in common, by the flags of topic and group."""
        self._flags = flags
        fields = {
            **dict.fromkeys(_VARYING, ""),
            "topicSysFlag": str(flags[0]),
            "groupSysFlag": str(flags[1]),
        }
        sample = Command(
            ResponseCode.SUCCESS,
            flag=FLAG_RESPONSE,
            remark=GetStatus.FOUND.name,
            ext_fields=fields,
        )
        self._form = FrameTemplate(sample, _VARYING).form
        self._template = CommandTemplate(sample)

    def serve(self, channel: Channel, requests: Sequence[Command]) -> Sequence[Reply]:
        """Read for the first of what arrived, up to one that is not plain, or not as
        the first one but for offset and number of messages.

        Returns their answers.
        """
        flags = requests[0].ext_fields.get("sysFlag")
        if flags not in _READS and flags != _COMMITS:
            return []  # as all pulls are that may wait
        asked = _alike(requests)
        read = self._pulls.plain_read(channel, requests[0]) if len(asked) > 1 else None
        if read is None:
            return []
        kinds = read.topic.topic_sys_flag, read.group.group_sys_flag
        if kinds != self._flags:
            self._configure(kinds)
        return self._read(channel, requests, asked, read)

    def _read(
        self,
        channel: Channel,
        requests: Sequence[Command],
        asked: Sequence[tuple[int, int]],
        read: PlainRead,
    ) -> list[Reply]:
        """The answers to what finds messages that can be had at once."""
        store, header = self._core.store, read.header
        topic, queue_id = header.topic, header.queue_id
        found: list[tuple[int, bytes | memoryview]] = []
        bounds: list[tuple[int, int, bool]] = []
        messages = size = 0
        while len(found) < len(asked) and size < RUN_BYTES:
            offset, most = asked[len(found)]
            counts = _following(asked, len(found)) if read.message_filter is None else ()
            run = (
                store.get_several_nowait(topic, queue_id, offset, counts, RUN_BYTES - size)
                if len(counts) > 1
                else None
            )
            if run is not None:
                view, begin = memoryview(run.body), 0
                for end, count in zip(run.ends, counts, strict=False):
                    offset, messages = offset + count, messages + count
                    found.append((offset, view[begin:end]))
                    begin = end
                bounds += [(run.min_offset, run.max_offset, False)] * len(run.ends)
                size += begin
                continue
            wanted = QueueRead(topic, queue_id, offset, most, read.message_filter)
            result = store.read_nowait(wanted)
            if result is None or result.status is not GetStatus.FOUND:
                break
            found.append((result.next_begin_offset, result.body))
            bounds.append((result.min_offset, result.max_offset, result.suggest_slave))
            messages, size = messages + result.count, size + result.size
        if found:
            group, stats = header.consumer_group, self._core.stats
            stats.got(topic, group, queue_id, messages, size, len(found))
            if stats.figures is not None:
                stats.figures.pulled(topic, group, messages, size)
            offsets = self._core.offsets
            if header.sys_flag & PullSysFlag.COMMIT_OFFSET:
                offsets.commit(group, topic, queue_id, header.commit_offset)
            offsets.note_pulled(group, topic, queue_id, found[-1][0])
        return self._answers(channel, requests, read, found, bounds)

    def _answers(
        self,
        channel: Channel,
        requests: Sequence[Command],
        read: PlainRead,
        found: Sequence[tuple[int, bytes | memoryview]],
        bounds: Sequence[tuple[int, int, bool]],
    ) -> list[Reply]:
        suggest, group, form = self._pulls.suggested, read.group, self._form
        answers: list[Reply] = []
        for request, (following, body), (low, high, slave) in zip(
            requests, found, bounds, strict=False
        ):
            place = suggest(group, slave), following, low, high
            if channel.in_process or len(body) > RUN_BYTES:
                # What may be too long for a frame is the channel's to refuse.
                values = dict(zip(_VARYING, map(str, place), strict=True))
                answers.append(self._template.command(values, bytes(body)))
            else:
                header = (form % (*place, request.opaque)).encode()
                answers.append(frame_with(header, body))
        return answers


def _following(asked: Sequence[tuple[int, int]], number: int) -> list[int]:
    """How many messages are asked for, from one on, as long as each begins where the
    one before ends.
    """
    counts: list[int] = []
    following = asked[number][0]
    for offset, most in islice(asked, number, None):
        if offset != following:
            break
        counts.append(most)
        following += most
    return counts


def _alike(requests: Sequence[Command]) -> list[tuple[int, int]]:
    """Offset and most messages of the first requests, up to one that is not as the
    first one, or not plain by itself.
    """
    first = requests[0]
    kind, fields = first.code, first.ext_fields
    found: list[tuple[int, int]] = []
    texts = sum(map(len, fields.values())) + _OFFSET_DIGITS + _COUNT_DIGITS
    if texts > TEXT_MAX or "queueOffset" not in fields or "maxMsgNums" not in fields:
        return found
    same = {"queueOffset": fields["queueOffset"], "maxMsgNums": fields["maxMsgNums"]}
    if fields.get("sysFlag") == _COMMITS:
        others = {**fields, "sysFlag": "0", "commitOffset": "0"}
        if not is_number(fields.get("commitOffset", ""), _OFFSET_DIGITS):
            return found
    else:
        others = fields
    for request in requests:
        ext = request.ext_fields
        offset, most = ext.get("queueOffset", ""), ext.get("maxMsgNums", "")
        if (
            request.code != kind
            or request.flag
            or request.body
            or request.encoding is not HeaderEncoding.JSON
            or not is_number(offset, _OFFSET_DIGITS)
            or not is_number(most, _COUNT_DIGITS)
            or {**ext, **same} != (others if found else fields)
        ):
            break
        found.append((int(offset), int(most)))
    return found
