"""Accounts of ACL 1.0 as users and policies of ACL 2.0 (`AuthMigrator` of Apache)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.access.policies import (
    Acl,
    Decision,
    Pattern,
    PolicyEntry,
    PolicyType,
    Resource,
)
from rocketmq_sdk.broker_embedded.access.users import User, UserType
from rocketmq_sdk.broker_embedded.needs import Action, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.access.plain_acl import Account

_DENIED: Final = ("All",)


def migrated(account: Account) -> tuple[User, Acl]:
    """The user, and the policies, that an account becomes.

    Addresses of white lists are not taken over, as with Apache: there is no such thing
    in ACL 2.0.
    """
    user = User(
        account.access_key,
        account.secret_key,
        UserType.SUPER if account.is_admin else UserType.NORMAL,
    )
    custom = {
        **_entries(ResourceType.TOPIC, account.topics.items()),
        **_entries(ResourceType.GROUP, account.groups.items()),
    }
    default = {
        **_entries(ResourceType.TOPIC, [("", account.default_topic)], Pattern.ANY),
        **_entries(ResourceType.GROUP, [("", account.default_group)], Pattern.ANY),
    }
    policies = {PolicyType.CUSTOM: custom} if custom else {}
    return user, Acl(user.subject, {**policies, PolicyType.DEFAULT: default})


def _entries(
    kind: ResourceType,
    permissions: Iterable[tuple[str, Action]],
    pattern: Pattern = Pattern.LITERAL,
) -> dict[Resource, PolicyEntry]:
    found: dict[Resource, PolicyEntry] = {}
    for name, permission in permissions:
        resource = Resource(kind, name, pattern)
        actions = tuple(
            action.name.capitalize()
            for action in (Action.PUB, Action.SUB)
            if action & permission and action.name
        )
        decision = Decision.ALLOW if actions else Decision.DENY
        found[resource] = PolicyEntry(resource, actions or _DENIED, (), decision)
    return found
