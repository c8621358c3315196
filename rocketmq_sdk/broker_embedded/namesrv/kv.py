"""The name server's key-value table (`KVConfigManager`): namespaces of texts, written to the file at each change where there is one."""

import logging

from rocketmq_sdk.broker_embedded.table_file import TableFile
from rocketmq_sdk.errors import StoreCorruptError

logger = logging.getLogger(__name__)


class KeyValueTable:
    """Texts by namespace and key."""

    __slots__ = ("_file", "_table")

    def __init__(self, config_file: TableFile | None = None) -> None:
        """Read the file where there is one.

        Raises `StoreCorruptError` when it holds something else.
        """
        self._file = config_file
        self._table: dict[str, dict[str, str]] = {}
        content = config_file.load() if config_file is not None else None
        if content is None:
            return
        table = content.get("configTable", {}) if isinstance(content, dict) else None
        if not isinstance(table, dict) or not all(isinstance(values, dict) for values in table.values()):
            raise StoreCorruptError("kvConfig.json holds no table of namespaces; restore it from kvConfig.json.bak or remove it")
        self._table = {str(name): {str(key): str(value) for key, value in values.items()} for name, values in table.items()}

    def get(self, namespace: str, key: str) -> str | None:
        """The text, or None."""
        return self._table.get(namespace, {}).get(key)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a text and write the file."""
        before = self._table.setdefault(namespace, {}).get(key)
        self._table[namespace][key] = value
        logger.info("%s/%s is now %r, before %r", namespace, key, value, before)
        self._persist()

    def delete(self, namespace: str, key: str) -> None:
        """Forget a text and write the file."""
        self._table.get(namespace, {}).pop(key, None)
        self._persist()

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All texts of a namespace, or None when it was never used."""
        values = self._table.get(namespace)
        return None if values is None else dict(values)

    def _persist(self) -> None:
        if self._file is not None:
            self._file.store({"configTable": self._table})
