"""ACL 1.0: accounts of `plain_acl.yml`, with PUB and SUB for topics and groups.

Follows `PlainAccessValidator` and `PlainPermissionChecker` of Apache RocketMQ 5.1.4,
with their remarks. Apache asks for permissions in ten requests and for an admin in five
others. Here every request has a rule: what changes something needs an admin, what tells
of a topic or group needs PUB or SUB of it, and what tells of the cluster an account.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.access.guard import Refused, Requester
from rocketmq_sdk.broker_embedded.access.plain_acl import (
    PlainAcl,
    Stamp,
    read_plain_acl,
    stamp_of,
)
from rocketmq_sdk.broker_embedded.needs import Action, ResourceType
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.names import TRACE_TOPIC
from rocketmq_sdk.protocol.signing import ACCESS_KEY, verify_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.access.addresses import Matcher
    from rocketmq_sdk.broker_embedded.needs import Need
    from rocketmq_sdk.protocol.command import Command

logger = logging.getLogger(__name__)

WATCH_INTERVAL: Final = 5.0
"""Seconds between two looks at the files, as in `FileWatchService` of Apache."""
_JAVA: Final = "org.apache.rocketmq.acl.common.AclException: "
_LISTED_MAX: Final = 4096
_TELLING: Final = Action.GET | Action.LIST
_EITHER: Final = Action.PUB | Action.SUB


class PlainAccounts:
    """The accounts of the files, as `Accounts`; `run` reads files that change again."""

    __slots__ = (
        "_acl",
        "_listed",
        "_path",
        "_stamp",
        "authorizes",
        "generation",
        "problem",
        "refusal_code",
    )

    def __init__(self, path: Path) -> None:
        self._path = path
        self._acl = PlainAcl({}, ())
        self._stamp: Stamp = ()
        self._listed: dict[tuple[str | None, str], bool] = {}
        """Whether an address is listed, by account; None for the list of all."""
        self.authorizes = True
        self.generation = 0
        self.problem: str | None = None
        """Why the files as they are now are not in force; None when they are."""
        self.refusal_code = int(ResponseCode.SYSTEM_ERROR)

    async def load(self) -> None:
        """Read the files. Raises `ConfigurationError`; what was read before counts."""
        self._stamp, self._acl = await trio.to_thread.run_sync(
            lambda: (stamp_of(self._path), read_plain_acl(self._path))
        )
        self._listed = {}
        self.generation += 1

    async def run(self) -> None:
        """Read the files again when they change, until cancelled."""
        while True:
            await trio.sleep(WATCH_INTERVAL)
            stamp = await trio.to_thread.run_sync(stamp_of, self._path)
            if stamp == self._stamp:
                continue
            try:
                await self.load()
            except ConfigurationError as error:
                self._stamp = stamp
                self.problem = f"{error}; the accounts read before are in force"
                logger.error("%s", self.problem)
            else:
                self.problem = None
                logger.info("the accounts of %s were read again", self._path)

    def __iter__(self) -> Iterator[str]:
        """What is wrong, as `Service.trouble`."""
        if self.problem is not None:
            yield self.problem

    def exempt(self, code: int) -> bool:  # noqa: ARG002 - the interface
        """No request is."""
        return False

    def identify(self, command: Command, source: str) -> Requester:
        """Who signed a request, or comes from an address of a white list.

        Raises `Refused`.
        """
        acl = self._acl
        if self._is_listed(None, acl.white, source):
            return Requester(None, unlimited=True)
        key = command.ext_fields.get(ACCESS_KEY)
        if key is None:
            raise Refused(f"{_JAVA}No accessKey is configured")
        account = acl.accounts.get(key)
        if account is None:
            raise Refused(f"{_JAVA}No acl config for {key}")
        if self._is_listed(key, (account.white,), source):
            return Requester(key, unlimited=True)
        if not verify_request(command, account.secret_key):
            raise Refused(f"{_JAVA}Check signature failed for accessKey={key}")
        return Requester(key, account.is_admin)

    def _is_listed(self, key: str | None, white: Iterable[Matcher], source: str) -> bool:
        listed = self._listed.get((key, source))
        if listed is None:
            if len(self._listed) >= _LISTED_MAX:
                self._listed = {}
            listed = self._listed[key, source] = any(matches(source) for matches in white)
        return listed

    def refusal(
        self,
        caller: Requester,
        need: Need,
        source: str,  # noqa: ARG002
        code: int,
    ) -> str | None:
        """Why an account has no permission, or None when it has."""
        account = self._acl.accounts.get(caller.name or "")
        if account is None:
            return f"{_JAVA}No acl config for {caller.name}"
        wanted = need.actions & _EITHER
        if need.actions & _TELLING:
            if need.kind is ResourceType.CLUSTER:
                return None
            wanted = _EITHER
        if not wanted or need.kind not in (ResourceType.TOPIC, ResourceType.GROUP):
            return (
                f"{_JAVA}Need admin permission for request code={code}, "
                f"but accessKey={account.access_key} is not"
            )
        if need.kind is ResourceType.TOPIC:
            if need.name == TRACE_TOPIC and wanted == Action.PUB:
                return None
            owned, default, what = account.topics, account.default_topic, "topic"
        else:
            owned, default, what = account.groups, account.default_group, "group"
        if wanted & owned.get(need.name, default):
            return None
        kind = "permission" if need.name in owned else "default permission"
        return f"{_JAVA}No {kind} for {what}:{need.name}"
