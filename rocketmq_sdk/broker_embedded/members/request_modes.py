"""Whether a group pulls or pops a topic (`MessageRequestModeManager`).

A change is in the file before the call returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.bodies.members import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile

FILE_NAME: Final = "messageRequestMode.json"


class RequestModeManager:
    """Modes by topic and group."""

    __slots__ = ("_file", "_table")

    def __init__(self, config_file: ConfigFile) -> None:
        self._file = config_file
        self._table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def load(self) -> None:
        """Read the file. Raises `StoreError` when it holds no table of modes."""
        wrapper = self._file.load_body(MessageRequestModeSerializeWrapper)
        if wrapper is not None:
            self._table = wrapper.message_request_mode_map

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """What was set for a group and a topic."""
        return self._table.get(topic, {}).get(group)

    def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Keep a mode; on `StoreError` nothing changes."""
        topic, group = mode.topic or "", mode.consumer_group or ""
        self._replace({**self._table, topic: {**self._table.get(topic, {}), group: mode}})

    def take_over(self, wrapper: MessageRequestModeSerializeWrapper) -> None:
        """Become the copy of a master's modes; on `StoreError` nothing changes."""
        if wrapper != self.wrapper():
            self._replace(wrapper.message_request_mode_map)

    def _replace(self, table: dict[str, dict[str, SetMessageRequestModeRequestBody]]) -> None:
        self._file.store(MessageRequestModeSerializeWrapper(table).to_json())
        self._table = table

    def wrapper(self) -> MessageRequestModeSerializeWrapper:
        """All modes, as the file and GET_ALL_MESSAGE_REQUEST_MODE hold them."""
        return MessageRequestModeSerializeWrapper(
            {topic: dict(groups) for topic, groups in self._table.items()}
        )
