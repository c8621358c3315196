"""Members of consumer groups and locks of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.call import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.groups import ConsumerList, GroupList, SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.heartbeat import CheckClientRequestBody
from rocketmq_sdk.protocol.bodies.locks import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.client import (
    GetConsumerListByGroupRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from rocketmq_sdk.protocol.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from rocketmq_sdk.protocol.headers.topics import QueryTopicConsumeByWhoRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.subscription import SubscriptionData


async def consumer_ids(
    client: Caller, address: str, group: str, timeout: float | None = None
) -> list[str]:
    """Client ids of a group's members as the broker at `address` knows them (38); none
    when the group is unknown there.
    """
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    response = await client.call_address(
        address, Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header), timeout
    )
    # A broker that knows no member of the group answers SYSTEM_ERROR.
    if response.code == 1:
        return []
    body = checked(response, address=address, group=group).body
    return list(ConsumerList.decode(body).consumer_id_list) if body else []


async def consuming_groups(
    client: Caller, address: str, topic: str, timeout: float | None = None
) -> list[str]:
    """The groups that consume a topic now or have offsets in it, as the broker at
    `address` knows them (300).
    """
    command = Command.request(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader(topic=topic)
    )
    response = checked(
        await client.call_address(address, command, timeout), address=address, topic=topic
    )
    return list(GroupList.decode(response.body).group_list)


async def check_client_config(
    client: Caller,
    address: str,
    group: str,
    subscription: SubscriptionData,
    timeout: float | None = None,
) -> None:
    """Ask a broker whether it can serve a subscription (46); raises its error when it
    cannot.
    """
    body = CheckClientRequestBody(client.client_id, group, None, subscription).encode()
    response = await client.call_address(
        address, Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=body), timeout
    )
    checked(response, address=address, topic=subscription.topic, group=group)


async def lock_batch(
    client: Caller,
    broker_name: str,
    group: str,
    queues: Iterable[MessageQueue],
    timeout: float | None = None,
) -> set[MessageQueue]:
    """Lock queues of one broker for this client, or renew locks (41); returns those
    that are locked now.
    """
    body = LockBatchRequestBody(group, client.client_id, tuple(queues))
    command = Command.request(
        RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body=body.encode()
    )
    response = checked(await client.call_broker(broker_name, command, timeout), group=group)
    return set(LockBatchResponseBody.decode(response.body).lock_ok_mq_set)


async def unlock_batch(
    client: Caller,
    broker_name: str,
    group: str,
    queues: Iterable[MessageQueue],
    timeout: float | None = None,
    *,
    oneway: bool = False,
) -> None:
    """Give locks of queues of one broker back (42)."""
    body = UnlockBatchRequestBody(group, client.client_id, tuple(queues))
    command = Command.request(
        RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body=body.encode(), oneway=oneway
    )
    if oneway:
        await client.oneway_broker(broker_name, command, timeout)
    else:
        checked(await client.call_broker(broker_name, command, timeout), group=group)


async def group_config(
    client: Caller, address: str, group: str, timeout: float | None = None
) -> SubscriptionGroupConfig:
    """How a broker keeps a group (352). Brokers before 5.0 do not serve it and answer
    REQUEST_CODE_NOT_SUPPORTED.
    """
    header = GetSubscriptionGroupConfigRequestHeader(group=group)
    response = await client.call_address(
        address, Command.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header), timeout
    )
    return SubscriptionGroupConfig.decode(checked(response, address=address, group=group).body)


async def update_group(
    client: Caller, address: str, config: SubscriptionGroupConfig, timeout: float | None = None
) -> None:
    """Create or change a consumer group at a broker (200)."""
    command = Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
    checked(
        await client.call_address(address, command, timeout),
        address=address,
        group=config.group_name,
    )


async def delete_group(
    client: Caller,
    address: str,
    group: str,
    *,
    clean_offset: bool = False,
    timeout: float | None = None,
) -> None:
    """Delete a consumer group at a broker (207), with its offsets if asked."""
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=clean_offset)
    command = Command.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    checked(await client.call_address(address, command, timeout), address=address, group=group)
