"""Brokers of a cluster: where they are, what they tell, what they are set to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.client.api.admin import broker_config, broker_runtime_info, update_broker_config
from rocketmq_sdk.client.api.routes import cluster_info
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.errors import ConfigurationError, RouteError
from rocketmq_sdk.model.route import MASTER_ID
from rocketmq_sdk.validators import no_such_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketmq_sdk.client.runtime import Client


@attrs.frozen
class Broker:
    """One broker as name servers know it; `broker_id` 0 is the master of its name."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.broker_id == MASTER_ID


class Cluster:
    """Brokers. `timeout` is seconds; None means the client's `api_timeout`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @checked
    async def brokers(
        self, *, cluster: str | None = None, timeout: float | None = None
    ) -> list[Broker]:
        """All brokers of all clusters or of one, by cluster, name and id.

        Raises `ConnectError` when no name server answers.
        """
        info = await cluster_info(self._client, timeout)
        return sorted(
            (
                Broker(owner, name, broker_id, address)
                for owner, names in info.cluster_addr_table.items()
                for name in names
                if name in info.broker_addr_table and (cluster is None or owner == cluster)
                for broker_id, address in info.broker_addr_table[name].broker_addrs.items()
            ),
            key=lambda broker: (broker.cluster, broker.name, broker.broker_id),
        )

    @checked
    async def masters(
        self, *, cluster: str | None = None, timeout: float | None = None
    ) -> list[Broker]:
        """The brokers that take changes. Raises `RouteError` when there is none."""
        found = [
            broker
            for broker in await self.brokers(cluster=cluster, timeout=timeout)
            if broker.is_master
        ]
        if not found:
            raise RouteError(
                "the name server knows no "
                f"master{'' if cluster is None else f' in the cluster {cluster}'}"
            )
        return found

    @checked
    async def runtime_info(self, address: str, *, timeout: float | None = None) -> dict[str, str]:
        """Counters, rates and times of the broker at an address, by Apache's names."""
        return await broker_runtime_info(self._client, address, timeout)

    @checked
    async def settings(self, address: str, *, timeout: float | None = None) -> dict[str, str]:
        """The settings of the broker at an address."""
        lines = (await broker_config(self._client, address, timeout)).splitlines()
        return dict(
            line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")
        )

    @checked
    async def change_settings(
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
        for name, value in settings.items():
            if "\n" in f"{name}{value}" or "=" in name or not name:
                raise ConfigurationError(
                    f"{name!r} is no name of a setting, or its value {value!r} has more than one "
                    "line"
                )
        if not unknown:
            shown = await self.settings(address, timeout=timeout)
            settings = {_shown_name(name, shown): value for name, value in settings.items()}
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        await update_broker_config(self._client, address, text.replace("\\", "\\\\"), timeout)


def _shown_name(name: str, shown: Iterable[str]) -> str:
    """The broker's name of a setting that may be in Python's spelling."""
    names = {each.lower(): each for each in shown}
    if name in names.values():
        return name
    plain = name.replace("_", "").lower()
    if "_" in name and plain in names:
        return names[plain]
    raise ConfigurationError(
        f"{no_such_setting(name, shown).rstrip('.')} (if it has no value now, and is not shown for "
        "that reason, say that it may be unknown: unknown=True, --unknown)"
    )
