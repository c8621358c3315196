"""`Topics` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.topics`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.admin.topics import READ_WRITE
from rocketmq_sdk.sync.life import Face

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.admin.topics import Topics as InnerTopics
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.bodies.progress import TopicOffset


class Topics(Face):
    """Topics of a cluster.

    `timeout` is seconds for each request; None means the client's `api_timeout`.

    With `namespace` set, names are those within it, in arguments and in results; other
    tenants' topics show under their full names.
    """

    _inner: InnerTopics

    def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a topic at every master, or change it there.

        Waits up to 3 s until a name server knows it.

        `queues` are those that are written to on each broker, `read_queues` those that
        are read (unset: as many); to have fewer queues without losing messages, lower
        `queues` first and `read_queues` when the others are empty. `perm` 6 is reading
        and writing, 4 reading, 2 writing. `attributes` are those of Apache's topics,
        such as `{"message.type": "FIFO"}`. Raises `ConfigurationError` for a name that
        is not allowed, the error of a broker that refuses or does not answer; the
        others have the topic then.
        """
        return self._call(
            self._inner.create,
            topic,
            queues=queues,
            read_queues=read_queues,
            perm=perm,
            order=order,
            attributes=attributes,
            cluster=cluster,
            timeout=timeout,
        )

    def delete(
        self, topic: str, *, cluster: str | None = None, timeout: float | None = None
    ) -> None:
        """Delete a topic with its messages and offsets.

        At every broker first, then at the name server.
        """
        return self._call(self._inner.delete, topic, cluster=cluster, timeout=timeout)

    def names(self, *, system: bool = False, timeout: float | None = None) -> list[str]:
        """The topics that the name server knows, sorted.

        Those of the system only with `system`: what brokers make for themselves, one
        named as each broker and cluster among it. Retry and dead letter topics belong
        to groups, and are always there.
        """
        return self._call(self._inner.names, system=system, timeout=timeout)

    def exists(self, topic: str, *, timeout: float | None = None) -> bool:
        """Whether a name server has a route for the topic."""
        return self._call(self._inner.exists, topic, timeout=timeout)

    def route(self, topic: str, *, timeout: float | None = None) -> TopicRoute:
        """Where the topic's queues are. Raises `TopicNotFoundError`."""
        return self._call(self._inner.route, topic, timeout=timeout)

    def offsets(
        self, topic: str, *, timeout: float | None = None
    ) -> dict[MessageQueue, TopicOffset]:
        """The ends of a topic's queues. Raises `TopicNotFoundError`.

        First offset, offset behind the last message, and time of the last one, by
        queue, of every master.
        """
        return self._call(self._inner.offsets, topic, timeout=timeout)
