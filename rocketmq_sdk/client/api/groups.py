"""Consumer groups at a broker."""

from __future__ import annotations

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)


async def group_config(
    client: Caller, address: str, group: str, timeout: float | None = None
) -> SubscriptionGroupConfig:
    """How a broker keeps a group (352).

    Brokers before 5.0 do not serve it and answer REQUEST_CODE_NOT_SUPPORTED.
    """
    header = GetSubscriptionGroupConfigRequestHeader(group=group)
    response = await client.call_address(
        address, Command.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header), timeout
    )
    return SubscriptionGroupConfig.decode(checked(response, address=address, group=group).body)


async def all_groups(
    client: Caller, address: str, timeout: float | None = None
) -> dict[str, SubscriptionGroupConfig]:
    """The groups that a broker keeps, by name (201)."""
    command = Command.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    response = checked(await client.call_address(address, command, timeout), address=address)
    return SubscriptionGroupWrapper.decode(response.body).subscription_group_table


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
