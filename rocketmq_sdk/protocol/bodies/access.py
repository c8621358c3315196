"""Users and access control lists."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.body import Body


@attrs.frozen
class UserInfo(Body):
    """A user; `user_type` is Super or Normal, `user_status` enable or disable.

    The password is in no repr.
    """

    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@attrs.frozen
class PolicyEntryInfo(Body):
    """What is allowed or denied to whom from where."""

    resource: str | None = None
    actions: tuple[str, ...] | None = None
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None


@attrs.frozen
class PolicyInfo(Body):
    """A list of entries; `policy_type` is Custom or Default."""

    policy_type: str | None = None
    entries: tuple[PolicyEntryInfo, ...] = attrs.field(default=())


@attrs.frozen
class AclInfo(Body):
    """The policies of a subject (`User:name`)."""

    subject: str | None = None
    policies: tuple[PolicyInfo, ...] = ()
