"""One JSON file below `config/`, replaced in a way that survives a crash.

The protocol is close to that of `ConfigManager` of Apache RocketMQ 5.4.0: the file
becomes `<name>.bak` by an atomic rename, and another one takes its name. Unlike
Apache's, that other one is written and synced first, as `<name>.new`, so that content
whose sync failed never appears under the name. A reader takes the file, or its `.bak`
when the file is missing, empty or broken. A missing `.bak` means defaults, a broken one
is an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rocketmq_sdk.broker_embedded.store.files.briefly import run_briefly
from rocketmq_sdk.broker_embedded.store.files.reserve import write_small
from rocketmq_sdk.errors import FieldError, RemoteProtocolError, StoreCorruptError
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_pretty
from rocketmq_sdk.protocol.text import encode_text

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.protocol.body import Body

_log = logging.getLogger(__name__)
DIRECTORY: Final = "config"
_B = TypeVar("_B", bound="Body")


class ConfigFile:
    """A JSON value under a name such as `topics.json`."""

    __slots__ = ("_files", "_foreign", "_lock", "_path", "_private", "_sound", "name")

    def __init__(self, files: FileSystem, name: str, *, private: bool = False) -> None:
        """A `private` file can be read by its owner alone."""
        self.name = name
        self._private = private
        self._files = files
        self._lock = trio.Lock()
        self._sound = False
        """Whether the file is known to hold what this object wrote or read."""
        self._path = f"{DIRECTORY}/{name}"
        self._foreign: dict[str, object] = {}
        """Members of the object that was read which nobody here knows.

        They are written again with each new value that does not have them.
        """

    def load(self) -> object | None:
        """The value stored last; None when there is none.

        Raises `StoreCorruptError` when neither the file nor its `.bak` can be read.
        """
        # The process that wrote it may have been killed before its names were durable;
        # what is shown now must stay.
        self._files.sync_directory(DIRECTORY)
        found, value = self._read(self._path)
        self._sound = found
        if found:
            return self._remember(value)
        backup = f"{self._path}.bak"
        found, value = self._read(backup)
        if not found and self._files.read(backup):
            raise StoreCorruptError(
                f"{self._files.description}: {self._path} and its .bak hold no JSON; restore one "
                "of them or remove both"
            )
        return self._remember(value)

    def load_body(self, kind: type[_B]) -> _B | None:
        """`load` as a body of some kind.

        Raises `StoreCorruptError` also when the value is no such body.
        """
        value = self.load()
        try:
            return None if value is None else kind.from_json(value)
        except FieldError as error:
            raise StoreCorruptError(
                f"{self._files.description}: {self._path} cannot be read: {error}; restore it from "
                f"{self.name}.bak, or remove both"
            ) from error

    def _remember(self, value: object) -> object:
        self._foreign = dict(value) if isinstance(value, dict) else {}
        return value

    def _encode(self, value: object) -> bytes:
        """The text of a value, with the unknown members of the file.

        A newer broker or another product has written those.
        """
        if isinstance(value, dict) and self._foreign:
            self._foreign = {
                name: kept for name, kept in self._foreign.items() if name not in value
            }
            value = {**self._foreign, **value}
        return encode_text(encode_pretty(value))

    def _read(self, path: str) -> tuple[bool, object | None]:
        data = self._files.read(path)
        if not data:
            return False, None
        try:
            return True, decode_json(data)
        except RemoteProtocolError as error:
            _log.warning("%s: %s cannot be read: %s", self._files.description, path, error)
            return False, None

    def store(self, value: object) -> None:
        """Write the value durably. Raises `StoreError`.

        After an error the value stored before is still there under one of the two
        names.
        """
        self._replace(self._encode(value))

    async def save(self, value: object) -> None:
        """`store`, with the disk's work in a thread when there is a disk.

        The value is encoded before the first checkpoint. A function in its place makes
        it in the thread, out of what nothing changes any more. Concurrent calls write
        in the order of the calls. A call that is cancelled while it waits for its turn
        writes nothing.
        """
        data = None if callable(value) else self._encode(value)
        async with self._lock:
            await self._files.run(
                lambda: self._replace(self._made(value) if data is None else data)
            )

    async def save_briefly(self, value: object) -> None:
        """`save` of a value that nothing changes any more and somebody waits for."""
        async with self._lock:
            await run_briefly(self._files.run, lambda: self._replace(self._made(value)))

    def _made(self, value: object) -> bytes:
        return self._encode(value() if callable(value) else value)

    def _replace(self, data: bytes) -> None:
        files = self._files
        fresh = f"{self._path}.new"
        write_small(files, fresh, data, private=self._private)
        if (self._sound and files.exists(self._path)) or self._read(self._path)[0]:
            files.rename(self._path, f"{self._path}.bak")
        self._sound = False
        files.rename(fresh, self._path)
        files.sync_directory(DIRECTORY)
        files.sync_directory(".")
        self._sound = True
