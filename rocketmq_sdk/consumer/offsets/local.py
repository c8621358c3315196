"""Offsets that each broadcasting member keeps in a file of its own.

Follows `LocalFileOffsetStore` of Apache RocketMQ 5.4.0: `<directory>/<client
id>/<group>/offsets.json`, with the previous content in `offsets.json.bak`. The text is
Apache's: queues are objects used as keys, which is not valid JSON, but the only form
that clients of every release read. Variants written by older clients are read too.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError, RemoteProtocolError, StoreError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.bodies.offsets import ResetOffsetBody
from rocketmq_sdk.protocol.json.dialect import encode_pretty

if TYPE_CHECKING:
    import os

    from rocketmq_sdk.model.queue import MessageQueue

logger = logging.getLogger("rocketmq_sdk.consumer")

DEFAULT_DIRECTORY: Final = Path("~/.rocketmq_offsets")
_in_use: set[str] = set()


class LocalOffsets:
    """The offsets of one member in its file.

    Call `load` before use; `release` lets others use the file. Commits change the
    table, `flush` writes the file. A file that cannot be written is logged once and
    tried again by the next flush.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None, client_id: str, group: str
    ) -> None:
        base = Path(DEFAULT_DIRECTORY if directory is None else directory).expanduser()
        self.path = base / client_id / group / "offsets.json"
        self._group = group
        self._table: dict[MessageQueue, int] = {}
        self._dirty = False
        self._owns = False
        self._complaint = ""
        self._is_good = False
        """Whether the file holds offsets; a damaged one does not become the backup."""

    def load(self) -> None:
        """Take the file, and read it or its backup.

        Raises `ConfigurationError` when another member of this process has it, and
        `StoreError` when a file exists but neither can be read.
        """
        key = str(self.path.absolute())
        if key in _in_use:
            raise ConfigurationError(
                f"another member of group {self._group!r} keeps its offsets in {self.path} "
                "already; give each member an instance_name of its own"
            )
        _in_use.add(key)
        self._owns = True
        problem: Exception | None = None
        for path in (self.path, self._backup):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(
                    f"the offsets of group {self._group!r} cannot be read: {error}"
                ) from error
            if not text.strip():  # as a power cut leaves it
                continue
            try:
                self._table = dict(ResetOffsetBody.decode(text).offset_table)
            except RemoteProtocolError as error:
                problem = problem or error
                logger.warning(
                    "group %s: %s holds no offsets (%s); the copy of it is tried",
                    self._group,
                    path,
                    error,
                    extra=about(group=self._group),
                )
            else:
                self._is_good = path is self.path
                return
        if problem is not None:
            raise StoreError(
                f"neither {self.path} nor its backup can be read as offsets: {problem}; mend or "
                "remove them"
            ) from problem

    def release(self) -> None:
        """Let others use the file; a second call does nothing."""
        if self._owns:
            self._owns = False
            _in_use.discard(str(self.path.absolute()))

    @property
    def _backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    async def read(self, queue: MessageQueue) -> int | None:
        """The committed offset, or None when there is none."""
        return self._table.get(queue)

    async def commit(self, queue: MessageQueue, offset: int, *, confirmed: bool) -> bool:
        """Keep an offset; with `confirmed` returns whether it is in the file."""
        if self._table.get(queue) != offset:
            self._table[queue] = offset
            self._dirty = True
        return self.flush() if confirmed else True

    def flush(self) -> bool:
        """Write the file if something changed; returns whether it is up to date.

        The old file becomes the backup.
        """
        if not self._dirty:
            return True
        text = encode_pretty(ResetOffsetBody(dict(sorted(self._table.items()))).to_json())
        fresh = self.path.with_name(self.path.name + ".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text, "utf-8")
            if self._is_good and self.path.exists():
                self.path.replace(self._backup)
            fresh.replace(self.path)
        except OSError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                logger.warning(
                    "group %s: its offsets cannot be written, to be tried again: %s",
                    self._group,
                    error,
                    extra=about(group=self._group),
                )
            return False
        self._dirty, self._complaint, self._is_good = False, "", True
        return True
