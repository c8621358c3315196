"""Threads of the operating system that live as long as a store."""

from __future__ import annotations

import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.file_system import Join, Mailbox


def start_thread(name: str, work: Callable[[Mailbox], None]) -> tuple[Mailbox, Join]:
    """`FileSystem.start_thread`; the process does not wait for the thread to end."""
    mailbox: SimpleQueue[Any] = SimpleQueue()
    thread = threading.Thread(target=work, args=(mailbox,), name=name, daemon=True)
    thread.start()
    return mailbox, partial(_join, thread)


async def _join(thread: threading.Thread) -> None:
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(thread.join)
