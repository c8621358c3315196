"""Ends of transactions whose half messages came a moment ago (END_TRANSACTION).

Nearly all ends are plain: the half message is open, this broker has just taken it in,
so that what its commit stores is at hand (`Ready`), and the producer is in time. Those
that arrived together are one `Run`: their committed messages, and behind them one op
record for all of them, in one write. `TransactionProcessor` serves all others; both do
the same to the table of transactions and give the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.short_answers import ShortAnswers
from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.broker_embedded.transactions.check import immunity_ms
from rocketmq_sdk.broker_embedded.transactions.table import QUEUE_ID, op_message
from rocketmq_sdk.names import TRANSACTION_OP_TOPIC
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE, HeaderEncoding
from rocketmq_sdk.protocol.limits import TEXT_MAX
from rocketmq_sdk.protocol.text import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.store.append.run import Lane, Run
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.broker_embedded.transactions.ready import Ready
    from rocketmq_sdk.broker_embedded.transactions.table import Half, TransactionTable
    from rocketmq_sdk.remoting.channel import Channel, Reply

    _End = tuple[Half, Ready, bool]
    """An open half message, what its commit stores, and whether it is committed."""

_DIGITS: Final = 18
_RUN_BYTES: Final = 256 * 1024
"""Bytes of bodies after which a run ends, so that others have their turn."""
_COMMITS: Final = {"8": True, "12": False}
_TRUTHS: Final = {None: False, "false": False, "true": True}
_JSON: Final = HeaderEncoding.JSON


def is_too_late(asked_for: str | None, age_ms: int, timeout_ms: int) -> bool:
    """Whether a producer that ends a transaction on its own is too late.

    It must wait for the check then (`rejectCommitOrRollback` of Apache). `asked_for` is
    the half message's property CHECK_IMMUNITY_TIME_IN_SECONDS.
    """
    immunity = immunity_ms(asked_for, timeout_ms)
    return immunity is not None and age_ms > max(immunity, timeout_ms)


class PlainEnds:
    """Serves plain ends, alone and together."""

    __slots__ = ("_answers", "_core", "_table")

    def __init__(self, core: Core, intake: Intake, table: TransactionTable) -> None:
        self._core = core
        self._answers = ShortAnswers(core, intake)
        self._table = table

    def serve(self, channel: Channel, requests: Sequence[Command]) -> Sequence[Reply]:
        """End the first ones, up to one that is not plain. Returns their answers."""
        result, number = self._ended(channel, requests)
        if result is None:
            return []
        ended = requests[:number]
        return self._answers.when_durable(channel, ended, result, frames=not channel.in_process)

    def end(self, channel: Channel, request: Command) -> tuple[bool, Command | None]:
        """End one if it is plain: whether that was done, and the answer.

        Without an answer that comes by `Channel.respond`.
        """
        result, _number = self._ended(channel, (request,))
        if result is None:
            return False, None
        (answer,) = self._answers.when_durable(channel, (request,), result, frames=False)
        assert answer is None or isinstance(answer, Command)
        return True, answer

    def _ended(self, channel: Channel, requests: Sequence[Command]) -> tuple[PutResult | None, int]:
        """Append the ends of the first ones, and finish their half messages.

        Returns where that is in the log, and how many they are; None for none.
        """
        core = self._core
        store = core.store
        if store.needs_wait and (channel.in_process or not store.tells_durable):
            return None, 0
        run = store.begin_run()
        lane = None if run is None else run.lane(TRANSACTION_OP_TOPIC, QUEUE_ID)
        if run is None or lane is None:
            return None, 0
        now = core.clock.now_ms()
        ends = self._admit(run, requests, now)
        if not ends:
            return None, 0
        offsets = [half.offset for half, _ready, _commits in ends]
        run.end_with(lane, op_message(*offsets, now_ms=now, host=core.store_host))
        if not store.put_run(run, ends[0][1].born_host):
            return None, 0
        self._table.finished_together(
            [(half, commits) for half, _ready, commits in ends], run.offsets[-1]
        )
        self._count(run, lane, ends, now)
        start = run.positions[0]
        return PutResult(PutStatus.PUT_OK, start, run.end - start), len(ends)

    def _admit(self, run: Run, requests: Sequence[Command], now: int) -> list[_End]:
        """Fill the run with what the first ones commit, up to one that is not plain."""
        config, code = self._core.config.current, requests[0].code
        timeout, most = config.transaction_time_out, config.store.max_message_size
        room = _RUN_BYTES
        ends: list[_End] = []
        taken: set[int] = set()
        lanes: dict[tuple[str, int], Lane | None] = {}
        for request in requests:
            if request.code != code or request.flag & FLAG_RESPONSE:
                break
            end = self._plain(request, now, timeout)
            if end is None:
                break
            half, ready, commits = end
            if half.offset in taken or len(ready.body) > most:
                break
            if ends and (room <= 0 or ready.born_host != ends[0][1].born_host):
                break
            if commits:
                place = ready.topic, ready.queue_id
                if place not in lanes:
                    lanes[place] = run.lane(*place)
                lane = lanes[place]
                if lane is None:
                    break
                numbers = ready.numbers(half.physical_offset)
                born = ready.born_timestamp
                message = lane, ready.body, ready.properties, born, numbers, ready.tags_code
                room -= len(ready.body)
                run.messages.append(message)
            taken.add(half.offset)
            ends.append(end)
        return ends

    def _plain(self, request: Command, now: int, timeout: int) -> _End | None:
        """What a request ends; None for one that is not plain, or would be refused."""
        ext = request.ext_fields
        offset, position = ext.get("tranStateTableOffset", ""), ext.get("commitLogOffset", "")
        commits = _COMMITS.get(ext.get("commitOrRollback", ""))
        checked = _TRUTHS.get(ext.get("fromTransactionCheck"))
        if (
            commits is None
            or checked is None
            or not (is_number(offset, _DIGITS) and is_number(position, _DIGITS))
            or "msgId" not in ext
            or len("".join(ext.values())) > TEXT_MAX
            or request.body
            or request.encoding is not _JSON
        ):
            return None
        half, ready = self._table.get(int(offset)), self._table.ready(int(offset))
        if (
            half is None
            or ready is None
            or half.physical_offset != int(position)
            or ready.group is None
            or ext.get("producerGroup") != ready.group
            or int(position) < self._core.store.min_physical_offset
            or (not checked and is_too_late(ready.immunity, now - ready.born_timestamp, timeout))
        ):
            return None
        if self._core.config.current.authorization_enabled:
            topic = ext.get("topic")
            if topic and topic != ready.topic:
                return None
        return half, ready, commits

    def _count(self, run: Run, op_lane: Lane, ends: Sequence[_End], now: int) -> None:
        stats = self._core.stats
        for lane in run.lanes:
            if lane is not op_lane and lane.units:
                times = len(lane.units)
                stats.put(lane.topic, lane.queue_id, times, lane.size, times)
        figures = stats.figures
        if figures is not None:
            for _half, ready, commits in ends:
                if commits:
                    age = now - ready.born_timestamp
                    figures.transaction_committed(ready.topic, age // 1000)
                else:
                    figures.rolled_back.add((ready.topic,))
