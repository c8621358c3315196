"""Looking messages up: QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33).

The first by key, unique id or tag, the second by place (`QueryMessageProcessor` of
Apache).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.needs import is_of
from rocketmq_sdk.broker_embedded.request import refuse
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import ProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.queries import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketmq_sdk.protocol.message_codec import POSITION_PHYSICAL_OFFSET, decode_message

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import QueryResult
    from rocketmq_sdk.remoting.channel import Channel, Continuation

UNIQUE_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""The ext field that says that the key is a unique id."""
_NO_RESULT: Final = "can not find message, maybe time range not correct"


class QueryProcessor:
    """Looks messages up in the store."""

    def __init__(self, store: MessageStore, config: LiveConfig) -> None:
        self._store = store
        self._config = config

    def query_message(
        self, _channel: Channel, command: Command, header: QueryMessageRequestHeader
    ) -> Continuation:
        """QUERY_MESSAGE (12): whole records, oldest first.

        Only hashes are compared, so other messages may be among them.
        """
        unique = command.ext_fields.get(UNIQUE_QUERY, "").lower() == "true"
        limit = self._store.config.default_query_max_num if unique else header.max_num
        index_type = None if unique else header.index_type

        async def answer() -> Command:
            if limit <= 0:
                return _nothing()
            found = await self._store.query(
                header.topic,
                header.key,
                limit,
                header.begin_timestamp,
                header.end_timestamp,
                index_type,
            )
            records = [record for record in found.records if self._shown(record, header.topic)]
            return _found(found, records) if records else _nothing()

        return answer

    def view_message(self, header: ViewMessageRequestHeader) -> Continuation:
        """VIEW_MESSAGE_BY_ID (33): the record that begins at a position of the log."""
        offset, store = header.offset, self._store

        async def answer() -> Command:
            with store.reading(max(0, offset)):
                record = await store.files.run(lambda: store.record_at(offset))
            # What an offset in the middle of a record seems to begin with is no record.
            if (
                record is None
                or record[POSITION_PHYSICAL_OFFSET : POSITION_PHYSICAL_OFFSET + 8]
                != offset.to_bytes(8, "big", signed=True)
                or not self._shown(record, header.topic)
            ):
                return refuse(
                    ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
                )
            return Command.response(body=record)

        return answer

    def _shown(self, record: bytes, topic: str | None) -> bool:
        """Whether a record may be shown to somebody who may read a topic.

        Keys are compared by their hashes, and anybody can name a place.
        """
        if not self._config.current.authorization_enabled:
            return True
        try:
            return is_of(topic, decode_message(record, inflate=False))
        except ProtocolError:
            return False


def _found(result: QueryResult, records: list[bytes]) -> Command:
    reach = QueryMessageResponseHeader(
        index_last_update_timestamp=result.index_last_update_timestamp,
        index_last_update_phyoffset=result.index_last_update_physical_offset,
    )
    return Command.response(0, reach, body=b"".join(records))


def _nothing() -> Command:
    reach = QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=0)
    return Command.response(ResponseCode.QUERY_NOT_FOUND, reach, remark=_NO_RESULT)
