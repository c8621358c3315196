"""Plain messages that were handed over in one tick of the loop leave together.

One sweep gives them their queues, writes their frames from forms, one for each queue,
and hands them to their connections with one write. What is special about a message is
the matter of the send loop: whoever is aimed at a queue, is not the first attempt, or
has nobody to go to goes its own way.
"""

from __future__ import annotations

from itertools import islice
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.protocol.text import valid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocketmq_sdk.producer.handle import SendHandle
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, FormRequest, Sweep, TemplateRequest

SHARE: Final = 0.5
"""The share of the remaining time that an attempt may take.

While there is another broker. So a broker that does not answer does not use up the time
of a message.
"""
TOGETHER: Final = 64
"""Messages of one write: a broker stores them while the next ones are written."""
_REMEMBERED: Final = 1024
_SHORT: Final = 512
"""Characters of texts that are remembered."""


class _Escaped(dict[str, str]):
    """Texts as they stand between the quotes of JSON; most messages have the same."""

    __slots__ = ()

    def __missing__(self, text: str) -> str:
        escaped = encode_basestring(valid_text(text))[1:-1]
        if len(text) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[text] = escaped
        return escaped


class _Way:
    """What leaves by one connection: each message, and its request."""

    __slots__ = ("channel", "handles", "in_process", "templates")

    def __init__(self, channel: Channel | None) -> None:
        self.channel = channel
        self.in_process = channel is not None and channel.in_process
        self.handles: list[SendHandle] = []
        self.templates: list[TemplateRequest] = []
        """The requests where they are handed over within the process."""


class Outbox:
    """Gathers messages, first attempts without an aim, until the next tick.

    `channel_of` gives the open connection of an address to which nobody waits,
    `answered` is called with each call that is over, its tag is the message, `judge`
    with a message and its answer where there was no call, and `go_alone` takes a
    message that cannot leave from here. `turned` is called when what was handed over in
    a turn of the loop is about to leave.
    """

    __slots__ = (
        "_answered",
        "_channel_of",
        "_escaped",
        "_go_alone",
        "_judge",
        "_limit",
        "_next_ids",
        "_now_ms",
        "_over",
        "_stirred",
        "_task",
        "_turned",
        "handles",
    )

    def __init__(
        self,
        channel_of: Callable[[str], Channel | None],
        *,
        now_ms: Callable[[], int],
        next_ids: Callable[[int], list[str]],
        answered: Sweep,
        judge: Callable[[SendHandle, Command], None],
        go_alone: Callable[[SendHandle], None],
        limit: float | None,
        turned: Callable[[], None],
    ) -> None:
        self._channel_of = channel_of
        self._now_ms = now_ms
        self._next_ids = next_ids
        self._answered = answered
        self._judge = judge
        self._go_alone = go_alone
        self._limit = limit
        self._turned = turned
        self._stirred = self._over = False
        self._escaped = _Escaped()
        self._task: trio.lowlevel.Task | None = None
        self.handles: list[SendHandle] = []
        """What leaves with the next tick."""

    def put(self, handle: SendHandle) -> None:
        """Let a message leave with the next tick, behind those that wait."""
        self.handles.append(handle)
        self._wake()

    def stir(self) -> None:
        """Tell of the end of this turn of the loop, though the box may be empty."""
        self._stirred = True
        self._wake()

    def _wake(self) -> None:
        task = self._task
        if task is not None:
            self._task = None
            trio.lowlevel.reschedule(task)
        elif self._over:
            self._turn()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Empty the box at each tick until cancelled, and from then on at once.

        What is shielded from the cancellation may still hand something over.
        """
        try:
            while True:
                if not (self.handles or self._stirred):
                    self._task = trio.lowlevel.current_task()
                    await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
                self._turn()
        except trio.Cancelled:
            self._turn()
            raise
        finally:
            self._over = True

    def _turn(self) -> None:
        self._stirred = False
        self._turned()
        self.empty()

    def _stop_waiting(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def empty(self) -> None:
        """Let all messages leave now.

        Their time counts from when they were handed over, even if nothing has moved
        since: what has an answer in the end is not overdue.
        """
        handles, self.handles = self.handles, []
        if not handles:
            return
        new_ids = iter(self._next_ids(len(handles)))
        born = str(self._now_ms())
        channel_of = self._channel_of
        found: dict[str, _Way] = {}
        for handle in handles:
            topic = handle.topic
            if handle.done:
                continue
            if handle.deadline <= handle.started or not topic.current():
                self._go_alone(handle)
                continue
            targets = topic.targets
            target = handle.target = targets[topic.index.next() % len(targets)]
            way = found.get(target.address)
            if way is None:
                way = found[target.address] = _Way(channel_of(target.address))
            way.handles.append(handle)
            if not handle._id:
                handle.name(next(new_ids))
            if way.in_process:
                known = None if handle.sys_flag else target.template
                template = known or topic.template_of(target, half=handle.is_half)
                values = {"g": born, "i": handle.properties}
                way.templates.append((template, values, handle.body))
        for way in found.values():
            if way.in_process:
                self._exchange(way)
            else:
                for first in range(0, len(way.handles), TOGETHER):
                    some = way.handles[first : first + TOGETHER]
                    self._submit(way.channel, [one for one in some if not one.done], born)

    def _requests(self, handles: Sequence[SendHandle], born: str) -> Iterator[FormRequest]:
        """The requests of messages that have their targets."""
        escaped, limit = self._escaped, self._limit
        for handle in handles:
            topic, target = handle.topic, handle.target
            assert target is not None
            timeout = handle.deadline - handle.started
            if handle.attempts > 1:
                if limit is not None:
                    timeout = min(timeout, limit)
                elif topic.several:
                    timeout *= SHARE
            text = f"UNIQ_KEY\\u0001{handle._id}\\u0002{escaped[handle.tail]}"
            known = None if handle.sys_flag else target.form
            form = known or topic.form_of(target, half=handle.is_half)
            yield form, (born, text), handle.body, handle.started, timeout, handle

    def _submit(self, channel: Channel | None, handles: list[SendHandle], born: str) -> None:
        """Hand requests to a connection; what it does not take goes alone."""
        requests = self._requests(handles, born)
        calls = () if channel is None else channel.submit_forms(requests, self._answered)
        for handle, call in zip(handles, calls, strict=False):
            handle.attempts -= 1
            handle.channel = channel
            handle.call = call
        for handle in handles[len(calls) :]:
            self._go_alone(handle)

    def _exchange(self, way: _Way) -> None:
        """Hand requests to a broker in the process, and take its answers.

        What it wants to see alone goes alone, in its turn.
        """
        channel, handles, judge = way.channel, way.handles, self._judge
        assert channel is not None
        number = 0
        while number < len(handles):
            answers = channel.exchange(way.templates, number)
            for handle, answer in zip(islice(handles, number, None), answers, strict=False):
                if not handle.done:
                    handle.attempts -= 1
                    handle.channel = channel
                    judge(handle, answer)
            number += len(answers)
            if not answers:
                handle, number = handles[number], number + 1
                if not handle.done:
                    self._go_alone(handle)
