"""Users and policies of one broker (3001 to 3010)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.bodies.access import AclInfo, UserInfo
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import access as headers
from rocketmq_sdk.protocol.json.dialect import decode_json

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.header import Header


async def _ask(
    client: Caller,
    address: str,
    code: RequestCode,
    header: Header,
    timeout: float | None,
    body: bytes = b"",
) -> bytes:
    command = Command.request(code, header, body=body)
    answer = await client.call_address(address, command, timeout)
    return checked(answer, address=address).body


def _listed(body: bytes) -> list[object]:
    value = decode_json(body) if body else []
    if not isinstance(value, list):
        raise RemoteProtocolError("a list of users or policies is no JSON array")
    return value


async def create_user(
    client: Caller, address: str, user: UserInfo, timeout: float | None = None
) -> None:
    """Add a user (3001). Raises the broker's error when he is there already."""
    header = headers.CreateUserRequestHeader(username=user.username)
    await _ask(client, address, RequestCode.AUTH_CREATE_USER, header, timeout, user.encode())


async def update_user(
    client: Caller, address: str, user: UserInfo, timeout: float | None = None
) -> None:
    """Change those fields of a user that are not None (3002)."""
    header = headers.UpdateUserRequestHeader(username=user.username)
    await _ask(client, address, RequestCode.AUTH_UPDATE_USER, header, timeout, user.encode())


async def delete_user(
    client: Caller, address: str, username: str, timeout: float | None = None
) -> None:
    """Remove a user and his policies (3003)."""
    header = headers.DeleteUserRequestHeader(username=username)
    await _ask(client, address, RequestCode.AUTH_DELETE_USER, header, timeout)


async def get_user(
    client: Caller, address: str, username: str, timeout: float | None = None
) -> UserInfo | None:
    """A user with his password, or None (3004)."""
    header = headers.GetUserRequestHeader(username=username)
    body = await _ask(client, address, RequestCode.AUTH_GET_USER, header, timeout)
    return UserInfo.decode(body) if body else None


async def list_users(
    client: Caller, address: str, text: str | None, timeout: float | None = None
) -> list[UserInfo]:
    """The users whose names contain a text (3005)."""
    header = headers.ListUsersRequestHeader(filter=text)
    body = await _ask(client, address, RequestCode.AUTH_LIST_USER, header, timeout)
    return [UserInfo.from_json(one) for one in _listed(body)]


async def create_acl(
    client: Caller, address: str, acl: AclInfo, timeout: float | None = None
) -> None:
    """Add policies of a subject, or put them in the place of older ones (3006)."""
    header = headers.CreateAclRequestHeader(subject=acl.subject)
    await _ask(client, address, RequestCode.AUTH_CREATE_ACL, header, timeout, acl.encode())


async def update_acl(
    client: Caller, address: str, acl: AclInfo, timeout: float | None = None
) -> None:
    """The same by the other request (3007)."""
    header = headers.UpdateAclRequestHeader(subject=acl.subject)
    await _ask(client, address, RequestCode.AUTH_UPDATE_ACL, header, timeout, acl.encode())


async def delete_acl(
    client: Caller,
    address: str,
    subject: str,
    policy_type: str | None,
    resource: str | None,
    timeout: float | None = None,
) -> None:
    """Remove a subject's policies for a resource, or all of them (3008)."""
    header = headers.DeleteAclRequestHeader(
        subject=subject, policy_type=policy_type, resource=resource
    )
    await _ask(client, address, RequestCode.AUTH_DELETE_ACL, header, timeout)


async def get_acl(
    client: Caller, address: str, subject: str, timeout: float | None = None
) -> AclInfo | None:
    """The policies of a subject, or None (3009)."""
    header = headers.GetAclRequestHeader(subject=subject)
    body = await _ask(client, address, RequestCode.AUTH_GET_ACL, header, timeout)
    return AclInfo.decode(body) if body else None


async def list_acls(
    client: Caller,
    address: str,
    subject: str | None,
    resource: str | None,
    timeout: float | None = None,
) -> list[AclInfo]:
    """Policies of the subjects, and for the resources, that contain a text (3010)."""
    header = headers.ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
    body = await _ask(client, address, RequestCode.AUTH_LIST_ACL, header, timeout)
    return [AclInfo.from_json(one) for one in _listed(body)]
