"""ACL 2.0: users whose policies say what they may do.

Follows `DefaultAuthenticationHandler`, `UserAuthorizationHandler` and
`AclAuthorizationHandler` of Apache RocketMQ 5.4.0, with their remarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.access.guard import Refused, Requester
from rocketmq_sdk.broker_embedded.access.policies import Decision
from rocketmq_sdk.broker_embedded.access.users import SUBJECT_PREFIX, UserStatus
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.signing import ACCESS_KEY, verify_request

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.access.table import AccessTable
    from rocketmq_sdk.broker_embedded.needs import Need
    from rocketmq_sdk.protocol.command import Command

_NOBODY: Final = Requester(None, unlimited=False)


class UserAccounts:
    """The users of a table, as `Accounts`."""

    __slots__ = ("_exempt", "_open", "_table", "authorizes", "refusal_code")

    def __init__(
        self,
        table: AccessTable,
        *,
        authorizes: bool,
        unsigned: frozenset[int] = frozenset(),
        exempt: frozenset[int] = frozenset(),
    ) -> None:
        """`unsigned` codes need no signature, `exempt` ones no permission."""
        self._table = table
        self._open = unsigned
        self._exempt = exempt
        self.authorizes = authorizes
        self.refusal_code = int(ResponseCode.NO_PERMISSION)

    @property
    def generation(self) -> int:
        """The table's."""
        return self._table.generation

    def exempt(self, code: int) -> bool:
        """Whether it is in the white list of authorization."""
        return code in self._exempt

    def identify(self, command: Command, source: str) -> Requester:  # noqa: ARG002 - the interface
        """Who signed a request. Raises `Refused`.

        A request in the white list of authentication may come from anybody; only its
        signature makes it one of a user.
        """
        name = command.ext_fields.get(ACCESS_KEY)
        user = self._table.users.get(name) if name else None
        if user is not None and user.user_status is UserStatus.ENABLE:
            if verify_request(command, user.password):
                return Requester(user.username, user.is_super)
            problem = "check signature failed."
        elif user is not None:
            problem = f"User:{name} is disabled."
        else:
            problem = f"User:{name} is not found." if name else "username cannot be null."
        if command.code in self._open:
            return _NOBODY
        raise Refused(problem)

    def refusal(
        self,
        caller: Requester,
        need: Need,
        source: str,
        code: int,  # noqa: ARG002
    ) -> str | None:
        """Why the policies of a user do not allow something, or None."""
        subject = f"{SUBJECT_PREFIX}{caller.name}"
        acl = self._table.acls.get(subject)
        decision = None if acl is None else acl.decide(need, source)
        if decision is Decision.ALLOW:
            return None
        detail = "no matched policies." if decision is None else "the decision is deny."
        return f"{subject} has no permission to access {need.resource} from {source}, {detail}"
