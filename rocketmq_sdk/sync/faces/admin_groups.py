"""`Groups` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.groups`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.sync.life import Face

if TYPE_CHECKING:
    from datetime import datetime

    from rocketmq_sdk.admin.groups import Groups as InnerGroups
    from rocketmq_sdk.admin.groups import Progress
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.bodies.connections import ClientConnection
    from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig


class Groups(Face):
    """Consumer groups of a cluster.

    `timeout` is seconds for each request; None means the client's `api_timeout`.

    With `namespace` set, names of groups and topics are those within it, in arguments
    and in results.
    """

    _inner: InnerGroups

    def create(
        self,
        config: SubscriptionGroupConfig | str,
        *,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a group at every master, or change it there.

        A name alone means Apache's defaults.

        Raises `ConfigurationError` for a name that is not allowed, the error of a
        broker that refuses or does not answer; the others have the group then.
        """
        return self._call(self._inner.create, config, cluster=cluster, timeout=timeout)

    def delete(
        self,
        group: str,
        *,
        clean_offsets: bool = True,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Delete a group at every master, by default with its offsets.

        Its retry and dead-letter topics stay.
        """
        return self._call(
            self._inner.delete, group, clean_offsets=clean_offsets, cluster=cluster, timeout=timeout
        )

    def config(self, group: str, *, timeout: float | None = None) -> SubscriptionGroupConfig:
        """The settings of a group, at the first master that keeps it.

        Raises `GroupNotFoundError` when none does; asking never makes a group.
        """
        return self._call(self._inner.config, group, timeout=timeout)

    def names(self, *, system: bool = False, timeout: float | None = None) -> list[str]:
        """The groups that any master keeps, sorted; `system` adds those of the brokers.

        A broker makes a group when its first consumer comes, where that is allowed.
        """
        return self._call(self._inner.names, system=system, timeout=timeout)

    def progress(
        self, group: str, topic: str | None = None, *, timeout: float | None = None
    ) -> Progress:
        """How far a group is, in one topic or in all of its topics, over all masters.

        Empty for a group that never consumed. Raises `GroupNotFoundError` for one that
        no master keeps, `TopicNotFoundError` for a topic that no name server knows.
        """
        return self._call(self._inner.progress, group, topic, timeout=timeout)

    def members(self, group: str, *, timeout: float | None = None) -> list[ClientConnection]:
        """The connected clients of a group, each once; empty when nobody is there."""
        return self._call(self._inner.members, group, timeout=timeout)

    def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        to: datetime | int | None = None,
        queue: MessageQueue | None = None,
        offset: int | None = None,
        timeout: float | None = None,
    ) -> dict[MessageQueue, int]:
        """Let a group go on elsewhere; the new offsets by queue.

        `to` is a time (aware `datetime` or epoch milliseconds), None the end of the
        queues, which skips what is waiting. Or `queue` and `offset` name one place.
        Members that run follow at their next pull, and a group without members finds it
        when it comes. Raises `TopicNotFoundError`, and the broker's error for a group
        that does not exist or an offset out of range.
        """
        return self._call(
            self._inner.reset_offsets,
            group,
            topic,
            to=to,
            queue=queue,
            offset=offset,
            timeout=timeout,
        )

    def clone_offsets(
        self,
        source: str,
        target: str,
        topic: str,
        *,
        offline: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Give a group the offsets of another one in a topic.

        Raises `TopicNotFoundError`.

        Without `offline` nothing is copied while members of the source are there and do
        not subscribe to the topic.
        """
        return self._call(
            self._inner.clone_offsets, source, target, topic, offline=offline, timeout=timeout
        )
