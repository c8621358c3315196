"""How a reader or writer reaches the cluster.

The value pickles, and it is the key of the cached clients. Files and environment
variables are read where a connection is made, and again when a broker refuses the keys,
so keys of `credentialsFile` and `credentialsEnv` never leave their machine.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from rocketmq_sdk.client.config import ClientOptions
    from rocketmq_sdk.remoting.credentials import Credentials
    from rocketmq_sdk.spark.options.settings import SparkOptions


@attrs.frozen
class ClusterAccess:
    """Name servers, keys, certificates and namespace of one configuration."""

    namesrv: str
    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)
    credentials_file: str | None = None
    credentials_env: str | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_check_hostname: bool = True
    namespace: str | None = None

    @classmethod
    def of(cls, settings: SparkOptions) -> ClusterAccess:
        """What the options say about reaching the cluster."""
        names = [field.name for field in attrs.fields(cls) if field.name != "namesrv"]
        return cls(settings.namesrv_addr, **{name: getattr(settings, name) for name in names})

    def client_options(self) -> ClientOptions:
        """Options of a client on this machine.

        Raises `ConfigurationError` for keys or certificates that cannot be read.
        """
        options: ClientOptions = {}
        credentials = self.credentials()
        if credentials is not None:
            from rocketmq_sdk.spark.cluster.signing import FreshSigning

            options["interceptors"] = (FreshSigning(credentials, self.credentials),)
        if self.tls:
            options["tls"] = self._tls()
        if self.namespace:
            options["namespace"] = self.namespace
        return options

    def credentials(self) -> Credentials | None:
        """The keys as they are now; None without any.

        Raises `ConfigurationError` where file or environment do not have them.
        """
        from rocketmq_sdk.remoting.credentials import Credentials

        if self.access_key is not None:
            return Credentials(self.access_key, self.secret_key or "", self.security_token)
        if self.credentials_file is not None:
            return Credentials.from_file(self.credentials_file)
        if self.credentials_env is not None:
            return Credentials.from_environment(self.credentials_env, os.environ)
        return None

    def _tls(self) -> ssl.SSLContext:
        what = (
            f"certificates of {self.tls_ca_file}"
            if self.tls_ca_file
            else "certificates of the system"
        )
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file)
            context.check_hostname = self.tls_check_hostname
            if self.tls_cert_file is not None:
                what = f"certificate and key {self.tls_cert_file}, {self.tls_key_file}"
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"the {what} cannot be used: {error}") from None
        return context
