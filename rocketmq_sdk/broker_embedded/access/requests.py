"""Administration of users and policies: requests 3001 to 3010.

Codes and remarks are those of `AdminBrokerProcessor` of Apache RocketMQ 5.4.0. Three
things differ: while access control is off nothing can be changed or read, so that
nobody plants a user before it is switched on; the password of a super user is shown to
super users only; and a resource that is no resource is refused, where Apache deletes
all policies of the subject.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.access.policies import Acl, Resource, policy_type_of
from rocketmq_sdk.broker_embedded.access.table import AccessChangeError
from rocketmq_sdk.broker_embedded.access.users import (
    SUBJECT_PREFIX,
    User,
    UserStatus,
    UserType,
    user_status_of,
    user_type_of,
)
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import SETTINGS, Cost, Request, Writes, refuse
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.bodies.access import AclInfo, UserInfo
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import access as headers
from rocketmq_sdk.protocol.json.dialect import encode_json
from rocketmq_sdk.protocol.signing import ACCESS_KEY, verify_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rocketmq_sdk.broker_embedded.access.table import AccessTable
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.channel import Channel, Continuation

logger = logging.getLogger(__name__)

_OFF: Final = "access control is off: start the broker with authenticationEnabled=true"
_WRONG: Final = "An system error occurred, please try again later."
_BLANK: Final = "The username is blank"
_SUPER_CREATE: Final = "The super user can only be create by super user"
_SUPER_UPDATE: Final = "The super user can only be update by super user"
_CHANGE: Final = needs.cluster(Action.UPDATE)
_READ: Final = needs.cluster(Action.GET)


class AccessRequests:
    """What administrators do to users and policies."""

    __slots__ = ("_enabled", "_table")

    def __init__(self, table: AccessTable, enabled: bool) -> None:
        self._table = table
        self._enabled = enabled

    def requests(self) -> Iterable[Request]:
        """Users, then policies."""
        change = functools.partial(
            Request,
            needs=_CHANGE,
            connection=True,
            body_limit=SETTINGS,
            cost=Cost.TABLE,
            writes=Writes.SETTINGS,
        )
        read = functools.partial(Request, needs=_READ, connection=True, cost=Cost.TABLE)
        on, code = self._where_on, RequestCode
        return (
            change(
                code.AUTH_CREATE_USER,
                on(self.create_user),
                header=headers.CreateUserRequestHeader,
                body=UserInfo,
            ),
            change(
                code.AUTH_UPDATE_USER,
                on(self.update_user),
                header=headers.UpdateUserRequestHeader,
                body=UserInfo,
            ),
            change(
                code.AUTH_DELETE_USER,
                on(self.delete_user),
                header=headers.DeleteUserRequestHeader,
            ),
            read(code.AUTH_GET_USER, on(self.user), header=headers.GetUserRequestHeader),
            read(code.AUTH_LIST_USER, on(self.users), header=headers.ListUsersRequestHeader),
            change(
                code.AUTH_CREATE_ACL,
                on(self.update_acl),
                header=headers.CreateAclRequestHeader,
                body=AclInfo,
            ),
            change(
                code.AUTH_UPDATE_ACL,
                on(self.update_acl),
                header=headers.UpdateAclRequestHeader,
                body=AclInfo,
            ),
            change(
                code.AUTH_DELETE_ACL,
                on(self.delete_acl),
                header=headers.DeleteAclRequestHeader,
            ),
            read(code.AUTH_GET_ACL, on(self.acl), header=headers.GetAclRequestHeader),
            read(code.AUTH_LIST_ACL, on(self.acls), header=headers.ListAclsRequestHeader),
        )

    def _where_on(
        self, serve: Callable[..., Command | Continuation]
    ) -> Callable[..., Command | Continuation]:
        def serve_where_on(
            _channel: Channel, command: Command, *decoded: object
        ) -> Command | Continuation:
            if not self._enabled:
                return refuse(ResponseCode.SYSTEM_ERROR, _OFF)
            return serve(self._is_super(command), *decoded)

        return serve_where_on

    def _is_super(self, command: Command) -> bool:
        """Whether a super user asks.

        The signature is looked at once more: a request in a white list has passed the
        guard whatever name it carries.
        """
        caller = self._table.users.get(command.ext_fields.get(ACCESS_KEY, ""))
        return (
            caller is not None
            and caller.is_super
            and caller.user_status is UserStatus.ENABLE
            and verify_request(command, caller.password)
        )

    # Users

    def create_user(
        self, by_super: bool, header: headers.CreateUserRequestHeader, info: UserInfo
    ) -> Command | Continuation:
        """AUTH_CREATE_USER (3001)."""
        name = header.username
        if not name:
            return refuse(ResponseCode.INVALID_PARAMETER, _BLANK)
        kind = user_type_of(info.user_type)
        if kind is UserType.SUPER and not by_super:
            return refuse(ResponseCode.SYSTEM_ERROR, _SUPER_CREATE)
        if not name.strip():
            return refuse(ResponseCode.NO_PERMISSION, "username can not be blank")
        if not (info.password or "").strip():
            return refuse(ResponseCode.NO_PERMISSION, "password can not be blank")
        user = User(
            name,
            info.password or "",
            kind or UserType.NORMAL,
            user_status_of(info.user_status) or UserStatus.ENABLE,
        )
        return _written(lambda: self._table.create_user(user))

    def update_user(
        self, by_super: bool, header: headers.UpdateUserRequestHeader, info: UserInfo
    ) -> Command | Continuation:
        """AUTH_UPDATE_USER (3002)."""
        name = header.username
        if not name:
            return refuse(ResponseCode.INVALID_PARAMETER, _BLANK)
        kind = user_type_of(info.user_type)
        if kind is UserType.SUPER and not by_super:
            return refuse(ResponseCode.SYSTEM_ERROR, _SUPER_UPDATE)
        before = self._table.users.get(name)
        if before is not None and before.is_super and not by_super:
            return refuse(ResponseCode.NO_PERMISSION, _SUPER_UPDATE)
        changes: dict[str, object] = {}
        if (info.password or "").strip():
            changes["password"] = info.password
        if kind is not None:
            changes["user_type"] = kind
        if (status := user_status_of(info.user_status)) is not None:
            changes["user_status"] = status
        return _written(lambda: self._table.update_user(name, changes))

    def delete_user(
        self, by_super: bool, header: headers.DeleteUserRequestHeader
    ) -> Command | Continuation:
        """AUTH_DELETE_USER (3003)."""
        name = header.username or ""
        if not name.strip():
            return refuse(ResponseCode.NO_PERMISSION, "username can not be blank")
        user = self._table.users.get(name)
        if user is not None and user.is_super and not by_super:
            return refuse(ResponseCode.NO_PERMISSION, _SUPER_UPDATE)
        return _written(lambda: self._table.delete_user(name))

    def user(self, by_super: bool, header: headers.GetUserRequestHeader) -> Command:
        """AUTH_GET_USER (3004)."""
        name = header.username or ""
        if not name.strip():
            return refuse(ResponseCode.INVALID_PARAMETER, _BLANK)
        user = self._table.users.get(name)
        return Command.response(body=b"" if user is None else _shown(user, by_super).encode())

    def users(self, by_super: bool, header: headers.ListUsersRequestHeader) -> Command:
        """AUTH_LIST_USER (3005)."""
        wanted = (header.filter or "").strip()
        found = [
            _shown(user, by_super).to_json()
            for name, user in sorted(self._table.users.items())
            if wanted in name
        ]
        return Command.response(body=encode_json(found) if found else b"")

    # Policies

    def update_acl(self, _by_super: bool, header: Header, info: AclInfo) -> Command | Continuation:
        """AUTH_CREATE_ACL (3006) and AUTH_UPDATE_ACL (3007), which do the same."""
        if not info.policies:
            return refuse(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        named = getattr(header, "subject", None)
        subject = _subject_of(info.subject) or _subject_of(named)
        if subject is None:
            return refuse(ResponseCode.SYSTEM_ERROR, _WRONG)
        try:
            acl = Acl.from_info(subject, info)
        except ConfigurationError as error:
            return refuse(ResponseCode.NO_PERMISSION, str(error))
        return _written(lambda: self._table.update_acl(acl))

    def delete_acl(
        self, _by_super: bool, header: headers.DeleteAclRequestHeader
    ) -> Command | Continuation:
        """AUTH_DELETE_ACL (3008)."""
        subject = _subject_of(header.subject)
        if subject is None:
            return refuse(ResponseCode.NO_PERMISSION, "The subject is null.")
        text = (header.resource or "").strip()
        resource = Resource.parse(text)
        if text and resource is None:
            return refuse(ResponseCode.NO_PERMISSION, f"The resource {text[:200]} is invalid.")
        kind = policy_type_of(header.policy_type)
        return _written(lambda: self._table.delete_acl(subject, kind, resource))

    def acl(self, _by_super: bool, header: headers.GetAclRequestHeader) -> Command:
        """AUTH_GET_ACL (3009)."""
        subject = _subject_of(header.subject)
        if subject is None:
            return refuse(ResponseCode.SYSTEM_ERROR, _WRONG)
        if not self._table.knows(subject):
            return refuse(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        acl = self._table.acls.get(subject)
        return Command.response(body=b"" if acl is None else acl.info().encode())

    def acls(self, _by_super: bool, header: headers.ListAclsRequestHeader) -> Command:
        """AUTH_LIST_ACL (3010)."""
        subjects = (header.subject_filter or "").strip()
        resources = (header.resource_filter or "").strip()
        found = [
            info.to_json()
            for subject, acl in sorted(self._table.acls.items())
            if subjects in subject and (info := acl.info(resources)).policies
        ]
        return Command.response(body=encode_json(found) if found else b"")


def _subject_of(text: str | None) -> str | None:
    """`User:name` in its usual spelling; None for another text."""
    kind, colon, name = (text or "").partition(":")
    return SUBJECT_PREFIX + name if colon and kind.lower() == "user" and name else None


def _shown(user: User, by_super: bool) -> UserInfo:
    return user.info(password=by_super or not user.is_super)


def _written(change: Callable[[], Awaitable[None]]) -> Continuation:
    """The answer when a change is in the file; the remark when it is not acceptable."""

    async def answer() -> Command:
        try:
            await change()
        except AccessChangeError as error:
            return refuse(ResponseCode.NO_PERMISSION, str(error))
        return Command.response()

    return answer
