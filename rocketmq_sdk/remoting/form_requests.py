"""Requests that are written from forms and leave together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rocketmq_sdk.protocol.frame_template import header_of
from rocketmq_sdk.remoting.channel import PendingCall, Sweep, SweptCall
from rocketmq_sdk.remoting.queued_frames import Piece, frame_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.remoting.call_table import CallTable
    from rocketmq_sdk.remoting.channel import ChannelLimits, FormRequest


# What is made for a request and stays costs twice: when it is made, and when the
# garbage collector looks at it. So requests are made one by one, if the caller does so.
def begin_requests(
    calls: CallTable,
    requests: Iterable[FormRequest],
    on_done: Callable[[PendingCall], None],
    limits: ChannelLimits,
    unsent: int,
) -> tuple[list[Piece], list[PendingCall], int]:
    """Write the frames of requests and begin to wait for their answers.

    As many as the limits allow beside `unsent` bytes. Returns the frames, the calls,
    and the unsent bytes with these.
    """
    slots, sweep = calls.slots, on_done if isinstance(on_done, Sweep) else None
    frames, found, earliest = list[Piece](), list[PendingCall](), math.inf
    room = calls.limit - len(slots)
    for form, values, body, since, timeout, tag in requests:
        if room <= 0 or unsent > limits.max_unsent_bytes:
            break
        opaque = calls.next_opaque()
        frame = frame_with(header_of(form, values, opaque), body)
        size = len(frame) if isinstance(frame, bytes) else len(frame[0]) + len(body)
        if size > limits.max_frame:
            break
        deadline = since + timeout
        if sweep is None:
            call = PendingCall(slots, opaque, deadline, timeout, on_done)
        else:
            call = SweptCall(slots, opaque, deadline, timeout, sweep)
        call.tag = tag
        slots[opaque] = call
        found.append(call)
        if isinstance(frame, bytes):
            frames.append(frame)
        else:
            frames += frame
        unsent += size
        room -= 1
        if deadline < earliest:
            earliest = deadline
    if found:
        calls.watch_run(found[0].opaque, found[-1].opaque, earliest)
    return frames, found, unsent
