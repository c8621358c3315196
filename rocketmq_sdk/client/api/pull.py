"""Pulling messages out of one queue."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.client.api.offsets import LARGEST_OFFSET
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import CodecMissingError, FieldError, RemoteProtocolError, broker_error
from rocketmq_sdk.model.enums import PullStatus
from rocketmq_sdk.model.results import PullResult
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketmq_sdk.protocol.message_codec import POSITION_QUEUE_OFFSET, decode_messages

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.caller import Caller
    from rocketmq_sdk.model.received import ReceivedMessage


_STATUS: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}
_END: Final = b"\x02"
_QUEUE_OFFSET: Final = Struct(">q")


class UndecodableError(RemoteProtocolError):
    """What a pull brought holds a message that cannot be decoded; `__cause__` says why.

    `queue_offset` is the offset of the first message of the answer, None when not even
    that can be read: ask for one message at a time to find the bad one.
    """

    def __init__(self, message: str, *, queue_offset: int | None) -> None:
        super().__init__(message)
        self.queue_offset = queue_offset


class PulledRecords(NamedTuple):
    """What a pull brought, records as brokers store them; `offset_delta` is to be added
    to their queue offsets.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int
    records: bytes


async def pull_records(
    client: Caller, address: str, header: PullMessageRequestHeader, timeout: float
) -> PulledRecords:
    """One pull (11, or 361 with the LITE_PULL flag) whose records stay undecoded.

    `timeout` and errors are those of `pull_message`; `UndecodableError` only for an
    answer that has found messages and holds none.
    """
    return pulled_records(
        await client.call_address(address, pull_request(header), timeout), address, header
    )


def pulled_records(
    response: Command, address: str, header: PullMessageRequestHeader
) -> PulledRecords:
    """What the answer to a pull brought. Raises the errors of `pull_records`."""
    status, found = _outcome(response, address, header)
    return PulledRecords(
        status,
        found.next_begin_offset,
        found.min_offset,
        found.max_offset,
        found.offset_delta or 0,
        response.body if status is PullStatus.FOUND else b"",
    )


async def pull_message(
    client: Caller,
    address: str,
    broker_name: str,
    header: PullMessageRequestHeader,
    timeout: float,
    *,
    tags: frozenset[str] = frozenset(),
) -> PullResult:
    """One pull (11, or 361 with the LITE_PULL flag) from the broker at `address`.

    `timeout` in seconds must be longer than the time that the header lets the broker
    hold the pull. With `tags` messages with another tag are left out, because brokers
    filter by hash only. Raises the error of any code that is no outcome of a pull,
    `UndecodableError`, and `FieldError` for an answer that leads behind the end of the
    queue. Cancellation drops the answer when it comes; nothing is lost by
    it.
    """
    response = await client.call_address(address, pull_request(header), timeout)
    return pull_result(response, broker_name, address, header, tags=tags)


def pull_result(
    response: Command,
    broker_name: str,
    address: str,
    header: PullMessageRequestHeader,
    *,
    tags: frozenset[str] = frozenset(),
) -> PullResult:
    """The result of an answer to a pull: messages decoded and inflated.

    Follows `PullAPIWrapper.processPullResult`.

    Each message gets the properties MIN_OFFSET and MAX_OFFSET of its queue.
    """
    status, found = _outcome(response, address, header)
    messages: list[ReceivedMessage] = []
    end = found.max_offset
    if status is PullStatus.FOUND:
        messages = _decoded(response.body, broker_name)
        if found.offset_delta:
            for message in messages:
                message.offset += found.offset_delta
        end = max(end, _end_of(messages))
        if tags:
            messages = [message for message in messages if message.tags in tags]
        _add_bounds(messages, found)
    return PullResult(
        status,
        _next_offset(end, found, address, header),
        found.min_offset,
        found.max_offset,
        messages,
        found.suggest_which_broker_id,
    )


def pull_request(header: PullMessageRequestHeader) -> Command:
    """The request of a pull."""
    code = (
        RequestCode.LITE_PULL_MESSAGE
        if header.sys_flag & PullSysFlag.LITE_PULL
        else RequestCode.PULL_MESSAGE
    )
    return Command.request(code, header)


def _outcome(
    response: Command, address: str, header: PullMessageRequestHeader
) -> tuple[PullStatus, PullMessageResponseHeader]:
    """Status and header of an answer. Raises the error of any code that is no outcome
    of a pull, and `UndecodableError` where what was found is missing.
    """
    status = _STATUS.get(response.code)
    if status is PullStatus.FOUND and not response.body:
        raise UndecodableError(
            "the broker has found messages, and its answer has none", queue_offset=None
        )
    if status is None:
        raise broker_error(
            response.code,
            response.remark,
            address=address,
            topic=header.topic,
            group=header.consumer_group,
        )
    return status, PullMessageResponseHeader.from_ext(response.ext_fields)


def _end_of(messages: list[ReceivedMessage]) -> int:
    """The offset behind the last message; they are nearly always in order."""
    if not messages:
        return 0
    end = messages[-1].offset + 1
    if end - messages[0].offset != len(messages):
        end = 1 + max([message.offset for message in messages])
    return end


LOOKED_AT: Final = 800
"""Messages of a queue that a pull looks at (`maxFilterMessageSize`, 16,000 bytes of the
consume queue), or as many as it asks for if these are more.
"""


def _next_offset(
    end: int, found: PullMessageResponseHeader, address: str, header: PullMessageRequestHeader
) -> int:
    """Where to go on; `end` is behind all messages that the answer tells of, or has.

    Refused is an answer that leads behind that, or has messages far behind the end of
    their queue: a group would pass messages that it has never seen, for what is led to
    is committed. Apache's clients believe it. A broker of 4.9 reads the end before it
    looks at the queue (`DefaultMessageStore.getMessage`), so that what came meanwhile
    is behind it, but not more than what one pull looks at.
    """
    offset, told = found.next_begin_offset, found.max_offset
    if told > LARGEST_OFFSET:
        problem = f"has its end at {told}, and no queue goes further than {LARGEST_OFFSET}"
    elif end > told + max(LOOKED_AT, header.max_msg_nums):
        problem = f"has a message at {end - 1}, far behind its end at {told}"
    elif offset > max(end, header.queue_offset):
        problem = f"goes on at {offset}, behind its end at {told}"
    else:
        return offset
    raise FieldError(f"queue {header.queue_id} of {header.topic}, {address} says, {problem}")


def _decoded(body: bytes, broker_name: str) -> list[ReceivedMessage]:
    try:
        return decode_messages(body, broker_name=broker_name)
    except (CodecMissingError, RemoteProtocolError) as error:
        readable = len(body) >= POSITION_QUEUE_OFFSET + _QUEUE_OFFSET.size
        offset = _QUEUE_OFFSET.unpack_from(body, POSITION_QUEUE_OFFSET)[0] if readable else None
        raise UndecodableError(str(error), queue_offset=offset) from error


def _add_bounds(messages: list[ReceivedMessage], found: PullMessageResponseHeader) -> None:
    # Appended undecoded: decoding the properties of each message would double what a
    # message costs.
    low, high = str(found.min_offset), str(found.max_offset)
    bounds = f"MIN_OFFSET\x01{low}\x02MAX_OFFSET\x01{high}\x02".encode()
    for message in messages:
        raw = message._properties_raw
        message._properties_raw = (
            raw + bounds if raw[-1:] == _END or not raw else raw + _END + bounds
        )
        decoded = message._properties
        if decoded is not None:
            decoded["MIN_OFFSET"] = low
            decoded["MAX_OFFSET"] = high
