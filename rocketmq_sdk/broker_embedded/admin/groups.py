"""Requests about consumer groups: codes 200, 201, 207, 225, 352, 353."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.admin.paging import page
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.pull.broadcast_offsets import GROUP_SUFFIX as BROADCAST_SUFFIX
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.slices import answer_of
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
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.remoting.channel import Continuation


class GroupRequests:
    """Consumer groups: made, changed, deleted, listed."""

    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    def requests(self) -> Iterable[Request]:
        """Change, delete, list."""
        return (
            Request(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                self.update_group,
                needs.groups_in(
                    "Group of the body: Create",
                    SubscriptionGroupConfig,
                    _named,
                ),
                body=SubscriptionGroupConfig,
                cost=Cost.BODY,
                writes=Writes.GROUPS,
            ),
            Request(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                self.update_groups,
                needs.groups_in(
                    "each Group of the body: Create",
                    SubscriptionGroupList,
                    _listed,
                ),
                body=SubscriptionGroupList,
                cost=Cost.BODY,
                writes=Writes.GROUPS,
            ),
            Request(
                RequestCode.DELETE_SUBSCRIPTIONGROUP,
                self.delete_group,
                needs.group(Action.DELETE, "groupName"),
                headers.DeleteSubscriptionGroupRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.GROUPS | Writes.OFFSETS,
            ),
            Request(
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                self.all_groups,
                needs.cluster(Action.LIST | Action.GET),
                headers.GetAllSubscriptionGroupRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
                self.one_group,
                needs.group(Action.GET, "group"),
                headers.GetSubscriptionGroupConfigRequestHeader,
                writes=Writes.GROUPS,
            ),
            Request(
                RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
                self.forbidden,
                needs.topic_and_group(Action.UPDATE, "group"),
                headers.UpdateGroupForbiddenRequestHeader,
                writes=Writes.GROUPS,
            ),
        )

    def update_group(self, body: SubscriptionGroupConfig) -> Command:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        return self._update((body,))

    def update_groups(self, body: SubscriptionGroupList) -> Command:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): all of them or none."""
        return self._update(body.group_config_list)

    def _update(self, requested: tuple[SubscriptionGroupConfig, ...]) -> Command:
        for group in requested:
            problem = group_problem(group.group_name)
            if problem is not None:
                raise InvalidParameterError(ResponseCode.INVALID_PARAMETER, problem)
        self._core.groups.update_all(requested)
        return Command.response()

    def delete_group(self, header: headers.DeleteSubscriptionGroupRequestHeader) -> Command:
        """DELETE_SUBSCRIPTIONGROUP (207); its offsets go only when asked for."""
        self._core.groups.delete(header.group_name)
        if header.clean_offset:
            self._core.offsets.remove_group(header.group_name)
            self._core.offsets.remove_group(header.group_name + BROADCAST_SUFFIX)
        for tell in self._core.group_deleted:
            tell(header.group_name)
        return Command.response()

    def all_groups(
        self, header: headers.GetAllSubscriptionGroupRequestHeader
    ) -> Command | Continuation:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), whole or in parts."""
        config = self._core.config.current
        whole = self._core.groups.wrapper()
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
        body = SubscriptionGroupWrapper(table, whole.forbidden_table, version)
        return answer_of(body, len(table) + len(whole.forbidden_table), answer)

    def one_group(self, header: headers.GetSubscriptionGroupConfigRequestHeader) -> Command:
        """GET_SUBSCRIPTIONGROUP_CONFIG (352): one group.

        Asking creates the group where groups are created at first use.
        """
        group = self._core.groups.get(header.group)
        if group is None:
            return refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return Command.response(body=group.encode())

    def forbidden(self, header: headers.UpdateGroupForbiddenRequestHeader) -> Command:
        """UPDATE_AND_GET_GROUP_FORBIDDEN (353): whether a group may read a topic.

        The permission is set first when the request carries a value.
        """
        if header.readable is not None:
            self._core.groups.set_forbidden(header.group, header.topic, not header.readable)
        readable = not self._core.groups.is_forbidden(header.group, header.topic)
        return Command.response(body=GroupForbidden(header.group, header.topic, readable).encode())


def _named(body: SubscriptionGroupConfig) -> Iterable[str]:
    return (body.group_name,)


def _listed(body: SubscriptionGroupList) -> Iterable[str]:
    return [one.group_name for one in body.group_config_list]
