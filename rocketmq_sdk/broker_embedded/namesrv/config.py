"""Settings of the name server (`NamesrvConfig`): Apache's names and defaults.

The names are in snake case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

import attrs

from rocketmq_sdk.broker_embedded.settings.apache_names import (
    SETTING,
    evolve_settings,
    export_settings,
    names_in,
    settings_of,
)
from rocketmq_sdk.broker_embedded.settings.changes import check_kept, check_known
from rocketmq_sdk.broker_embedded.store.files.briefly import Turns
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import between

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.settings.changes import KeepsChanges

_NAMES: Final = """
    bindAddress clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest
    configStorePath defaultThreadPoolNums defaultThreadPoolQueueCapacity
    enableControllerInNamesrv enableShutdownGracefully kvConfigPath
    notifyMinBrokerIdChanged productEnvName rocketmqHome scanNotActiveBrokerInterval
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
    serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
    serverWorkerThreads shutdownWaitTimeSeconds supportActingMaster
    unRegisterBrokerQueueCapacity useEpollNativeSelector writeBufferHighWaterMark
    writeBufferLowWaterMark
"""
KNOWN_WITHOUT_EFFECT: Final = frozenset(_NAMES.split())
_REFUSED: Final = {
    "supportActingMaster": (
        "slaves that are shown as masters; "
        "here a slave becomes the master by a start with another role"
    ),
    "notifyMinBrokerIdChanged": "word to brokers whose slaves act as masters, which these do not",
    "enableControllerInNamesrv": "a controller, which this name server has not",
}
ALWAYS_BLACK_LISTED: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)


@attrs.frozen(kw_only=True)
class NamesrvConfig:
    """Settings of the name server.

    There is no scan interval, because brokers are removed the moment they time out.
    """

    order_message_enable: bool = False
    """Whether route answers carry the order configuration of a topic."""
    return_order_topic_config_to_broker: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    delete_topic_with_broker_registration: bool = False
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    listen_port: int = attrs.field(default=9876, validator=between(0, 65535))
    """The port; 0 for any free one, and while there is none."""
    extra: Mapping[str, str] = attrs.field(factory=dict, metadata={SETTING: None})
    """Settings of a request without effect here, kept so that they are shown."""

    def with_settings(self, texts: Mapping[str, str]) -> tuple[Self, list[str]]:
        """The settings changed by texts under Apache's names, and the warnings.

        All are changed or none. Raises `ConfigurationError` for a bad value and for a
        refused setting.
        """
        for name, reason in _REFUSED.items():
            if texts.get(name, "").strip().lower() == "true":
                raise ConfigurationError(f"{name}=true asks for {reason}: leave it out")
        own = settings_of(type(self))
        kept = {name: text for name, text in texts.items() if name not in own}
        changed = evolve_settings(self, {name: text for name, text in texts.items() if name in own})
        warnings = [
            f"the setting {name} has no effect in this name server"
            if name in KNOWN_WITHOUT_EFFECT
            else f"the setting {name} is unknown; it is kept"
            for name in kept
        ]
        return attrs.evolve(changed, extra={**self.extra, **kept}), warnings

    def export(self) -> dict[str, str]:
        """All settings as texts under Apache's names, in alphabetical order."""
        return dict(sorted({**self.extra, **export_settings(self)}.items()))

    def black_list(self) -> frozenset[str]:
        """The settings that no request may change."""
        return ALWAYS_BLACK_LISTED | names_in(self.config_black_list)


class LiveNamesrvConfig:
    """The settings in force, which requests can change while the name server runs."""

    __slots__ = ("_turns", "current", "keeper")

    def __init__(self, config: NamesrvConfig) -> None:
        self.current = config
        self._turns = Turns()
        self.keeper: KeepsChanges | None = None
        """Keeps changes for the next start; None: they are gone then."""

    async def update(self, texts: Mapping[str, str]) -> list[str]:
        """Change settings under Apache's names, all or none, and tell the warnings.

        They are kept for the next start before they are in force. Raises
        `ConfigurationError` for a name that does not exist, for a bad value, for what
        is refused, and for another port; `StoreError` when they cannot be kept.
        """
        async with self._turns:
            return await self._update(texts)

    async def _update(self, texts: Mapping[str, str]) -> list[str]:
        known = {*settings_of(NamesrvConfig), *KNOWN_WITHOUT_EFFECT, *_REFUSED}
        check_known(texts, known | self.current.extra.keys(), "the name server")
        changed, warnings = self._changed(texts)
        if self.keeper is not None:
            old, new = self.current.export(), changed.export()
            kept = {name: new[name] for name in texts if old.get(name) != new[name]}
            await self.keeper.keep(kept)
        self.current = changed
        return warnings

    def take_over(self, texts: Mapping[str, str]) -> None:
        """Put changes of an earlier life in force.

        Raises `ConfigurationError` as `update` does.
        """
        self.current, _warnings = self._changed(texts)

    def _changed(self, texts: Mapping[str, str]) -> tuple[NamesrvConfig, list[str]]:
        changed, warnings = self.current.with_settings(texts)
        if changed.listen_port != self.current.listen_port:
            raise ConfigurationError("listenPort cannot change while the name server runs")
        check_kept(texts)
        return changed, warnings
