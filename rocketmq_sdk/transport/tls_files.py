"""TLS contexts out of files, made again when the files change.

Files as Apache's `TlsHelper` takes them: PEM certificates, PEM private keys in PKCS#8,
with or without a password. Connections that are open keep what they began with.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("rocketmq_sdk.transport")

ContextSource = Callable[[], ssl.SSLContext]
"""Gives the context for a new connection."""
WATCH_INTERVAL: Final = 5.0
"""Seconds between two looks at the files."""


@attrs.frozen(kw_only=True)
class TlsFiles:
    """What one side of connections shows, and whom it trusts; paths, all in PEM.

    `trust` holds the certificates of authorities. A server asks its clients for a
    certificate by `ask` (they may have none) or `require`. A client checks the server's
    certificate if it has `verify`; its host name is not compared, because brokers are
    addressed by their IPs (as with Apache's clients).
    """

    certificate: str | None = None
    key: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    trust: str | None = None
    ask: bool = False
    require: bool = False
    verify: bool = False

    def paths(self) -> list[str]:
        """The files that there have to be."""
        return [path for path in (self.certificate, self.key, self.trust) if path]

    def server_context(self) -> ssl.SSLContext:
        """The context of a server. Raises `ConfigurationError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load_own(context)
        if self.ask or self.require:
            if self.trust is None:
                raise ConfigurationError(
                    "certificates of clients are checked with those of authorities: "
                    "set tls.server.trustCertPath"
                )
            self._load_trusted(context)
            context.verify_mode = ssl.CERT_REQUIRED if self.require else ssl.CERT_OPTIONAL
        return context

    def client_context(self) -> ssl.SSLContext:
        """The context of a client. Raises `ConfigurationError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        if self.certificate is not None:
            self._load_own(context)
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        elif self.trust is None:
            context.load_default_certs()
        else:
            self._load_trusted(context)
        return context

    def _load_own(self, context: ssl.SSLContext) -> None:
        if self.certificate is None or self.key is None:
            raise ConfigurationError(
                "TLS needs a certificate and its key: set tls.server.certPath and "
                "tls.server.keyPath"
            )
        # Without a password OpenSSL would ask at the terminal.
        password = self.password or ""
        try:
            context.load_cert_chain(self.certificate, self.key, lambda: password)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the certificate {self.certificate} and the key {self.key} cannot be used: "
                f"{_reason(error)}"
            ) from None

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(self.trust)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the certificates {self.trust} cannot be used: {_reason(error)}"
            ) from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error)


class LiveContext:
    """The context in force, a `ContextSource`; `run` makes it anew as its files change.

    While new files cannot be used, the old context stays in force, and iterating says
    why. Raises `ConfigurationError` when the files cannot be used at the start.
    """

    __slots__ = ("_files", "_make", "_stamp", "context", "problem")

    def __init__(self, files: TlsFiles, *, server: bool) -> None:
        self._files = files
        self._make = files.server_context if server else files.client_context
        self._stamp = self._stamp_now()
        self.context = self._make()
        self.problem: str | None = None

    def __call__(self) -> ssl.SSLContext:
        return self.context

    def __iter__(self) -> Iterator[str]:
        if self.problem is not None:
            yield self.problem

    def _stamp_now(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in self._files.paths():
            try:
                status = Path(path).stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _look(self) -> ssl.SSLContext | None:
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return None
        context = self._make()
        # Files that are written one after the other are looked at once more.
        self._stamp = stamp
        return context

    async def run(self) -> None:
        """Look at the files now and then, until cancelled."""
        while True:
            await trio.sleep(WATCH_INTERVAL)
            try:
                context = await trio.to_thread.run_sync(self._look)
            except ConfigurationError as error:
                if self.problem is None:
                    logger.error("%s; the certificates before stay in force", error)
                self.problem = f"{error}; the certificates before stay in force"
                continue
            self.problem = None
            if context is not None:
                self.context = context
                logger.info("certificates were read again: %s", ", ".join(self._files.paths()))
