"""Which files the settings of broker and name server come from and go to."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
from rocketmq_sdk.broker_embedded.settings.changes import (
    BROKER_CHANGES,
    NAMESRV_CHANGES,
    RecordedChanges,
)
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties
from rocketmq_sdk.broker_embedded.settings.settings_file import SettingsFile
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import path_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from rocketmq_sdk.broker_embedded.namesrv.config import LiveNamesrvConfig
    from rocketmq_sdk.broker_embedded.settings.changes import KeepsChanges
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

logger = logging.getLogger(__name__)


class _Settings(Protocol):
    def with_settings(self, texts: Mapping[str, str]) -> tuple[Self, list[str]]: ...

    def export(self) -> dict[str, str]: ...


_S = TypeVar("_S", bound=_Settings)


class _Live(Protocol):
    keeper: KeepsChanges | None

    @property
    def current(self) -> _Settings: ...

    def take_over(self, texts: Mapping[str, str]) -> None: ...


class FilesOfSettings:
    """The properties files that were given, and the records that replace them."""

    __slots__ = ("_broker", "_namesrv")

    def __init__(
        self,
        broker: str | os.PathLike[str] | None,
        namesrv: str | os.PathLike[str] | None,
    ) -> None:
        """Each is a path, or None when there is no such file."""
        self._broker = None if broker is None else SettingsFile(path_of("config_file", broker))
        self._namesrv = (
            None if namesrv is None else SettingsFile(path_of("namesrv_config_file", namesrv))
        )

    def read_broker(self) -> BrokerConfig:
        """What the broker's file says; without one, the defaults.

        Raises `ConfigurationError`. Warnings go to the log.
        """
        return _read(self._broker, _broker_defaults())

    def read_namesrv(self) -> NamesrvConfig:
        """The same for the name server."""
        return _read(self._namesrv, _namesrv_defaults())

    def attach_broker(self, live: LiveConfig, files: FileSystem) -> None:
        """Keep changes from now on; put those of earlier lives in force.

        Raises `StoreCorruptError` or `ConfigurationError` when the record is unusable.
        """
        _attach(live, self._broker, ConfigFile(files, BROKER_CHANGES), _broker_defaults)

    def attach_namesrv(self, live: LiveNamesrvConfig, files: FileSystem) -> None:
        """The same for the name server."""
        _attach(live, self._namesrv, ConfigFile(files, NAMESRV_CHANGES), _namesrv_defaults)


@cache
def _broker_defaults() -> BrokerConfig:
    return BrokerConfig()


@cache
def _namesrv_defaults() -> NamesrvConfig:
    return NamesrvConfig()


def _read(file: SettingsFile | None, defaults: _S) -> _S:
    if file is None:
        return defaults
    settings, warnings = defaults.with_settings(read_properties(file.read()))
    for warning in warnings:
        logger.warning("%s: %s", file.path, warning)
    return settings


def _attach(
    live: _Live, file: SettingsFile | None, record: ConfigFile, defaults: Callable[[], _Settings]
) -> None:
    if file is not None:
        if record.load():
            logger.warning(
                "config/%s is not read, because %s holds the settings", record.name, file.path
            )
        live.keeper = file
        return
    started = live.current
    changes = RecordedChanges(record, lambda: started.export(), lambda: defaults().export())
    texts = changes.load()
    if texts:
        try:
            live.take_over(texts)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"config/{record.name}: {error}; correct or remove the entry"
            ) from error
        logger.info(
            "settings changed in an earlier life are in force: %s",
            ", ".join(f"{name}={text}" for name, text in texts.items()),
        )
    live.keeper = changes
