"""`Users` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.access`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.sync.life import Face

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocketmq_sdk.admin.access import Users as InnerUsers
    from rocketmq_sdk.protocol.bodies.access import UserInfo


class Users(Face):
    """Who may sign requests. `timeout` is seconds for each request.

    All methods raise `NotPermittedError` when the broker refuses: the caller needs
    Update or Get on the cluster, and must be a super user to deal with super users.
    """

    _inner: InnerUsers

    def create(
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
        return self._call(
            self._inner.create,
            username,
            password,
            user_type=user_type,
            address=address,
            cluster=cluster,
            timeout=timeout,
        )

    def update(
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
        return self._call(
            self._inner.update,
            username,
            password=password,
            user_type=user_type,
            user_status=user_status,
            address=address,
            cluster=cluster,
            timeout=timeout,
        )

    def delete(
        self,
        username: str,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a user and his policies; nothing happens where he is not."""
        return self._call(
            self._inner.delete, username, address=address, cluster=cluster, timeout=timeout
        )

    def get(
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
        return self._call(
            self._inner.get, username, address=address, cluster=cluster, timeout=timeout
        )

    def copy(
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
        return self._call(self._inner.copy, source, target, usernames, timeout=timeout)

    def list(
        self,
        containing: str | None = None,
        *,
        address: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> Sequence[UserInfo]:
        """The users of the first broker whose names contain a text, by name."""
        return self._call(
            self._inner.list, containing, address=address, cluster=cluster, timeout=timeout
        )
