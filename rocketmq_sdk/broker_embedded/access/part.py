"""Access control: the part."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.access.audit import Audit
from rocketmq_sdk.broker_embedded.access.guard import Accounts, Guard
from rocketmq_sdk.broker_embedded.access.migration import migrated
from rocketmq_sdk.broker_embedded.access.plain_accounts import PlainAccounts
from rocketmq_sdk.broker_embedded.access.plain_acl import default_path, read_plain_acl
from rocketmq_sdk.broker_embedded.access.requests import AccessRequests
from rocketmq_sdk.broker_embedded.access.table import FILE_NAME, AccessTable
from rocketmq_sdk.broker_embedded.access.user_accounts import UserAccounts
from rocketmq_sdk.broker_embedded.access.users import User, UserType, keys_in
from rocketmq_sdk.broker_embedded.part import Part, Service
from rocketmq_sdk.broker_embedded.settings.fields import request_codes
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.remoting.channel import Handler
    from rocketmq_sdk.remoting.dispatch import Dispatcher

logger = logging.getLogger(__name__)


class AccessPart(Part):
    """Who may ask the broker, and its name server, for what."""

    __slots__ = ("_accounts", "_config", "_plain", "_requests", "audit", "table")

    def __init__(self, core: Core) -> None:
        config = core.config.current
        self._config = config
        self.table = AccessTable(ConfigFile(core.store.files, FILE_NAME, private=True))
        """Users and policies."""
        self.audit = Audit()
        """What was decided."""
        self._requests = AccessRequests(self.table, config.authentication_enabled)
        self._accounts: Accounts | None = None
        self._plain: PlainAccounts | None = None
        if config.acl_enable:
            self._accounts = self._plain = PlainAccounts(_plain_path(config))
        elif config.authentication_enabled:
            self._accounts = UserAccounts(
                self.table,
                authorizes=config.authorization_enabled,
                unsigned=request_codes(config.authentication_whitelist),
                exempt=request_codes(config.authorization_whitelist),
            )

    @property
    def enabled(self) -> bool:
        """Whether requests are checked at all."""
        return self._accounts is not None

    def requests(self) -> Iterable[Request]:
        """Users and policies."""
        return self._requests.requests()

    def services(self) -> Iterable[Service]:
        """Reading the accounts of ACL 1.0 again when their files change."""
        plain = self._plain
        return () if plain is None else (Service("plain_acl.yml", plain.run, trouble=plain),)

    async def load(self) -> None:
        """Read users and policies, or accounts, and add the users of the settings.

        Raises `ConfigurationError` when nobody could ever get in.
        """
        if self._plain is not None:
            await self._plain.load()
            return
        self.table.load()
        if not self._config.authentication_enabled:
            if self.table.users:
                logger.warning(
                    "there are users in config/%s, but access control is off: everybody who "
                    "reaches the broker may do everything",
                    FILE_NAME,
                )
            return
        await self.table.add_first(
            User(name, secret, UserType.SUPER) for name, secret in first_keys(self._config)
        )
        if self._config.migrate_auth_from_v1_enabled:
            path = _plain_path(self._config)
            acl = await trio.to_thread.run_sync(read_plain_acl, path)
            pairs = [migrated(account) for account in acl.accounts.values()]
            await self.table.add_first((one for one, _ in pairs), (acl for _, acl in pairs))
        if not self.table.users:
            raise ConfigurationError(
                "authenticationEnabled=true without any user lets nobody in: name the first one in "
                'initAuthenticationUser={"username": "...", "password": "..."}'
            )

    def guarded(self, handler: Handler, dispatcher: Dispatcher, rows: Iterable[Request]) -> Handler:
        """A handler, behind the guard where there is one.

        `dispatcher` is the handler or lies behind it.
        """
        if self._accounts is None:
            return handler
        cluster = self._config.broker_cluster_name
        return Guard(handler, dispatcher, rows, self._accounts, self.audit, cluster)


def _plain_path(config: BrokerConfig) -> Path:
    given = config.plain_acl_file
    return default_path() if given is None else Path(given)


def first_keys(config: BrokerConfig) -> list[tuple[str, str]]:
    """Names and secrets of the super users of the settings, the broker's own first.

    Raises `ConfigurationError`.
    """
    own, text = inner_keys(config), config.init_authentication_user
    keys = [] if own is None else [own]
    if text:
        keys.append(keys_in("initAuthenticationUser", text, "username", "password"))
    return keys


def inner_keys(config: BrokerConfig) -> tuple[str, str] | None:
    """The keys that the broker's own calls are signed with, or None."""
    text = config.inner_client_authentication_credentials
    if not text:
        return None
    return keys_in("innerClientAuthenticationCredentials", text, "accessKey", "secretKey")
