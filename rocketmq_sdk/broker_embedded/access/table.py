"""The table of users and policies, in one JSON file that only its owner may read.

Apache keeps both in RocksDB. Here they are `config/access.json` beside the other tables
of the store, of mode 0600; a change is in the file before it is in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.broker_embedded.access.policies import Acl, PolicyType, Resource
from rocketmq_sdk.broker_embedded.access.users import SUBJECT_PREFIX, User
from rocketmq_sdk.errors import ConfigurationError, FieldError, StoreCorruptError
from rocketmq_sdk.protocol.bodies.access import AclInfo, UserInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile

FILE_NAME: Final = "access.json"
_USERS: Final = "users"
_ACLS: Final = "acls"


class AccessChangeError(ConfigurationError):
    """A change that is not acceptable; the text is Apache's remark."""


class AccessTable:
    """Users by name and policies by subject.

    `generation` grows with each change: what was decided before counts no more.
    """

    __slots__ = ("_file", "_lock", "acls", "generation", "users")

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._lock = trio.Lock()
        self.users: dict[str, User] = {}
        self.acls: dict[str, Acl] = {}
        self.generation = 0

    def load(self) -> None:
        """Read the file. Raises `StoreCorruptError` when it holds something else."""
        content = self._file.load()
        if content is None:
            return
        try:
            if not isinstance(content, dict):
                raise FieldError("it is no JSON object")
            users = [User.from_info(UserInfo.from_json(one)) for one in _values(content, _USERS)]
            acls = [AclInfo.from_json(one) for one in _values(content, _ACLS)]
            self.users = {user.username: user for user in users}
            self.acls = {
                info.subject: Acl.from_info(info.subject, info) for info in acls if info.subject
            }
        except (FieldError, ConfigurationError) as error:
            raise StoreCorruptError(
                f"config/{self._file.name} holds no users and policies ({error}); restore it from "
                f"{self._file.name}.bak or remove both, then only the users of the settings are "
                "left"
            ) from None

    async def add_first(self, users: Iterable[User], acls: Iterable[Acl] = ()) -> None:
        """Add users who are not there, with their policies. Raises `StoreError`."""
        missing = {user.username: user for user in users if user.username not in self.users}
        subjects = {user.subject for user in missing.values()}
        added = {acl.subject: acl for acl in acls if acl.subject in subjects}
        if missing:
            async with self._lock:
                await self._write({**self.users, **missing}, {**self.acls, **added})

    async def create_user(self, user: User) -> None:
        """Add a user. Raises `AccessChangeError` when he is there, `StoreError`."""
        async with self._lock:
            if user.username in self.users:
                raise AccessChangeError("The user is existed")
            await self._write({**self.users, user.username: user}, self.acls)

    async def update_user(self, name: str, changes: dict[str, object]) -> None:
        """Change fields of a user. Raises `AccessChangeError` when he is not there."""
        async with self._lock:
            user = self.users.get(name)
            if user is None:
                raise AccessChangeError("The user is not exist")
            changed = attrs.evolve(user, **changes)  # type: ignore[arg-type]
            await self._write({**self.users, name: changed}, self.acls)

    async def delete_user(self, name: str) -> None:
        """Remove a user with his policies, if he is there. Raises `StoreError`."""
        async with self._lock:
            if name in self.users:
                await self._write(
                    {key: user for key, user in self.users.items() if key != name},
                    {key: acl for key, acl in self.acls.items() if key != SUBJECT_PREFIX + name},
                )

    async def update_acl(self, acl: Acl) -> None:
        """Add policies of a subject, or put them in the place of those for the same
        resources. Raises `AccessChangeError` when the subject is unknown, `StoreError`.
        """
        async with self._lock:
            if not self.knows(acl.subject):
                raise AccessChangeError(f"The subject of {acl.subject} is not exist.")
            before = self.acls.get(acl.subject)
            merged = acl if before is None else before.updated(acl)
            await self._write(self.users, {**self.acls, acl.subject: merged})

    async def delete_acl(self, subject: str, kind: PolicyType, resource: Resource | None) -> None:
        """Remove a subject's policies for a resource, or all of them.

        Raises `AccessChangeError` when there are none, `StoreError`.
        """
        async with self._lock:
            if not self.knows(subject):
                raise AccessChangeError("The subject is not exist.")
            before = self.acls.get(subject)
            if before is None:
                raise AccessChangeError("The acl is not exist.")
            acls = {key: acl for key, acl in self.acls.items() if key != subject}
            if resource is not None and (left := before.without(kind, resource)).policies:
                acls[subject] = left
            await self._write(self.users, acls)

    def knows(self, subject: str) -> bool:
        """Whether the user of a subject is there."""
        return subject.removeprefix(SUBJECT_PREFIX) in self.users

    async def _write(self, users: dict[str, User], acls: dict[str, Acl]) -> None:
        await self._file.save(
            {
                _USERS: {name: user.info().to_json() for name, user in sorted(users.items())},
                _ACLS: {subject: acl.info().to_json() for subject, acl in sorted(acls.items())},
            }
        )
        self.users, self.acls = users, acls
        self.generation += 1


def _values(content: dict[str, object], member: str) -> Iterable[object]:
    table = content.get(member, {})
    if not isinstance(table, dict):
        raise FieldError(f"its member {member} is no JSON object")
    return table.values()
