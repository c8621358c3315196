"""Registration at name servers: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.part import Part, Service
from rocketmq_sdk.broker_embedded.registration.service import RegistrationService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller, BrokerIdentity
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Continuation


class RegistrationPart(Part):
    """Tells name servers what this broker is and holds."""

    __slots__ = ("service",)

    def __init__(
        self,
        core: Core,
        namesrv: NameServer,
        caller: AddressCaller | None,
        identity: Callable[[], BrokerIdentity],
    ) -> None:
        self.service = RegistrationService(
            core.config, core.topics, identity=identity, namesrv=namesrv, caller=caller
        )
        core.topics.on_change = self.service.topic_changed

    def services(self) -> Iterable[Service]:
        """Registering again and again."""
        return (Service("registration", self.service.run, on_call=self.service.begin()),)

    async def leave(self) -> None:
        """Tell the name servers that the broker is gone."""
        await self.service.unregister()

    def answer_when_registered(self, answer: Command) -> Command | Continuation:
        """An answer that leaves when the name servers know the change.

        It waits no longer than registration allows for it.
        """
        wait = self.service.waiting()
        if wait is None:
            return answer

        async def finish() -> Command:
            await wait()
            return answer

        return finish
