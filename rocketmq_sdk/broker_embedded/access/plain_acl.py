"""The files of ACL 1.0: `plain_acl.yml` and those in the folder `acl` beside it.

Follows `PlainPermissionManager` of Apache RocketMQ 5.1.4. YAML is read by PyYAML (extra
`acl`): files that Apache's tools have written use more of it than a small reader of our
own would understand, and a reader that misunderstands a permission is worse than none.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from rocketmq_sdk.broker_embedded.access.addresses import Matcher, matcher
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.errors import ConfigurationError

logger = logging.getLogger(__name__)

_SHORTEST_KEY: Final = 7
_PERMISSIONS: Final = {
    "DENY": Action(0),
    "PUB": Action.PUB,
    "SUB": Action.SUB,
    "PUB|SUB": Action.PUB | Action.SUB,
    "SUB|PUB": Action.PUB | Action.SUB,
}
Stamp = tuple[tuple[str, int, int], ...]
"""Names, times and sizes of files: whether they have changed."""


@attrs.frozen
class Account:
    """One account; permissions are PUB and SUB, an empty one is DENY."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    is_admin: bool
    white: Matcher = attrs.field(repr=False)
    default_topic: Action
    default_group: Action
    topics: Mapping[str, Action]
    groups: Mapping[str, Action]


@attrs.frozen
class PlainAcl:
    """What the files say."""

    accounts: Mapping[str, Account]
    white: tuple[Matcher, ...] = attrs.field(repr=False)
    """Addresses from which everybody may do everything."""


def default_path() -> Path:
    """`conf/plain_acl.yml` below ROCKETMQ_HOME. Raises `ConfigurationError`."""
    home = os.environ.get("ROCKETMQ_HOME", "")
    if not home:
        raise ConfigurationError(
            "it is not said where plain_acl.yml is: set plainAclFile, or ROCKETMQ_HOME"
        )
    return Path(home) / "conf" / "plain_acl.yml"


def files_of(path: Path) -> list[Path]:
    """The files, those of the folder `acl` first."""
    folder = path.parent / "acl"
    found = [
        each
        for each in sorted(folder.rglob("*"))
        if each.suffix in (".yml", ".yaml") and each.is_file()
    ]
    return [*found, *([path] if path.exists() else [])]


def stamp_of(path: Path) -> Stamp:
    """What changes when one of the files does."""
    found = []
    for file in files_of(path):
        try:
            status = file.stat()
        except OSError:
            continue
        found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)


def read_plain_acl(path: Path) -> PlainAcl:
    """Read all files.

    Raises `ConfigurationError` when there is none, when PyYAML is missing, and for what
    is no account; no text shows a secret key.
    """
    files = files_of(path)
    if not files:
        raise ConfigurationError(f"there is no file {path} with accounts")
    accounts: dict[str, Account] = {}
    white: list[Matcher] = []
    for file in files:
        content = _load(file)
        white += [matcher(_text(one)) for one in _list(file, content, "globalWhiteRemoteAddresses")]
        for entry in _list(file, content, "accounts"):
            account = _account(file, entry)
            if account.access_key in accounts:
                logger.warning("%s: the account %s is there twice", file, account.access_key)
            accounts.setdefault(account.access_key, account)
    return PlainAcl(accounts, tuple(white))


def _load(file: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(
            "accounts in plain_acl.yml need PyYAML: pip install 'rocketmq-trio[acl]'"
        ) from None
    try:
        if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
            logger.warning("%s holds secrets and can be read by others: chmod 600", file)
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        raise ConfigurationError(f"{file} is no YAML{where}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"{file} has no accounts")
    return content


def _list(file: Path, content: dict[str, Any], name: str) -> list[Any]:
    value = content.get(name) or []
    if not isinstance(value, list):
        raise ConfigurationError(f"{file}: {name} is no list")
    return value


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _account(file: Path, entry: object) -> Account:
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{file}: an account is no table")
    key, secret = _text(entry.get("accessKey")), _text(entry.get("secretKey"))
    if len(key) < _SHORTEST_KEY or len(secret) < _SHORTEST_KEY:
        raise ConfigurationError(
            f"{file}: the accessKey {key!r} and its secretKey must be longer than 6 characters"
        )
    place = f"{file}: the account {key}"
    admin = entry.get("admin") or False
    if not isinstance(admin, bool):
        raise ConfigurationError(f"{place}: admin is {admin!r}, not true or false")
    return Account(
        key,
        secret,
        admin,
        matcher(_text(entry.get("whiteRemoteAddress"))),
        _permission(place, _text(entry.get("defaultTopicPerm")) or "DENY"),
        _permission(place, _text(entry.get("defaultGroupPerm")) or "DENY"),
        _permissions(place, _list(file, entry, "topicPerms")),
        _permissions(place, _list(file, entry, "groupPerms")),
    )


def _permission(place: str, text: str) -> Action:
    permission = _PERMISSIONS.get(text.replace(" ", ""))
    if permission is None:
        raise ConfigurationError(f"{place}: {text!r} is none of DENY, PUB, SUB, PUB|SUB")
    return permission


def _permissions(place: str, texts: list[Any]) -> dict[str, Action]:
    found: dict[str, Action] = {}
    for text in map(_text, texts):
        name, equal, permission = text.partition("=")
        if not equal or not name.strip():
            raise ConfigurationError(f"{place}: {text!r} is not of the form name=PUB|SUB")
        found[name.strip()] = _permission(place, permission.strip())
    return found
