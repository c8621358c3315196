"""Settings of TLS under Apache's names: `tls.server.mode` and so on.

Apache's broker takes them as properties of the Java machine, and all but the first two
from the file `tls.config.file` (`TlsSystemConfig`, release 5.4.0). Here they stand in
the broker's own properties file, and in that file too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import attrs

from rocketmq_sdk.broker_embedded.settings.apache_names import (
    SECRET,
    SETTING,
    evolve_settings,
    settings_of,
)
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.transport.tls import TlsMode
from rocketmq_sdk.transport.tls_files import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable

_NOT_IN_THE_FILE: Final = frozenset(("tls.server.mode", "useTLS", "tls.config.file"))
_ASKED: Final = ("none", "optional", "require")


def _one_of(*words: str) -> Callable[[object, attrs.Attribute[str], str], None]:
    def check(_instance: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in words:
            raise ConfigurationError(
                f"{attribute.metadata[SETTING]}={value} is not acceptable; write "
                f"{' or '.join(words)}"
            )

    return check


def _text(name: str) -> str | None:
    value: str | None = attrs.field(default=None, metadata={SETTING: name})
    return value


def _password(name: str) -> str | None:
    metadata = {SETTING: name, SECRET: True}
    value: str | None = attrs.field(default=None, repr=False, metadata=metadata)
    return value


def _yes_or_no(name: str) -> bool:
    value: bool = attrs.field(default=False, metadata={SETTING: name})
    return value


def _word(name: str, *words: str) -> str:
    value: str = attrs.field(
        default=words[0],
        validator=_one_of(*words),
        metadata={SETTING: name},
    )
    return value


@attrs.frozen(kw_only=True)
class TlsConfig:
    """TLS of a broker's ports, and of its own calls. Paths are of PEM files.

    Raises `ConfigurationError` for a value that is not acceptable.
    """

    tls_server_mode: str = _word("tls.server.mode", "permissive", "disabled", "enforcing")
    """Whether connections may be TLS, are plain, or have to be TLS."""
    use_tls: bool = _yes_or_no("useTLS")
    """Whether calls to name servers elsewhere and to the master are TLS."""
    tls_config_file: str | None = _text("tls.config.file")
    """A file with the settings below; it wins over them."""
    tls_server_cert_path: str | None = _text("tls.server.certPath")
    tls_server_key_path: str | None = _text("tls.server.keyPath")
    tls_server_key_password: str | None = _password("tls.server.keyPassword")
    tls_server_trust_cert_path: str | None = _text("tls.server.trustCertPath")
    """The authorities of clients' certificates."""
    tls_server_need_client_auth: str = _word("tls.server.need.client.auth", *_ASKED)
    """Whether clients have to show a certificate."""
    tls_server_auth_client: bool = _yes_or_no("tls.server.authClient")
    """Without effect: a certificate that is shown is always checked here."""
    tls_client_cert_path: str | None = _text("tls.client.certPath")
    """The certificate that the broker's own calls show."""
    tls_client_key_path: str | None = _text("tls.client.keyPath")
    tls_client_key_password: str | None = _password("tls.client.keyPassword")
    tls_client_trust_cert_path: str | None = _text("tls.client.trustCertPath")
    """The authorities of the servers that are called; None: those of the system."""
    tls_client_auth_server: bool = _yes_or_no("tls.client.authServer")
    """Whether certificates of those servers are checked."""

    def complete(self) -> Self:
        """The settings with those of `tls.config.file`.

        Raises `ConfigurationError` when it cannot be read.
        """
        if self.tls_config_file is None:
            return self
        path = self.tls_config_file
        try:
            texts = read_properties(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"tls.config.file={path} cannot be read: {type(error).__name__}"
            ) from None
        known = settings_of(type(self)).keys() - _NOT_IN_THE_FILE
        return evolve_settings(self, {name: text for name, text in texts.items() if name in known})

    @property
    def mode(self) -> TlsMode:
        """Which connections the ports take."""
        return TlsMode(self.tls_server_mode)

    @property
    def server(self) -> TlsFiles | None:
        """The files of the ports; None without a certificate."""
        if self.tls_server_cert_path is None and self.tls_server_key_path is None:
            return None
        asked = self.tls_server_need_client_auth
        return TlsFiles(
            certificate=self.tls_server_cert_path,
            key=self.tls_server_key_path,
            password=self.tls_server_key_password,
            trust=self.tls_server_trust_cert_path,
            ask=asked == "optional",
            require=asked == "require",
        )

    @property
    def client(self) -> TlsFiles | None:
        """The files of the broker's own calls; None when those are plain."""
        if not self.use_tls:
            return None
        return TlsFiles(
            certificate=self.tls_client_cert_path,
            key=self.tls_client_key_path,
            password=self.tls_client_key_password,
            trust=self.tls_client_trust_cert_path,
            verify=self.tls_client_auth_server,
        )
