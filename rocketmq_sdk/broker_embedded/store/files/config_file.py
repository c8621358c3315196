"""One JSON file below `config/`, replaced in a way that survives a crash.

The protocol is close to that of `ConfigManager` of Apache RocketMQ 5.4.0: the file
becomes `<name>.bak` by an atomic rename, and another one takes its name. Unlike
Apache's, that other one is written and synced first, as `<name>.new`, so that content
whose sync failed never appears under the name. A reader takes the file, or its `.bak`
when the file is missing, empty or broken. A missing `.bak` means defaults, a broken one
is an error. A broken file is kept as `<name>.broken`, where Apache's next write would
overwrite it.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rocketmq_sdk.broker_embedded.store.files.briefly import run_briefly
from rocketmq_sdk.broker_embedded.store.files.reserve import write_small
from rocketmq_sdk.errors import FieldError, RemoteProtocolError, StoreCorruptError, StoreError
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_pretty
from rocketmq_sdk.protocol.text import encode_text

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.protocol.body import Body

_log = logging.getLogger(__name__)
DIRECTORY: Final = "config"
BROKEN: Final = ".broken"
"""What is put behind the name of a file that holds no JSON; a number may follow."""
_B = TypeVar("_B", bound="Body")


class ConfigFile:
    """A JSON value under a name such as `topics.json`."""

    __slots__ = ("_files", "_foreign", "_made_lock", "_path", "_private", "_sound", "name")

    def __init__(self, files: FileSystem, name: str, *, private: bool = False) -> None:
        """A `private` file can be read by its owner alone."""
        self.name = name
        self._private = private
        self._files = files
        self._made_lock: trio.Lock | None = None
        self._sound = False
        """Whether the file is known to hold what this object wrote or read."""
        self._path = f"{DIRECTORY}/{name}"
        self._foreign: dict[str, object] = {}
        """Members of the object that was read which nobody here knows.

        They are written again with each new value that does not have them.
        """

    @property
    def _lock(self) -> trio.Lock:
        """Made with the first save: most files of a broker in memory have none."""
        if self._made_lock is None:
            self._made_lock = trio.Lock()
        return self._made_lock

    def load(self) -> object | None:
        """The value stored last; None when there is none.

        Raises `StoreCorruptError` when neither the file nor its `.bak` can be read.
        """
        # The process that wrote it may have been killed before its names were durable;
        # what is shown now must stay.
        self._files.sync_directory(DIRECTORY)
        found, value, broken = self._read(self._path)
        self._sound = found
        if found:
            return self._remember(value)
        found, value, also_broken = self._read(f"{self._path}.bak")
        if also_broken:
            raise StoreCorruptError(
                f"{self._files.description}: {self._path} and its .bak hold no JSON; restore one "
                "of them or remove both"
            )
        if broken:
            instead = "its .bak is used" if found else "there is no .bak, so it begins anew"
            try:
                self._keep_aside(instead)
            except StoreError as error:
                _log.error("%s: %s is broken, %s: %s", self._where, self._path, instead, error)
        return self._remember(value)

    def _keep_aside(self, instead: str) -> None:
        """Give the broken file a name that nothing overwrites. Raises `StoreError`."""
        names = (f"{self._path}{BROKEN}{'' if n == 0 else f'.{n}'}" for n in count())
        kept = next(name for name in names if not self._files.exists(name))
        self._files.rename(self._path, kept)
        self._files.sync_directory(DIRECTORY)
        _log.error(
            "%s: %s holds no JSON and is kept as %s; %s", self._where, self._path, kept, instead
        )

    @property
    def _where(self) -> str:
        return self._files.description

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

    def _read(self, path: str) -> tuple[bool, object | None, bool]:
        """Whether the file holds a value, the value, and whether it is broken."""
        data = self._files.read(path)
        if not data:
            return False, None, False
        try:
            return True, decode_json(data), False
        except RemoteProtocolError as error:
            _log.warning("%s: %s cannot be read: %s", self._where, path, error)
            return False, None, True

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
        sound = self._sound and files.exists(self._path)
        if not sound:
            sound, _value, broken = self._read(self._path)
            if broken:
                self._keep_aside("another value takes its place")
        if sound:
            files.rename(self._path, f"{self._path}.bak")
        self._sound = False
        files.rename(fresh, self._path)
        files.sync_directory(DIRECTORY)
        files.sync_directory(".")
        self._sound = True


def broken_files(files: FileSystem) -> tuple[str, ...]:
    """What an operator has to know of tables that were broken, in words."""
    try:
        names = [name for name, _size in files.file_sizes(DIRECTORY) if BROKEN in name]
    except StoreError:
        return ()
    return tuple(
        f"{DIRECTORY}/{name} was broken when it was read and is kept under this name; restore the "
        "table from it or remove it"
        for name in sorted(names)
    )
