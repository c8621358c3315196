"""A slave's calls to its master, for tables that are not in the log.

`BrokerOuterAPI` and `SlaveSynchronize` of Apache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import NotSupportedError, RemoteProtocolError, broker_error
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketmq_sdk.protocol.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from rocketmq_sdk.protocol.bodies.replication import HARuntimeInfo
from rocketmq_sdk.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.groups import GetAllSubscriptionGroupRequestHeader
from rocketmq_sdk.protocol.headers.topics import GetAllTopicConfigRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller
    from rocketmq_sdk.protocol.header import Header

CALL_TIMEOUT = 10.0
PAGE_SIZE = 2000
_RESTARTS = 5
_Value = TypeVar("_Value")


async def ask(
    caller: AddressCaller, address: str, code: RequestCode, header: Header | None = None
) -> Command:
    """Send one request to the master.

    Raises `BrokerError` when it is refused, `ConnectError` or `RequestTimeoutError`
    when there is no answer.
    """
    answer = await caller.call(address, Command.request(code, header), CALL_TIMEOUT)
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address=address)
    return answer


async def log_end(caller: AddressCaller, address: str) -> int:
    """The position where the master's log ends.

    From GET_BROKER_HA_STATUS (907), or from GET_BROKER_RUNTIME_INFO (28) of masters
    before 5.0. Raises as `ask` does.
    """
    try:
        body = (await ask(caller, address, RequestCode.GET_BROKER_HA_STATUS)).body
    except NotSupportedError:
        body = (await ask(caller, address, RequestCode.GET_BROKER_RUNTIME_INFO)).body
        return int(KVTable.decode(body).table.get("commitLogMaxOffset", "0"))
    return HARuntimeInfo.decode(body).master_commit_log_max_offset


async def all_topics(caller: AddressCaller, address: str) -> TopicConfigSerializeWrapper:
    """GET_ALL_TOPIC_CONFIG (21): the whole table, in the master's parts.

    Raises as `ask` does, and `RemoteProtocolError` when the parts do not end.
    """
    for _ in range(_RESTARTS):
        table: dict[str, TopicConfig] = {}
        version: DataVersion | None = None
        while True:
            header = GetAllTopicConfigRequestHeader(
                topic_seq=len(table), data_version=_text(version), max_topic_num=PAGE_SIZE
            )
            answer = await ask(caller, address, RequestCode.GET_ALL_TOPIC_CONFIG, header)
            wrapper = TopicConfigSerializeWrapper.decode(answer.body)
            if version is not None and wrapper.data_version != version:
                break
            version = wrapper.data_version
            if _complete(table, wrapper.topic_config_table, answer, "totalTopicNum"):
                return TopicConfigSerializeWrapper(table, version)
    raise RemoteProtocolError(
        f"the topics of {address} changed again and again while they were fetched"
    )


async def all_groups(caller: AddressCaller, address: str) -> SubscriptionGroupWrapper:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): the whole table, in parts.

    The master chooses the parts. Raises as `all_topics` does.
    """
    for _ in range(_RESTARTS):
        table: dict[str, SubscriptionGroupConfig] = {}
        version: DataVersion | None = None
        while True:
            header = GetAllSubscriptionGroupRequestHeader(
                group_seq=len(table), data_version=_text(version), max_group_num=PAGE_SIZE
            )
            answer = await ask(
                caller, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header
            )
            wrapper = SubscriptionGroupWrapper.decode(answer.body)
            if version is not None and wrapper.data_version != version:
                break
            version = wrapper.data_version
            if _complete(table, wrapper.subscription_group_table, answer, "totalGroupNum"):
                return SubscriptionGroupWrapper(table, wrapper.forbidden_table, version)
    raise RemoteProtocolError(
        f"the groups of {address} changed again and again while they were fetched"
    )


def _text(version: DataVersion | None) -> str | None:
    return None if version is None else version.encode().decode()


def _complete(
    table: dict[str, _Value], part: dict[str, _Value], answer: Command, total_field: str
) -> bool:
    """Add a part; returns whether it was the last one.

    An answer without a total is the whole table. Raises `RemoteProtocolError` for a
    part without anything new while the table is not complete.
    """
    before = len(table)
    table.update(part)
    total = answer.ext_fields.get(total_field)
    if total is None or not total.isdecimal() or len(table) >= int(total):
        return True
    if len(table) == before:
        raise RemoteProtocolError(
            f"a master announces {total_field} {total} and sends the same {before} again"
        )
    return False


async def all_offsets(caller: AddressCaller, address: str) -> ConsumerOffsetSerializeWrapper:
    """GET_ALL_CONSUMER_OFFSET (43). Raises as `ask` does."""
    return ConsumerOffsetSerializeWrapper.decode(
        (await ask(caller, address, RequestCode.GET_ALL_CONSUMER_OFFSET)).body
    )


async def delay_offsets(caller: AddressCaller, address: str) -> DelayOffsetSerializeWrapper:
    """GET_ALL_DELAY_OFFSET (45). Raises as `ask` does."""
    return DelayOffsetSerializeWrapper.decode(
        (await ask(caller, address, RequestCode.GET_ALL_DELAY_OFFSET)).body
    )
