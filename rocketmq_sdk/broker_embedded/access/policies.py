"""Policies: what a subject may do, and the decision about one need of a request.

Follows `Acl`, `Policy`, `PolicyEntry`, `Resource`, `Environment` and
`AclAuthorizationHandler` of Apache RocketMQ 5.4.0: custom policies come before default
ones, a name before a prefix, a longer prefix before a shorter one, a type before any,
and Deny before Allow where both are as specific.
"""

from __future__ import annotations

import ipaddress
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Self

import attrs

from rocketmq_sdk.broker_embedded.needs import Action, Need, ResourceType
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

EVERYTHING: Final = ~Action(0)
_ANY: Final = "*"
_ACTIONS: Final = {
    **{action.name.lower(): action for action in Action if action.name},
    "all": EVERYTHING,
}
_TYPES: Final = {kind.value.lower(): kind for kind in ResourceType}


class Pattern(IntEnum):
    """How a resource of a policy is compared; the more specific one comes first."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class PolicyType(Enum):
    """Default policies count where no custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(Enum):
    """What a policy says."""

    ALLOW = "Allow"
    DENY = "Deny"


class Resource(NamedTuple):
    """The resources that an entry of a policy is about."""

    kind: ResourceType
    name: str
    pattern: Pattern

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """`*`, `Topic:*`, `Topic:name` or `Topic:prefix*`; None for another text."""
        if text == _ANY:
            return cls(ResourceType.ANY, "", Pattern.ANY)
        type_name, colon, name = (text or "").partition(":")
        kind = _TYPES.get(type_name.lower())
        if kind is None or not colon:
            return None
        if name == _ANY:
            return cls(kind, "", Pattern.ANY)
        if name.endswith(_ANY):
            return cls(kind, name.partition(_ANY)[0], Pattern.PREFIXED)
        return cls(kind, name, Pattern.LITERAL)

    def __str__(self) -> str:
        if self.kind is ResourceType.ANY:
            return _ANY
        star = "" if self.pattern is Pattern.LITERAL else _ANY
        return f"{self.kind.value}:{self.name}{star}"

    def matches(self, need: Need) -> bool:
        """Whether the resource of a need is one of these."""
        if self.kind is ResourceType.ANY:
            return True
        if self.kind is not need.kind:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == need.name
        return need.name.startswith(self.name)


@attrs.frozen
class PolicyEntry:
    """One entry of a policy; an empty `sources` stands for everywhere."""

    resource: Resource
    actions: tuple[str, ...]
    sources: tuple[str, ...]
    decision: Decision
    mask: Action = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        mask = Action(0)
        for name in self.actions:
            mask |= _ACTIONS[name.lower()]
        object.__setattr__(self, "mask", mask)

    def matches(self, need: Need, source: str) -> bool:
        """Whether the entry says something of a need from an address."""
        return (
            bool(self.mask & need.actions)
            and self.resource.matches(need)
            and (not self.sources or any(in_range(source, one) for one in self.sources))
        )

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """The place among matching entries; the first one decides."""
        kind, name, pattern = self.resource
        return (
            kind is ResourceType.ANY,
            pattern,
            -len(name),
            self.decision is Decision.ALLOW,
        )

    def info(self) -> PolicyEntryInfo:
        """The entry as requests and files carry it."""
        return PolicyEntryInfo(
            str(self.resource), self.actions, self.sources or None, self.decision.value
        )


@attrs.frozen
class Acl:
    """All policies of a subject: entries by policy type and resource."""

    subject: str
    policies: dict[PolicyType, dict[Resource, PolicyEntry]]

    @classmethod
    def from_info(cls, subject: str, info: AclInfo) -> Self:
        """Policies as a request or a file carries them.

        Raises `ConfigurationError` with Apache's text for what is not acceptable.
        """
        policies: dict[PolicyType, dict[Resource, PolicyEntry]] = {}
        listed = [policy for policy in info.policies if policy.entries]
        if not listed:
            raise ConfigurationError("The policies is empty.")
        for policy in listed:
            entries = policies.setdefault(policy_type_of(policy.policy_type), {})
            for one in policy.entries:
                entry = _entry(one)
                entries[entry.resource] = entry
        return cls(subject, policies)

    def info(self, containing: str | None = None) -> AclInfo:
        """The policies as requests and files carry them.

        With `containing` only entries whose resource contains that text.
        """
        return AclInfo(
            self.subject,
            tuple(
                PolicyInfo(kind.value, tuple(entry.info() for entry in chosen))
                for kind, entries in self.policies.items()
                if (chosen := [one for one in entries.values() if _shown(one, containing)])
            ),
        )

    def updated(self, other: Acl) -> Acl:
        """The policies with those of another added or in their place."""
        merged = {kind: dict(entries) for kind, entries in self.policies.items()}
        for kind, entries in other.policies.items():
            merged.setdefault(kind, {}).update(entries)
        return Acl(self.subject, merged)

    def without(self, kind: PolicyType, resource: Resource) -> Acl:
        """The policies without the entry for a resource."""
        kept = {
            one: {key: entry for key, entry in entries.items() if (one, key) != (kind, resource)}
            for one, entries in self.policies.items()
        }
        return Acl(self.subject, {one: entries for one, entries in kept.items() if entries})

    def decide(self, need: Need, source: str) -> Decision | None:
        """The decision about a need from an address; None when no entry matches."""
        for kind in PolicyType:
            matching = [
                entry
                for entry in self.policies.get(kind, {}).values()
                if entry.matches(need, source)
            ]
            if matching:
                return min(matching, key=lambda entry: entry.rank).decision
        return None


def policy_type_of(text: str | None) -> PolicyType:
    """The type that a text names in any letter case; without one, Custom."""
    wanted = (text or "").lower()
    return next((one for one in PolicyType if one.value.lower() == wanted), PolicyType.CUSTOM)


def _shown(entry: PolicyEntry, containing: str | None) -> bool:
    return not containing or containing in str(entry.resource)


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = Resource.parse(info.resource)
    if resource is None:
        raise ConfigurationError("The resource is null.")
    names = [name for name in info.actions or () if name.lower() in (*_ACTIONS, "any")]
    if not names:
        raise ConfigurationError("The actions is empty.")
    if any(name.lower() == "any" for name in names):
        raise ConfigurationError("The actions can not be Any.")
    sources = tuple(source.strip() for source in info.source_ips or ())
    for source in sources:
        if not source:
            raise ConfigurationError("The source ip is empty.")
        if not is_range(source):
            raise ConfigurationError("The source ip is invalid.")
    decision = next(
        (one for one in Decision if one.value.lower() == (info.decision or "").lower()), None
    )
    if decision is None:
        raise ConfigurationError("The decision is null or illegal.")
    return PolicyEntry(resource, tuple(map(_spelled, names)), sources, decision)


def _spelled(name: str) -> str:
    return name.lower().capitalize()


def is_range(text: str) -> bool:
    """Whether a text is an address or a range in CIDR form."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def in_range(address: str, text: str) -> bool:
    """Whether an address is one or lies in a range in CIDR form."""
    if address == text:
        return True
    try:
        wanted = ipaddress.ip_network(text, strict=False)
        given = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return False
    if isinstance(given, ipaddress.IPv6Address) and given.ipv4_mapped is not None:
        given = given.ipv4_mapped
    return given in wanted
