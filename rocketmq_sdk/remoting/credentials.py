"""Keys of an account, and the interceptor that signs each request with them.

Follows `AclClientRPCHook`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.protocol.signing import sign_in_place
from rocketmq_sdk.validators import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.protocol.command import Command


@explained
@attrs.frozen
class Credentials:
    """The keys of an account; the secrets are in no repr.

    `security_token` goes with temporary keys. Raises `ConfigurationError` when a key is
    missing.
    """

    access_key: str
    secret_key: str = attrs.field(repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        missing = [
            name
            for name, value in (("access key", self.access_key), ("secret key", self.secret_key))
            if not value
        ]
        if missing:
            raise ConfigurationError(f"the credentials have no {' and no '.join(missing)}")
        for name, value in attrs.asdict(self).items():
            if not isinstance(value, str | None):
                raise WrongTypeError(f"{name} is of type {type(value).__name__}; give a text")

    @classmethod
    def from_file(cls, path: str) -> Credentials:
        """The credentials of a properties file.

        Its keys are `accessKey`, `secretKey` and optionally `securityToken`.

        Raises `ConfigurationError` when it cannot be read or lacks a key; the text
        shows nothing of the file's content.
        """
        path = path_of("path", path)
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"the credentials file {path} cannot be read: {type(error).__name__}"
            ) from None
        pairs = (line.partition("=") for line in lines if not line.lstrip().startswith(("#", "!")))
        return cls._of(
            {name.strip(): value.strip() for name, _, value in pairs},
            "accessKey",
            "secretKey",
            "securityToken",
            f"the file {path}",
        )

    @classmethod
    def from_environment(cls, prefix: str, environment: Mapping[str, str]) -> Credentials:
        """The credentials in environment variables.

        They are `<prefix>_ACCESS_KEY`, `<prefix>_SECRET_KEY` and optionally
        `<prefix>_SECURITY_TOKEN`.

        Raises `ConfigurationError` naming the variable that is missing.
        """
        return cls._of(
            environment,
            f"{prefix}_ACCESS_KEY",
            f"{prefix}_SECRET_KEY",
            f"{prefix}_SECURITY_TOKEN",
            "the environment",
        )

    @classmethod
    def _of(
        cls, values: Mapping[str, str], access: str, secret: str, token: str, source: str
    ) -> Credentials:
        missing = [name for name in (access, secret) if not values.get(name)]
        if missing:
            raise ConfigurationError(f"{source} has no {' and no '.join(missing)}")
        return cls(values[access], values[secret], values.get(token) or None)


class Signing:
    """Signs every request.

    Give it to a client's `interceptors`, behind those that change requests.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before(self, command: Command, address: str | None) -> None:  # noqa: ARG002 - the interface
        """Add access key, security token and signature to the fields."""
        keys = self._credentials
        sign_in_place(
            command.ext_fields, command.body, keys.access_key, keys.secret_key, keys.security_token
        )

    def after(self, command: Command, response: Command, address: str | None) -> None:
        """Answers are not signed."""
