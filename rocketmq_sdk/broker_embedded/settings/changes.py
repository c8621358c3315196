"""Settings changed while broker and name server run: where they are kept.

Apache writes them into the properties file that its broker was started with; without
one they are gone after a restart. Here such a file is written as well (`SettingsFile`).
Without one, `RecordedChanges` keeps a record beside the tables of the store.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.errors import ConfigurationError, StoreCorruptError, StoreError
from rocketmq_sdk.validators import no_such_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

logger = logging.getLogger(__name__)

BROKER_CHANGES: Final = "changedSettings.json"
NAMESRV_CHANGES: Final = "namesrvChangedSettings.json"
_CHANGES: Final = "changes"
_NOW: Final = "value"
_STARTED_WITH: Final = "startedWith"


class KeepsChanges(Protocol):
    """Keeps changed settings for the next start."""

    async def keep(self, changed: Mapping[str, str]) -> None:
        """Keep texts under Apache's names; it is done when this returns.

        Cancellation does not interrupt it. Raises `StoreError` when they cannot be
        written; what was kept before still is.
        """
        ...


class JsonFile(Protocol):
    """A file that holds one JSON value: `store.files.config_file.ConfigFile` is one."""

    name: str

    def load(self) -> object | None:
        """The value, or None when there is none yet."""
        ...

    def store(self, value: object) -> None:
        """Write the value durably. Raises `StoreError`."""
        ...

    async def save_briefly(self, value: object) -> None:
        """`store` a value that nothing changes any more, beside the loop."""
        ...


class RecordedChanges:
    """A record of changed settings beside the tables of the store.

    Each entry names the new text and the one that the broker was started with, None for
    a default. A change holds over restarts until it is changed back, its entry is
    removed, or a start gives the setting another value than the noted one: of both, the
    decision that was made last wins.
    """

    def __init__(
        self,
        file: JsonFile,
        started: Callable[[], Mapping[str, str]],
        defaults: Callable[[], Mapping[str, str]],
    ) -> None:
        """`started` gives the settings of this start, with Apache's names.

        It and `defaults` are asked when there is a change to compare with them.
        """
        self._file = file
        self._settings, self._of_nobody = started, defaults
        self._entries: dict[str, tuple[str, str | None]] = {}

    @cached_property
    def _defaults(self) -> Mapping[str, str]:
        return self._of_nobody()

    @cached_property
    def _started(self) -> Mapping[str, str]:
        """What the start gave, where that is no default."""
        return {
            name: text
            for name, text in self._settings().items()
            if self._defaults.get(name) != text
        }

    def load(self) -> dict[str, str]:
        """The changes that hold at this start.

        Those that a start overrules are told in the log and forgotten. Raises
        `StoreCorruptError` when the file holds something else.
        """
        entries = _decode(self._file.name, self._file.load())
        if not entries:
            return {}
        self._entries = {
            name: entry for name, entry in entries.items() if entry[1] == self._started.get(name)
        }
        for name in entries.keys() - self._entries.keys():
            logger.warning(
                "%s=%s, set while the broker ran, is dropped: this start asks for %s",
                name,
                entries[name][0],
                self._started.get(name, "the default"),
            )
        if len(self._entries) < len(entries):
            try:
                self._file.store(_encode(self._entries))
            except StoreError as error:
                logger.warning("what is dropped stays in the record for now: %s", error)
        return {name: text for name, (text, _) in self._entries.items()}

    async def keep(self, changed: Mapping[str, str]) -> None:
        """Note changed settings. Raises `StoreError`; nothing is changed then."""
        entries = dict(self._entries)
        for name, text in changed.items():
            started = self._started.get(name)
            if text == (self._defaults.get(name) if started is None else started):
                entries.pop(name, None)
            else:
                entries[name] = (text, started)
        if entries != self._entries:
            with trio.CancelScope(shield=True):
                await self._file.save_briefly(_encode(entries))
            self._entries = entries


def _encode(entries: Mapping[str, tuple[str, str | None]]) -> dict[str, object]:
    return {
        _CHANGES: {
            name: {_NOW: text, _STARTED_WITH: started}
            for name, (text, started) in sorted(entries.items())
        }
    }


def check_known(texts: Mapping[str, str], known: Set[str], owner: str = "the broker") -> None:
    """Refuse names that do not exist.

    Apache ignores them without a word to whoever asks (`Configuration.mergeIfExist`).
    Raises `ConfigurationError` with the nearest names.
    """
    for name in texts:
        if name not in known:
            raise ConfigurationError(no_such_setting(name, known, owner))


def check_kept(texts: Mapping[str, str]) -> None:
    """Raises `ConfigurationError` for a text that would break the lines in which it is
    shown.
    """
    for name, text in texts.items():
        if not (name.isprintable() and text.isprintable()):
            raise ConfigurationError(f"{name!r} or its value holds a line end or the like")


def _decode(name: str, content: object) -> dict[str, tuple[str, str | None]]:
    if content is None:
        return {}
    changes = content.get(_CHANGES, {}) if isinstance(content, dict) else None
    entries: dict[str, tuple[str, str | None]] = {}
    if isinstance(changes, dict):
        for setting, entry in changes.items():
            now = entry.get(_NOW) if isinstance(entry, dict) else None
            started = entry.get(_STARTED_WITH) if isinstance(entry, dict) else None
            if isinstance(now, str) and (started is None or isinstance(started, str)):
                entries[setting] = (now, started)
        if len(entries) == len(changes):
            return entries
    raise StoreCorruptError(
        f"config/{name} holds no record of changed settings; restore it from {name}.bak or "
        "remove it, then the settings are those that the start gives"
    )
