"""Users: who may sign requests, with which secret.

Follows `User`, `UserType` and `UserStatus` of Apache RocketMQ 5.4.0. A signature can be
checked only with the secret itself, so it is kept as it is; no text about a user shows
it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Self

import attrs

from rocketmq_sdk.errors import ConfigurationError, RemoteProtocolError
from rocketmq_sdk.protocol.bodies.access import UserInfo
from rocketmq_sdk.protocol.json.dialect import decode_json

SUBJECT_PREFIX: Final = "User:"


class UserType(Enum):
    """A `SUPER` user may do everything; what a `NORMAL` one may, his policies say."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Whether signatures of the user count."""

    ENABLE = "enable"
    DISABLE = "disable"


@attrs.frozen
class User:
    """A user; `password` is the secret that requests are signed with."""

    username: str
    password: str = attrs.field(repr=False)
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether policies do not matter."""
        return self.user_type is UserType.SUPER

    @property
    def subject(self) -> str:
        """The user as policies and remarks name him."""
        return SUBJECT_PREFIX + self.username

    def info(self, *, password: bool = True) -> UserInfo:
        """The user as requests and files carry him."""
        return UserInfo(
            self.username,
            self.password if password else None,
            self.user_type.value,
            self.user_status.value,
        )

    @classmethod
    def from_info(cls, info: UserInfo) -> Self:
        """The user of a file. Raises `ConfigurationError` without name or password."""
        if not info.username or not info.password:
            raise ConfigurationError("a user has no name or no password")
        return cls(
            info.username,
            info.password,
            user_type_of(info.user_type) or UserType.NORMAL,
            user_status_of(info.user_status) or UserStatus.ENABLE,
        )


def user_type_of(text: str | None) -> UserType | None:
    """The type that a text names in any letter case, or None."""
    return next((one for one in UserType if one.value.lower() == (text or "").lower()), None)


def user_status_of(text: str | None) -> UserStatus | None:
    """The same for a status."""
    return next((one for one in UserStatus if one.value.lower() == (text or "").lower()), None)


def keys_in(setting: str, text: str, name: str, secret: str) -> tuple[str, str]:
    """Name and secret of a setting whose value is a JSON object.

    Raises `ConfigurationError`, which does not show the value.
    """
    try:
        value = decode_json(text.encode())
    except RemoteProtocolError:
        value = None
    if isinstance(value, dict):
        user, key = value.get(name), value.get(secret)
        if isinstance(user, str) and isinstance(key, str) and user.strip() and key.strip():
            return user, key
    raise ConfigurationError(
        f'{setting} is not acceptable; write {{"{name}": "...", "{secret}": "..."}} '
        "(the value is not shown here, because it is secret)"
    )
