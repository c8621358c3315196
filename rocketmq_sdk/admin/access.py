"""Users and policies of a cluster whose brokers check access.

The methods are mqadmin's sub-commands: `createUser` is `admin.users.create`, `copyAcl`
is `admin.acls.copy`. Brokers do not tell each other of users, so changes go to every
broker of the cluster, slaves included, or to the one at `address`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api import access as api
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.errors import ConfigurationError, NotFoundError
from rocketmq_sdk.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocketmq_sdk.admin.cluster import Cluster
    from rocketmq_sdk.client.runtime import Client

_USER: Final = "User:"


def _subject(name: str) -> str:
    """`User:name`; the name alone will do."""
    return name if name.startswith(_USER) else _USER + name


def _policies(
    subject: str,
    resources: Iterable[str],
    actions: Iterable[str],
    decision: str,
    source_ips: Iterable[str],
    policy_type: str,
) -> AclInfo:
    sources, named = tuple(source_ips), tuple(actions)
    entries = tuple(PolicyEntryInfo(one, named, sources or None, decision) for one in resources)
    return AclInfo(_subject(subject), (PolicyInfo(policy_type, entries),))


class _Everywhere:
    """Where changes go to, and where questions are asked."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster

    async def _addresses(
        self, address: str | None, cluster: str | None, timeout: float | None
    ) -> Sequence[str]:
        if address is not None:
            if cluster is not None:
                raise ConfigurationError("give either address= or cluster=")
            return [address]
        found = await self._cluster.brokers(cluster=cluster, timeout=timeout)
        if not found:
            raise ConfigurationError(f"the name server knows no broker of the cluster {cluster}")
        return [broker.address for broker in found]

    async def _first(self, address: str | None, cluster: str | None, timeout: float | None) -> str:
        return (await self._addresses(address, cluster, timeout))[0]


class Users(_Everywhere):
    """Who may sign requests. `timeout` is seconds for each request.

    All methods raise `NotPermittedError` when the broker refuses: the caller needs
    Update or Get on the cluster, and must be a super user to deal with super users.
    """

    @checked
    async def create(
        self,
        username: str,
        password: str,
        *,
        user_type: str = "Normal",
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Add a user; `user_type` is Normal or Super.

        Raises `NotPermittedError` at the first broker that has him already; brokers
        before that one keep him.
        """
        user = UserInfo(username, password, user_type)
        for each in await self._addresses(address, cluster, timeout):
            await api.create_user(self._client, each, user, timeout)

    @checked
    async def update(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Change what is not None; `user_status` is enable or disable."""
        user = UserInfo(username, password, user_type, user_status)
        for each in await self._addresses(address, cluster, timeout):
            await api.update_user(self._client, each, user, timeout)

    @checked
    async def delete(
        self,
        username: str,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a user and his policies; nothing happens where he is not."""
        for each in await self._addresses(address, cluster, timeout):
            await api.delete_user(self._client, each, username, timeout)

    @checked
    async def get(
        self,
        username: str,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> UserInfo | None:
        """A user as the first broker knows him, or None.

        His password is among the fields, if the caller may see it, and in no repr.
        """
        each = await self._first(address, cluster, timeout)
        return await api.get_user(self._client, each, username, timeout)

    @checked
    async def copy(
        self,
        source: str,
        target: str,
        usernames: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Copy users, all of them without `usernames`, from one broker to another.

        Both are addresses. Users that the target has are changed. Raises
        `NotFoundError` for a name that the source does not know.
        """
        found = await api.list_users(self._client, source, None, timeout)
        users = {user.username: user for user in found}
        for name in users if usernames is None else usernames:
            user = users.get(name)
            if user is None:
                raise NotFoundError(3001, f"the broker {source} knows no user {name!r}")
            there = await api.get_user(self._client, target, user.username or "", timeout)
            change = api.create_user if there is None else api.update_user
            await change(self._client, target, user, timeout)

    @checked
    async def list(
        self,
        containing: str | None = None,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> Sequence[UserInfo]:
        """The users of the first broker whose names contain a text, by name."""
        each = await self._first(address, cluster, timeout)
        return await api.list_users(self._client, each, containing, timeout)


class Acls(_Everywhere):
    """What users may do. `timeout` is seconds for each request.

    Subjects are written `User:name` or just `name`; resources `*`, `Topic:name`,
    `Topic:prefix*`, `Group:*`, `Cluster:name`. Raises as `Users` does.
    """

    @checked
    async def create(
        self,
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        *,
        decision: str = "Allow",
        source_ips: Iterable[str] = (),
        policy_type: str = "Custom",
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Allow or deny actions on each of the resources.

        Actions are Pub, Sub, Create, Update, Delete, Get, List or All; `source_ips`
        are addresses or ranges (10.0.0.0/8), none for everywhere. Policies for the same
        resources are replaced. Default policies count where no Custom one matches.
        """
        acl = _policies(subject, resources, actions, decision, source_ips, policy_type)
        for each in await self._addresses(address, cluster, timeout):
            await api.create_acl(self._client, each, acl, timeout)

    @checked
    async def update(
        self,
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        *,
        decision: str = "Allow",
        source_ips: Iterable[str] = (),
        policy_type: str = "Custom",
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """The same as `create`, by the request of `updateAcl`."""
        acl = _policies(subject, resources, actions, decision, source_ips, policy_type)
        for each in await self._addresses(address, cluster, timeout):
            await api.update_acl(self._client, each, acl, timeout)

    @checked
    async def delete(
        self,
        subject: str,
        resource: str | None = None,
        *,
        policy_type: str | None = None,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove the policies for one resource, or without it all of the subject."""
        for each in await self._addresses(address, cluster, timeout):
            await api.delete_acl(
                self._client, each, _subject(subject), policy_type, resource, timeout
            )

    @checked
    async def get(
        self,
        subject: str,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> AclInfo | None:
        """The policies of a subject as the first broker knows them, or None."""
        each = await self._first(address, cluster, timeout)
        return await api.get_acl(self._client, each, _subject(subject), timeout)

    @checked
    async def copy(
        self,
        source: str,
        target: str,
        subjects: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Copy policies, those of all subjects without `subjects`, to another broker.

        `source` and `target` are addresses; the users must be there (`users.copy`).
        """
        found = {
            acl.subject: acl
            for acl in await api.list_acls(self._client, source, None, None, timeout)
        }
        for name in found if subjects is None else map(_subject, subjects):
            acl = found.get(name)
            if acl is None:
                raise NotFoundError(3002, f"the broker {source} knows no policies of {name}")
            await api.create_acl(self._client, target, acl, timeout)

    @checked
    async def list(
        self,
        subject: str | None = None,
        resource: str | None = None,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> Sequence[AclInfo]:
        """Policies at the first broker whose subject, and resource, contain a text."""
        each = await self._first(address, cluster, timeout)
        return await api.list_acls(self._client, each, subject, resource, timeout)
