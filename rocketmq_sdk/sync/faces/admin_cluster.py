"""`Cluster` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.admin.cluster`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.sync.life import Face

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.admin.cluster import Broker
    from rocketmq_sdk.admin.cluster import Cluster as InnerCluster


class Cluster(Face):
    """Brokers. `timeout` is seconds; None means the client's `api_timeout`."""

    _inner: InnerCluster

    def brokers(self, *, cluster: str | None = None, timeout: float | None = None) -> list[Broker]:
        """All brokers of all clusters or of one, by cluster, name and id.

        Raises `ConnectError` when no name server answers.
        """
        return self._call(self._inner.brokers, cluster=cluster, timeout=timeout)

    def masters(self, *, cluster: str | None = None, timeout: float | None = None) -> list[Broker]:
        """The brokers that take changes. Raises `RouteError` when there is none."""
        return self._call(self._inner.masters, cluster=cluster, timeout=timeout)

    def runtime_info(self, address: str, *, timeout: float | None = None) -> dict[str, str]:
        """Counters, rates and times of the broker at an address, by Apache's names."""
        return self._call(self._inner.runtime_info, address, timeout=timeout)

    def settings(self, address: str, *, timeout: float | None = None) -> dict[str, str]:
        """The settings of the broker at an address."""
        return self._call(self._inner.settings, address, timeout=timeout)

    def change_settings(
        self,
        address: str,
        settings: Mapping[str, str],
        *,
        unknown: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change settings of a running broker, all or none.

        Names are in Python's or in Java's spelling. Raises `ConfigurationError` for one
        that the broker does not show among its settings, because Apache's broker says
        nothing and does nothing then (`Configuration.mergeIfExist`). A setting without
        a value, such as `haMasterAddress`, is not shown either: `unknown` sends all
        names as they are. Raises the broker's error when it refuses a name or a value.
        """
        return self._call(
            self._inner.change_settings, address, settings, unknown=unknown, timeout=timeout
        )
