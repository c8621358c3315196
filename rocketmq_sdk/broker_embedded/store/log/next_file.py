"""The next file of the log, made before it is needed.

`AllocateMappedFileService` of Apache RocketMQ 5.4.0. A thread makes it beside the log's
directory, under another name, so that whoever looks at the directory, or opens it after
a kill, sees only files that are in use; the append that needs the file renames it. When
it is not ready, or there is no space for it, that append makes one itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.files.file_chain import NextFile
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog

_log = logging.getLogger(__name__)
PATH: Final = "commitlog.next"
_WARM_STEP: Final = 1024 * 1024


class NextFileMaker:
    """Keeps one file ready while it runs."""

    def __init__(self, files: FileSystem, log: CommitLog, config: StoreConfig) -> None:
        self._files = files
        self._log = log
        self._size = config.mapped_file_size_commit_log
        self._step = min(config.allocation_step, files.allocation_limit, self._size)
        self._warm = config.warm_maped_file_enable
        self._wanted = trio.Event()

    def ask(self) -> None:
        """Ask for a file; the log has begun one, so the next one will be needed."""
        self._wanted.set()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve until cancelled. Sleeps while the log has no file."""
        self._log.on_enter = self.ask
        if self._log.chain.files:
            self.ask()
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            if self._log.chain.next_file is None:
                self._log.chain.next_file = await self._files.run(self._make)

    def _make(self) -> NextFile | None:
        try:
            file = self._files.create(PATH, self._size)
            try:
                if self._warm:
                    for at in range(0, self._size, _WARM_STEP):
                        file.pwrite(bytes(min(_WARM_STEP, self._size - at)), at)
                else:
                    file.allocate(0, self._step)
                file.sync()
            finally:
                file.close()
        except StoreError as error:
            _log.info("the next file of the log is not made ahead: %s", error)
            remove_leftover(self._files)
            return None
        return NextFile(PATH, self._size if self._warm else self._step)


def remove_leftover(files: FileSystem) -> None:
    """Remove a file that was made and never used."""
    try:
        files.remove(PATH)
    except StoreError as error:
        _log.warning("%s stays: %s", PATH, error)
