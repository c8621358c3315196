"""The name server's settings over the wire: requests 318 (update) and 319 (get)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import SETTINGS, Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties, write_properties
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError, StoreError
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.namesrv.config import LiveNamesrvConfig
    from rocketmq_sdk.remoting.channel import Channel, Continuation

logger = logging.getLogger(__name__)


class SettingRequests:
    """Reads and changes the settings."""

    __slots__ = ("_config",)

    def __init__(self, config: LiveNamesrvConfig) -> None:
        self._config = config

    def requests(self) -> Iterable[Request]:
        """Both; their bodies are properties, lines of `name=value`."""
        return (
            Request(
                RequestCode.UPDATE_NAMESRV_CONFIG,
                self.update,
                needs.cluster(Action.UPDATE),
                raw=True,
                body_limit=SETTINGS,
                cost=Cost.BODY,
                writes=Writes.SETTINGS,
            ),
            Request(RequestCode.GET_NAMESRV_CONFIG, self.get, needs.cluster(Action.GET)),
        )

    def update(self, _channel: Channel, command: Command) -> Continuation:
        """UPDATE_NAMESRV_CONFIG (318): all settings of the text or none.

        Warnings go to the log.
        """
        return lambda: self._update(command)

    async def _update(self, command: Command) -> Command:
        try:
            texts = read_properties(command.body.decode())
            if not texts:
                return refuse(ResponseCode.SYSTEM_ERROR, "string2Properties error")
            if self._config.current.black_list() & texts.keys():
                return refuse(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            warnings = await self._config.update(texts)
        except (ConfigurationError, StoreError, UnicodeDecodeError) as error:
            return refuse(ResponseCode.SYSTEM_ERROR, str(error))
        for warning in warnings:
            logger.warning("%s", warning)
        return Command.response()

    def get(self) -> Command:
        """GET_NAMESRV_CONFIG (319)."""
        return Command.response(body=write_properties(self._config.current.export()).encode())
