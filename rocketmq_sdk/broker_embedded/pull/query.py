"""Looking messages up: QUERY_MESSAGE (12) by key, unique id or tag, VIEW_MESSAGE_BY_ID
(33) by place (`QueryMessageProcessor`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all, refused
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.queries import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketmq_sdk.protocol.message_codec import POSITION_PHYSICAL_OFFSET

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.broker_embedded.store.messages import QueryResult
    from rocketmq_sdk.remoting.channel import Continuation, Handler

UNIQUE_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""The ext field that says that the key is a unique id."""
_NO_RESULT: Final = "can not find message, maybe time range not correct"


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def query_message(context: BrokerContext, command: Command) -> Continuation:
    """QUERY_MESSAGE (12): whole records, oldest first. Only hashes were compared, so
    others than those asked for may be among them.
    """
    header = QueryMessageRequestHeader.from_ext(command.ext_fields)
    unique = command.ext_fields.get(UNIQUE_QUERY, "").lower() == "true"
    limit = context.store.config.default_query_max_num if unique else header.max_num
    index_type = None if unique else header.index_type

    async def answer() -> Command:
        if limit <= 0:
            return _nothing()
        found = await context.store.query(
            header.topic,
            header.key,
            limit,
            header.begin_timestamp,
            header.end_timestamp,
            index_type,
        )
        return _found(found) if found.records else _nothing()

    return answer


def _found(result: QueryResult) -> Command:
    reach = QueryMessageResponseHeader(
        index_last_update_timestamp=result.index_last_update_timestamp,
        index_last_update_phyoffset=result.index_last_update_physical_offset,
    )
    return Command.response(0, reach, body=b"".join(result.records))


def _nothing() -> Command:
    reach = QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=0)
    return Command.response(ResponseCode.QUERY_NOT_FOUND, reach, remark=_NO_RESULT)


def view_message(context: BrokerContext, command: Command) -> Continuation:
    """VIEW_MESSAGE_BY_ID (33): the record that begins at a position of the log."""
    offset = ViewMessageRequestHeader.from_ext(command.ext_fields).offset
    store = context.store

    async def answer() -> Command:
        with store.reading(max(0, offset)):
            record = await store.files.run(lambda: store.record_at(offset))
        # What an offset in the middle of a record seems to begin with is no record.
        if record is None or record[
            POSITION_PHYSICAL_OFFSET : POSITION_PHYSICAL_OFFSET + 8
        ] != offset.to_bytes(8, "big", signed=True):
            return refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return Command.response(body=record)

    return answer


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.QUERY_MESSAGE: query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: view_message,
}
