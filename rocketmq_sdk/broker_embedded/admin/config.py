"""The broker's settings over the wire: requests 25 (update) and 26 (get)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import SETTINGS, Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties, write_properties
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.admin import GetBrokerConfigResponseHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.registration.part import RegistrationPart
    from rocketmq_sdk.remoting.channel import Channel, Continuation

logger = logging.getLogger(__name__)


class SettingRequests:
    """The broker's settings, read and changed while it runs."""

    __slots__ = ("_core", "_registration")

    def __init__(self, core: Core, registration: RegistrationPart) -> None:
        self._core = core
        self._registration = registration

    def requests(self) -> Iterable[Request]:
        """Change and show."""
        return (
            Request(
                RequestCode.UPDATE_BROKER_CONFIG,
                self.update_config,
                needs.cluster(Action.UPDATE),
                raw=True,
                body_limit=SETTINGS,
                cost=Cost.BODY,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.GET_BROKER_CONFIG,
                self.get_config,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
        )

    def update_config(self, _channel: Channel, command: Command) -> Command | Continuation:
        """UPDATE_BROKER_CONFIG (25): change all settings of the text or none.

        A name that does not exist is refused, where Apache's broker ignores it without
        a word. Changes are kept for the next start (`settings.changes`); what cannot be
        is refused.
        """
        try:
            texts = read_properties(command.body.decode())
        except UnicodeDecodeError as error:
            return refuse(ResponseCode.SYSTEM_ERROR, f"UnsupportedEncodingException {error}")
        if not texts:
            return refuse(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if self._core.config.current.black_list() & texts.keys():
            return refuse(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        shown = self._shown()
        texts = {name: text for name, text in texts.items() if shown.get(name) != text}
        return lambda: self._update(texts)

    async def _update(self, texts: Mapping[str, str]) -> Command | None:
        config, now = self._core.config, self._core.clock.now_ms()
        for warning in await config.update_and_keep(texts, now):
            logger.warning("%s", warning)
        answer = self._registration.answer_when_registered(Command.response())
        return answer if isinstance(answer, Command) else await answer()

    def get_config(self) -> Command:
        """GET_BROKER_CONFIG (26)."""
        version = self._core.config.data_version.encode().decode()
        return Command.response(
            0,
            GetBrokerConfigResponseHeader(version=version),
            body=write_properties(self._shown()).encode(),
        )

    def _shown(self) -> dict[str, str]:
        """All settings, with the port in use and the own name server among them."""
        shown = self._core.config.current.export()
        shown["listenPort"] = str(split_address(self._core.address())[1])
        if servers := self._registration.service.name_servers:
            shown["namesrvAddr"] = ";".join(servers)
        return dict(sorted(shown.items()))
