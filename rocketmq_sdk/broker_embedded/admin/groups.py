"""Consumer groups: create and change (200, 225), delete (207), list (201), one (352),
what is forbidden to them (353).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all, page, refused
from rocketmq_sdk.broker_embedded.pull.broadcast_offsets import GROUP_SUFFIX as BROADCAST_SUFFIX
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import InvalidParameterError
from rocketmq_sdk.names import group_problem
from rocketmq_sdk.protocol.bodies.groups import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import groups as headers

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.remoting.channel import Handler


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def update_group(context: BrokerContext, command: Command) -> Command:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
    return _update(context, (SubscriptionGroupConfig.decode(command.body),))


def update_groups(context: BrokerContext, command: Command) -> Command:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): all of them or none."""
    return _update(context, SubscriptionGroupList.decode(command.body).group_config_list)


def _update(context: BrokerContext, requested: tuple[SubscriptionGroupConfig, ...]) -> Command:
    for group in requested:
        problem = group_problem(group.group_name)
        if problem is not None:
            raise InvalidParameterError(ResponseCode.INVALID_PARAMETER, problem)
    context.groups.update_all(requested)
    return Command.response()


def delete_group(context: BrokerContext, command: Command) -> Command:
    """DELETE_SUBSCRIPTIONGROUP (207); its offsets go only when asked for."""
    header = headers.DeleteSubscriptionGroupRequestHeader.from_ext(command.ext_fields)
    context.groups.delete(header.group_name)
    if header.clean_offset:
        context.offsets.remove_group(header.group_name)
        context.offsets.remove_group(header.group_name + BROADCAST_SUFFIX)
    for tell in context.group_deleted:
        tell(header.group_name)
    return Command.response()


def all_groups(context: BrokerContext, command: Command) -> Command:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), whole or in parts."""
    header = headers.GetAllSubscriptionGroupRequestHeader.from_ext(command.ext_fields)
    config = context.config.current
    whole = context.groups.wrapper()
    version = whole.data_version or DataVersion()
    table = page(
        whole.subscription_group_table,
        version,
        start=header.group_seq if config.enable_split_metadata else None,
        asked_version=header.data_version,
        limit=header.max_group_num,
        most=config.split_metadata_size,
    )
    answer = headers.GetAllSubscriptionGroupResponseHeader(
        total_group_num=len(whole.subscription_group_table)
    )
    return Command.response(
        0, answer, body=SubscriptionGroupWrapper(table, whole.forbidden_table, version).encode()
    )


def one_group(context: BrokerContext, command: Command) -> Command:
    """GET_SUBSCRIPTIONGROUP_CONFIG (352); asking makes the group where groups are made
    at first use.
    """
    group = context.groups.get(
        headers.GetSubscriptionGroupConfigRequestHeader.from_ext(command.ext_fields).group
    )
    if group is None:
        return refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
    return Command.response(body=group.encode())


def forbidden(context: BrokerContext, command: Command) -> Command:
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353): whether a group may read a topic, after it
    was set where asked.
    """
    header = headers.UpdateGroupForbiddenRequestHeader.from_ext(command.ext_fields)
    if header.readable is not None:
        context.groups.set_forbidden(header.group, header.topic, not header.readable)
    readable = not context.groups.is_forbidden(header.group, header.topic)
    return Command.response(body=GroupForbidden(header.group, header.topic, readable).encode())


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: update_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: update_groups,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: delete_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all_groups,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: one_group,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: forbidden,
}
