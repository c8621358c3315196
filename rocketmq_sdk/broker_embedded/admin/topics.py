"""Topics: create and change (17, 18), delete (215), list (21, 305), one (351)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.admin.paging import page
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.slices import answer_of
from rocketmq_sdk.broker_embedded.tables.attributes import (
    CLEANUP_POLICY,
    MESSAGE_TYPE,
    RESERVE_TIME,
    parse_attributes,
)
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import InvalidParameterError
from rocketmq_sdk.names import RETRY_PREFIX, topic_problem
from rocketmq_sdk.protocol.bodies.topics import (
    CreateTopicListRequestBody,
    DataVersion,
    TopicConfig,
    TopicList,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import topics as headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.registration.part import RegistrationPart
    from rocketmq_sdk.remoting.channel import Continuation

_UNSUPPORTED: Final = {
    CLEANUP_POLICY: ("COMPACTION", "compaction is not done by this broker"),
}


class TopicRequests:
    """Topics: made, changed, deleted, listed."""

    __slots__ = ("_core", "_registration")

    def __init__(self, core: Core, registration: RegistrationPart) -> None:
        self._core = core
        self._registration = registration

    def requests(self) -> Iterable[Request]:
        """Change, delete, list."""
        return (
            Request(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                self.update_topic,
                needs.topic(Action.CREATE),
                headers.CreateTopicRequestHeader,
                writes=Writes.TOPICS,
            ),
            Request(
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
                self.update_topics,
                needs.topics_in(
                    "each Topic of the body: Create",
                    CreateTopicListRequestBody,
                    _listed,
                ),
                body=CreateTopicListRequestBody,
                cost=Cost.BODY,
                writes=Writes.TOPICS,
            ),
            Request(
                RequestCode.DELETE_TOPIC_IN_BROKER,
                self.delete_topic,
                needs.topic(Action.DELETE),
                headers.DeleteTopicRequestHeader,
                cost=Cost.TABLE,
                writes=Writes.TOPICS | Writes.OFFSETS | Writes.FILES,
            ),
            Request(
                RequestCode.GET_ALL_TOPIC_CONFIG,
                self.all_topics,
                needs.cluster(Action.LIST | Action.GET),
                headers.GetAllTopicConfigRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_TOPIC_CONFIG,
                self.one_topic,
                needs.topic(Action.GET),
                headers.GetTopicConfigRequestHeader,
            ),
            Request(
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
                self.system_topics,
                needs.cluster(Action.LIST | Action.GET),
                cost=Cost.TABLE,
            ),
        )

    def _check_name(self, topic: str) -> None:
        """Raises `InvalidParameterError` for an illegal name or a system topic."""
        problem = topic_problem(topic)
        if problem is not None:
            raise InvalidParameterError(ResponseCode.INVALID_PARAMETER, problem)
        if (
            self._core.config.current.validate_system_topic_when_update_topic
            and self._core.topics.is_system(topic)
        ):
            raise InvalidParameterError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic."
            )

    def _check(self, requested: TopicConfig) -> None:
        """Check a request to create or change a topic.

        Raises `InvalidParameterError` for a topic that is not created,
        `ConfigurationError` for bad attributes.
        """
        self._check_name(requested.topic_name)
        attributes = self._core.topics.altered_attributes(requested)
        if (
            attributes.get(MESSAGE_TYPE) == "MIXED"
            and not self._core.config.current.enable_mixed_message_type
        ):
            raise InvalidParameterError(
                ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported."
            )
        for key, (value, reason) in _UNSUPPORTED.items():
            if attributes.get(key) == value:
                raise InvalidParameterError(
                    ResponseCode.INVALID_PARAMETER, f"{key}={value}: {reason}"
                )
        if attributes.get(RESERVE_TIME, "-1") != "-1":
            raise InvalidParameterError(
                ResponseCode.INVALID_PARAMETER, f"{RESERVE_TIME}: this broker has no tiered store"
            )

    def update_topic(self, header: headers.CreateTopicRequestHeader) -> Command | Continuation:
        """UPDATE_AND_CREATE_TOPIC (17)."""
        requested = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            parse_attributes(header.attributes),
        )
        return self._update((requested,))

    def update_topics(self, body: CreateTopicListRequestBody) -> Command | Continuation:
        """UPDATE_AND_CREATE_TOPIC_LIST (18): all of them or none."""
        return self._update(body.topic_config_list)

    def _update(self, requested: tuple[TopicConfig, ...]) -> Command | Continuation:
        for topic in requested:
            self._check(topic)
        topics = self._core.topics
        with topics.together():
            changed = [topics.update(topic) for topic in requested]
        for topic, is_new in zip(requested, changed, strict=True):
            known = None if is_new else topics.get(topic.topic_name)
            if known is not None:
                # A name server may have lost it all the same.
                self._registration.service.topic_changed(known)
        return self._registration.answer_when_registered(Command.response())

    def delete_topic(self, header: headers.DeleteTopicRequestHeader) -> Continuation:
        """DELETE_TOPIC_IN_BROKER (215): a topic and its retry topics of pop groups."""
        topic = header.topic
        self._check_name(topic)
        names = [topic]
        if self._core.config.current.clear_retry_topic_when_delete_topic:
            groups = self._core.offsets.groups_of(topic)
            retry_topics = (
                f"{RETRY_PREFIX}{group}{separator}{topic}" for group in groups for separator in "_+"
            )
            names += [name for name in retry_topics if self._core.topics.get(name) is not None]
        return lambda: self._delete(names)

    async def _delete(self, names: list[str]) -> Command | None:
        """Delete topics, also when the connection ends meanwhile."""
        core = self._core
        with trio.CancelScope(shield=True):
            for name in names:
                await core.store.delete_topic(name)
                core.topics.delete(name)
                core.offsets.remove_topic(name)
                core.groups.forget_topic(name)
                for tell in core.topic_deleted:
                    tell(name)
        answer = core.unwritten.hold(Command.response())
        return await answer() if callable(answer) else answer

    def all_topics(self, header: headers.GetAllTopicConfigRequestHeader) -> Command | Continuation:
        """GET_ALL_TOPIC_CONFIG (21), whole or in parts."""
        config = self._core.config.current
        whole = self._core.topics.wrapper()
        version = whole.data_version or DataVersion()
        table = page(
            whole.topic_config_table,
            version,
            start=header.topic_seq if config.enable_split_metadata else None,
            asked_version=header.data_version,
            limit=header.max_topic_num,
            most=config.split_metadata_size,
        )
        body = attrs.evolve(whole, topic_config_table=table)
        answer = headers.GetAllTopicConfigResponseHeader(
            total_topic_num=len(whole.topic_config_table)
        )
        return answer_of(body, len(table), answer)

    def one_topic(self, header: headers.GetTopicConfigRequestHeader) -> Command:
        """GET_TOPIC_CONFIG (351)."""
        topic = header.topic
        found = self._core.topics.get(topic)
        if found is None:
            return refuse(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return Command.response(body=found.encode())

    def system_topics(self) -> Command:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        return Command.response(body=TopicList(tuple(self._core.topics.system_names())).encode())


def _listed(body: CreateTopicListRequestBody) -> Iterable[str]:
    return [one.topic_name for one in body.topic_config_list]
