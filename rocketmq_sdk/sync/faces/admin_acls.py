"""`Acls` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.access`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.sync.life import Face

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocketmq_sdk.admin.access import Acls as InnerAcls
    from rocketmq_sdk.protocol.bodies.access import AclInfo


class Acls(Face):
    """What users may do. `timeout` is seconds for each request.

    Subjects are written `User:name` or just `name`; resources `*`, `Topic:name`,
    `Topic:prefix*`, `Group:*`, `Cluster:name`. Raises as `Users` does.
    """

    _inner: InnerAcls

    def create(
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
        return self._call(
            self._inner.create,
            subject,
            resources,
            actions,
            decision=decision,
            source_ips=source_ips,
            policy_type=policy_type,
            address=address,
            cluster=cluster,
            timeout=timeout,
        )

    def update(
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
        return self._call(
            self._inner.update,
            subject,
            resources,
            actions,
            decision=decision,
            source_ips=source_ips,
            policy_type=policy_type,
            address=address,
            cluster=cluster,
            timeout=timeout,
        )

    def delete(
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
        return self._call(
            self._inner.delete,
            subject,
            resource,
            policy_type=policy_type,
            address=address,
            cluster=cluster,
            timeout=timeout,
        )

    def get(
        self,
        subject: str,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> AclInfo | None:
        """The policies of a subject as the first broker knows them, or None."""
        return self._call(
            self._inner.get, subject, address=address, cluster=cluster, timeout=timeout
        )

    def copy(
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
        return self._call(self._inner.copy, source, target, subjects, timeout=timeout)

    def list(
        self,
        subject: str | None = None,
        resource: str | None = None,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> Sequence[AclInfo]:
        """Policies at the first broker whose subject, and resource, contain a text."""
        return self._call(
            self._inner.list, subject, resource, address=address, cluster=cluster, timeout=timeout
        )
