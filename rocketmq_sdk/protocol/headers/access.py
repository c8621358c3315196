"""Users and access control lists."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header


@attrs.define(kw_only=True)
class CreateUserRequestHeader(Header):
    """AUTH_CREATE_USER (3001)."""

    username: str | None = None


@attrs.define(kw_only=True)
class UpdateUserRequestHeader(Header):
    """AUTH_UPDATE_USER (3002)."""

    username: str | None = None


@attrs.define(kw_only=True)
class DeleteUserRequestHeader(Header):
    """AUTH_DELETE_USER (3003)."""

    username: str | None = None


@attrs.define(kw_only=True)
class GetUserRequestHeader(Header):
    """AUTH_GET_USER (3004)."""

    username: str | None = None


@attrs.define(kw_only=True)
class ListUsersRequestHeader(Header):
    """AUTH_LIST_USER (3005)."""

    filter: str | None = None


@attrs.define(kw_only=True)
class CreateAclRequestHeader(Header):
    """AUTH_CREATE_ACL (3006)."""

    subject: str | None = None


@attrs.define(kw_only=True)
class UpdateAclRequestHeader(Header):
    """AUTH_UPDATE_ACL (3007)."""

    subject: str | None = None


@attrs.define(kw_only=True)
class DeleteAclRequestHeader(Header):
    """AUTH_DELETE_ACL (3008)."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@attrs.define(kw_only=True)
class GetAclRequestHeader(Header):
    """AUTH_GET_ACL (3009)."""

    subject: str | None = None


@attrs.define(kw_only=True)
class ListAclsRequestHeader(Header):
    """AUTH_LIST_ACL (3010)."""

    subject_filter: str | None = None
    resource_filter: str | None = None
