"""The name server's key-value table (`KVConfigManager`).

Namespaces of texts. With a file, each change is written to it, beside the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.briefly import Turns
from rocketmq_sdk.broker_embedded.tables.table_file import write_whole
from rocketmq_sdk.errors import StoreCorruptError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile

logger = logging.getLogger(__name__)


class KeyValueTable:
    """Texts by namespace and key."""

    __slots__ = ("_file", "_table", "_turns")

    def __init__(self, config_file: TableFile | None = None) -> None:
        """Read the file where there is one.

        Raises `StoreCorruptError` when it holds something else.
        """
        self._file = config_file
        self._turns = Turns()
        self._table: dict[str, dict[str, str]] = {}
        content = config_file.load() if config_file is not None else None
        if content is None:
            return
        table = content.get("configTable", {}) if isinstance(content, dict) else None
        if not isinstance(table, dict) or not all(
            isinstance(values, dict) for values in table.values()
        ):
            raise StoreCorruptError(
                "kvConfig.json holds no table of namespaces; "
                "restore it from kvConfig.json.bak or remove it"
            )
        self._table = {
            str(name): {str(key): str(value) for key, value in values.items()}
            for name, values in table.items()
        }

    def get(self, namespace: str, key: str) -> str | None:
        """The text, or None."""
        return self._table.get(namespace, {}).get(key)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a text; on `StoreError` nothing changes."""
        async with self._turns:
            before = self._table.get(namespace, {})
            await self._change(namespace, {**before, key: value})
        logger.info("%s/%s is now %r, before %r", namespace, key, value, before.get(key))

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a text; on `StoreError` nothing changes."""
        async with self._turns:
            before = self._table.get(namespace)
            if before is not None:
                left = {name: value for name, value in before.items() if name != key}
                await self._change(namespace, left)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All texts of a namespace, or None when it was never used."""
        values = self._table.get(namespace)
        return None if values is None else dict(values)

    async def _change(self, namespace: str, values: dict[str, str]) -> None:
        """Write the table as it will be, then take it over."""
        changed = {**self._table, namespace: values}
        await write_whole(self._file, {"configTable": changed})
        self._table = changed
