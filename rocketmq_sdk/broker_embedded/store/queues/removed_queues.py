"""Directories of the queues of deleted topics, until their files are removed.

A topic may have thousands of queue files. To remove them takes tens of milliseconds, in
which nobody would be served. So a deletion gives the directory another name, which no
topic can have, and a thread removes it. What a crash or a stop leaves goes at the next
start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_log = logging.getLogger(__name__)
_PREFIX: Final = "~removed."
MAX_QUEUE_ID: Final = (1 << 31) - 1
_TRY_AGAIN: Final = 30.0


def topic_directories(names: list[str]) -> list[str]:
    """Those of the directories of queues that are named after a topic.

    A name that is no UTF-8, which Python gives with surrogates, is none of a topic.
    """
    return [name for name in names if not name.startswith(_PREFIX) and _is_text(name)]


def queue_directories(names: list[str]) -> list[int]:
    """The ids of the queues whose directories are among those of a topic."""
    return [
        int(name)
        for name in names
        if name.isascii() and name.isdecimal() and name == _queue_name(name)
    ]


def _queue_name(digits: str) -> str:
    """What the directory of the queue with an id is called; empty for no id."""
    number = int(digits)
    return str(number) if number <= MAX_QUEUE_ID else ""


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class RemovedQueues:
    """What waits to be removed. Belongs to the store's thread."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._waiting: list[str] = []
        self._wanted = trio.Event()
        self._number = 0
        self.on_call = OnCall()
        """Called when something waits."""

    def find(self, parent: str) -> None:
        """Find what a life before has left in a directory of queues."""
        for name in self._files.directory_names(parent):
            if name.startswith(_PREFIX):
                self._await_removal(f"{parent}/{name}")

    def put_away(self, parent: str, topic: str) -> bool:
        """Take the directory of a topic away; False when there is none.

        It is durable after `sync_directory(parent)`. Raises `StoreError`.
        """
        files, path = self._files, f"{parent}/{topic}"
        if not files.exists(path):
            return False
        away = f"{parent}/{_PREFIX}{self._number}"
        while files.exists(away):
            self._number += 1
            away = f"{parent}/{_PREFIX}{self._number}"
        try:
            files.rename(path, away)
        except StoreError as error:
            _log.info("%s is removed where it is: %s", path, error)
            files.remove_tree(path)
        else:
            self._await_removal(away)
        return True

    def _await_removal(self, path: str) -> None:
        self._waiting.append(path)
        self._wanted.set()
        self.on_call.call()

    async def run(self) -> None:
        """Remove what waits, until cancelled; what cannot be removed is tried again."""
        told = False
        if self._waiting:
            self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._waiting:
                path = self._waiting[0]
                try:
                    await self._files.run(lambda path=path: self._remove(path))  # type: ignore[misc]
                except StoreError as error:
                    if not told:
                        _log.warning("queues of a deleted topic stay for now: %s", error)
                    told = True
                    await trio.sleep(_TRY_AGAIN)
                else:
                    self._waiting.remove(path)
                    told = False

    def _remove(self, path: str) -> None:
        self._files.remove_tree(path)
        self._files.sync_directory(path.rpartition("/")[0])
