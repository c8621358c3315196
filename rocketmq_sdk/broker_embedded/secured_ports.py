"""TLS of one broker: for its ports, the one for slaves too, and for its own calls."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.part import Service
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.transport.tls import TlsMode, accept_tls, start_client_tls
from rocketmq_sdk.transport.tls_files import LiveContext

if TYPE_CHECKING:
    from collections.abc import Iterable

    import trio

    from rocketmq_sdk.broker_embedded.settings.tls import TlsConfig
    from rocketmq_sdk.transport.tls_files import ContextSource


class SecuredPorts:
    """What speaks TLS, with the context for each new connection."""

    __slots__ = ("_live", "client", "mode", "server")

    def __init__(self, config: TlsConfig, given: ssl.SSLContext | None) -> None:
        """`given` is the context of the ports that a program made itself.

        Raises `ConfigurationError` for files that cannot be used, and for ports that
        take TLS alone and have no certificate.
        """
        if given is not None and not isinstance(given, ssl.SSLContext):
            raise WrongTypeError(
                f"tls is {given!r:.200}; give an ssl.SSLContext that holds the broker's certificate"
            )
        config = config.complete()
        self.mode = config.mode
        self._live: list[LiveContext] = []
        self.server: ContextSource | None = None if given is None else lambda: given
        """The context of a port's new connection; None without a certificate."""
        self.client: ContextSource | None = None
        """The context of a call's new connection; None: they are plain."""
        if given is None and config.server is not None and self.mode is not TlsMode.DISABLED:
            self.server = self._watched(LiveContext(config.server, server=True))
        if config.client is not None:
            self.client = self._watched(LiveContext(config.client, server=False))
        if self.mode is TlsMode.ENFORCING and self.server is None:
            raise ConfigurationError(
                "tls.server.mode=enforcing needs a certificate: set tls.server.certPath and "
                "tls.server.keyPath"
            )

    def _watched(self, context: LiveContext) -> LiveContext:
        self._live.append(context)
        return context

    def services(self) -> Iterable[Service]:
        """Reading certificates again when their files change."""
        return [
            Service("reload of TLS certificates", each.run, trouble=each) for each in self._live
        ]

    async def accept(self, stream: trio.abc.Stream, address: str) -> trio.abc.Stream:
        """The stream to speak on with a peer that has connected to the port for slaves.

        Raises `ConnectError`.
        """
        if self.server is None:
            return stream
        return await accept_tls(stream, self.server(), mode=self.mode, address=address)

    async def secure(self, stream: trio.abc.Stream, host: str, address: str) -> trio.abc.Stream:
        """The stream to speak on with a server that was connected to.

        Raises `ConnectError`.
        """
        if self.client is None:
            return stream
        return await start_client_tls(stream, self.client(), host=host, address=address)
