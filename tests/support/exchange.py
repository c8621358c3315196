"""What a store holds, written down from our store or asked of a broker, so that both
can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.properties import KEYS, UNIQ_KEY
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from rocketmq_sdk.protocol.headers.queries import QueryMessageRequestHeader
from rocketmq_sdk.protocol.message_codec import decode_messages
from support.broker import pull_request
from support.java import Asker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

GROUP = "exchange-group"
LAST_TIME = (1 << 63) - 1


@attrs.define
class Contents:
    """Queues with their bounds and records, and what lookups by key find
    (positions).
    """

    queues: dict[tuple[str, int], tuple[int, int, bytes]] = attrs.Factory(dict)
    keys: dict[tuple[str, str], list[int]] = attrs.Factory(dict)
    times: dict[tuple[str, int, int], int] = attrs.Factory(dict)

    def messages(self) -> int:
        return sum(
            len(decode_messages(records, inflate=False))
            for _low, _high, records in self.queues.values()
        )


def questions(records: bytes) -> Iterable[tuple[str, str]]:
    """Topic and key of everything that a lookup must find."""
    for message in decode_messages(records, inflate=False, unwrap=False):
        properties = message.properties
        for key in (properties.get(UNIQ_KEY), *properties.get(KEYS, "").split()):
            if key:
                yield message.topic, key


async def contents_of_store(store: MessageStore, topics: Iterable[str]) -> Contents:
    """Everything in the queues of some topics."""
    contents = Contents()
    for topic in sorted(topics):
        for queue_id in store.queue_ids(topic):
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            records, offset = b"", low
            while offset < high:
                result = store.get(topic, queue_id, offset, 32)
                assert result.body, (topic, queue_id, offset, result)
                records += result.body
                offset = result.next_begin_offset
            contents.queues[topic, queue_id] = (low, high, records)
            for time in some_times(records) if not store.has_batch_queues(topic) else ():
                contents.times[topic, queue_id, time] = store.offset_by_time(topic, queue_id, time)
            for question in questions(records):
                if question not in contents.keys:
                    found = await store.query(*question, 64)
                    contents.keys[question] = sorted(found.physical_offsets)
    return contents


def some_times(records: bytes) -> list[int]:
    """Some of the store times, and one behind them."""
    times = sorted(
        {
            message.store_timestamp
            for message in decode_messages(records, inflate=False, unwrap=False)
        }
    )
    return [*times[:: max(1, len(times) // 5)], times[-1] + 1] if times else []


def contents_of_broker(address: str, wanted: Contents) -> Contents:
    """What a broker says of the same queues, keys and times."""
    contents = Contents()
    with Asker(address) as asker:
        for topic, queue_id in wanted.queues:
            low = _offset(
                asker,
                RequestCode.GET_MIN_OFFSET,
                GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id),
            )
            high = _offset(
                asker,
                RequestCode.GET_MAX_OFFSET,
                GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id),
            )
            records, offset = b"", low
            while offset < high:
                answer = asker.ask(pull_request(topic, offset, queue_id=queue_id, group=GROUP))
                assert answer.code == 0, (topic, queue_id, offset, answer)
                records += answer.body
                offset = int(answer.ext_fields["nextBeginOffset"])
            contents.queues[topic, queue_id] = (low, high, records)
        for topic, queue_id, time in wanted.times:
            header = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=time)
            contents.times[topic, queue_id, time] = _offset(
                asker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header
            )
        for topic, key in wanted.keys:
            query = QueryMessageRequestHeader(
                topic=topic, key=key, max_num=64, begin_timestamp=0, end_timestamp=LAST_TIME
            )
            answer = asker.ask(Command.request(RequestCode.QUERY_MESSAGE, query))
            found = (
                decode_messages(answer.body, inflate=False, unwrap=False)
                if answer.code == 0
                else []
            )
            contents.keys[topic, key] = sorted(message.commit_log_offset for message in found)
    return contents


def _offset(asker: Asker, code: int, header: Any) -> int:
    answer = asker.ask(Command.request(code, header))
    assert answer.code == 0, (header, answer)
    return int(answer.ext_fields["offset"])


def committed(address: str, group: str, topic: str, queue_id: int) -> int:
    """A group's offset by a broker."""
    with Asker(address) as asker:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id
        )
        return _offset(asker, RequestCode.QUERY_CONSUMER_OFFSET, header)
