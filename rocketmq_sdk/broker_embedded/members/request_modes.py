"""Whether a group pulls or pops a topic (`MessageRequestModeManager`).

A change is in the file before the call returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.files.briefly import Turns
from rocketmq_sdk.broker_embedded.tables.table_file import write_whole
from rocketmq_sdk.protocol.bodies.members import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile

FILE_NAME: Final = "messageRequestMode.json"


_Table = dict[str, dict[str, SetMessageRequestModeRequestBody]]


class RequestModeManager:
    """Modes by topic and group."""

    __slots__ = ("_dirty", "_file", "_forgotten", "_table", "_turns", "_writing")

    def __init__(self, config_file: ConfigFile) -> None:
        self._file = config_file
        self._turns = Turns()
        self._table: _Table = {}
        self._forgotten: list[tuple[str | None, str | None]] = []
        """What was forgotten while the file is written."""
        self._writing = self._dirty = False

    def load(self) -> None:
        """Read the file. Raises `StoreError` when it holds no table of modes."""
        wrapper = self._file.load_body(MessageRequestModeSerializeWrapper)
        if wrapper is not None:
            self._table = wrapper.message_request_mode_map

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """What was set for a group and a topic."""
        return self._table.get(topic, {}).get(group)

    async def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Keep a mode; on `StoreError` nothing changes."""
        topic, group = mode.topic or "", mode.consumer_group or ""
        async with self._turns:
            groups = {**self._table.get(topic, {}), group: mode}
            await self._replace({**self._table, topic: groups})

    async def take_over(self, wrapper: MessageRequestModeSerializeWrapper) -> None:
        """Become the copy of a master's modes; on `StoreError` nothing changes."""
        async with self._turns:
            if wrapper != self.wrapper():
                await self._replace(wrapper.message_request_mode_map)

    async def _replace(self, table: _Table) -> None:
        self._writing = True
        try:
            await write_whole(self._file, MessageRequestModeSerializeWrapper(table).to_json())
            self._table, self._dirty = table, False
        finally:
            self._writing = False
            forgotten, self._forgotten = self._forgotten, []
            for topic, group in forgotten:
                self._forget(topic, group)

    def remove_topic(self, topic: str) -> None:
        """Forget a topic; `save` writes it."""
        self._forget(topic, None)

    def remove_group(self, group: str) -> None:
        """Forget a group; `save` writes it."""
        self._forget(None, group)

    def _forget(self, topic: str | None, group: str | None) -> None:
        if self._writing:
            self._forgotten.append((topic, group))
            return
        left = {
            name: {each: mode for each, mode in groups.items() if each != group}
            for name, groups in self._table.items()
            if name != topic
        }
        left = {name: groups for name, groups in left.items() if groups}
        if left != self._table:
            self._table, self._dirty = left, True

    def has_to_save(self) -> bool:
        """Whether something was forgotten that is not written."""
        return self._dirty

    async def save(self) -> None:
        """Write what was forgotten. Raises `StoreError`, and is tried again then."""
        if self._dirty:
            async with self._turns:
                await self._replace(self._table)

    def wrapper(self) -> MessageRequestModeSerializeWrapper:
        """All modes, as the file and GET_ALL_MESSAGE_REQUEST_MODE hold them."""
        return MessageRequestModeSerializeWrapper(
            {topic: dict(groups) for topic, groups in self._table.items()}
        )
