"""Topics: create and change (17, 18), delete (215), list (21, 305), one (351)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded.handlers import (
    Serve,
    answer_when_registered,
    bind_all,
    page,
    refused,
)
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
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.remoting.channel import Continuation, Handler

MOST_QUEUES: Final = 65_536
"""More queues than this would only hurt: each answer about the topic names all of
them.
"""
_UNSUPPORTED: Final = {
    CLEANUP_POLICY: ("COMPACTION", "compaction is not done by this broker"),
}


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def _check_name(context: BrokerContext, topic: str) -> None:
    """Raises `InvalidParameterError` for a name that is not legal or belongs to the
    broker.
    """
    problem = topic_problem(topic)
    if problem is not None:
        raise InvalidParameterError(ResponseCode.INVALID_PARAMETER, problem)
    if context.config.current.validate_system_topic_when_update_topic and context.topics.is_system(
        topic
    ):
        raise InvalidParameterError(
            ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic."
        )


def _check(context: BrokerContext, requested: TopicConfig) -> None:
    """Raises `InvalidParameterError` for a topic that is not created,
    `ConfigurationError` for attributes that are not acceptable.
    """
    _check_name(context, requested.topic_name)
    if not (
        0 <= requested.read_queue_nums <= MOST_QUEUES
        and 0 <= requested.write_queue_nums <= MOST_QUEUES
    ):
        raise InvalidParameterError(
            ResponseCode.INVALID_PARAMETER, f"the numbers of queues must be 0 to {MOST_QUEUES}"
        )
    attributes = context.topics.altered_attributes(requested)
    if (
        attributes.get(MESSAGE_TYPE) == "MIXED"
        and not context.config.current.enable_mixed_message_type
    ):
        raise InvalidParameterError(
            ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported."
        )
    for key, (value, reason) in _UNSUPPORTED.items():
        if attributes.get(key) == value:
            raise InvalidParameterError(ResponseCode.INVALID_PARAMETER, f"{key}={value}: {reason}")
    if attributes.get(RESERVE_TIME, "-1") != "-1":
        raise InvalidParameterError(
            ResponseCode.INVALID_PARAMETER, f"{RESERVE_TIME}: this broker has no tiered store"
        )


def update_topic(context: BrokerContext, command: Command) -> Command | Continuation:
    """UPDATE_AND_CREATE_TOPIC (17)."""
    header = headers.CreateTopicRequestHeader.from_ext(command.ext_fields)
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
    return _update(context, (requested,))


def update_topics(context: BrokerContext, command: Command) -> Command | Continuation:
    """UPDATE_AND_CREATE_TOPIC_LIST (18): all of them or none."""
    return _update(context, CreateTopicListRequestBody.decode(command.body).topic_config_list)


def _update(context: BrokerContext, requested: tuple[TopicConfig, ...]) -> Command | Continuation:
    for topic in requested:
        _check(context, topic)
    with context.topics.together():
        changed = [context.topics.update(topic) for topic in requested]
    answer = Command.response()
    return answer_when_registered(context, answer) if any(changed) else answer


def delete_topic(context: BrokerContext, command: Command) -> Command:
    """DELETE_TOPIC_IN_BROKER (215), with the retry topics that pop consumers of it
    have.
    """
    topic = headers.DeleteTopicRequestHeader.from_ext(command.ext_fields).topic
    _check_name(context, topic)
    names = [topic]
    if context.config.current.clear_retry_topic_when_delete_topic:
        groups = context.offsets.groups_of(topic)
        retry_topics = (
            f"{RETRY_PREFIX}{group}{separator}{topic}" for group in groups for separator in "_+"
        )
        names += [name for name in retry_topics if context.topics.get(name) is not None]
    for name in names:
        context.topics.delete(name)
        context.offsets.remove_topic(name)
        context.store.delete_topic(name)
        for tell in context.topic_deleted:
            tell(name)
    return Command.response()


def all_topics(context: BrokerContext, command: Command) -> Command:
    """GET_ALL_TOPIC_CONFIG (21), whole or in parts."""
    header = headers.GetAllTopicConfigRequestHeader.from_ext(command.ext_fields)
    config = context.config.current
    whole = context.topics.wrapper()
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
    answer = headers.GetAllTopicConfigResponseHeader(total_topic_num=len(whole.topic_config_table))
    return Command.response(0, answer, body=body.encode())


def one_topic(context: BrokerContext, command: Command) -> Command:
    """GET_TOPIC_CONFIG (351)."""
    topic = headers.GetTopicConfigRequestHeader.from_ext(command.ext_fields).topic
    found = context.topics.get(topic)
    if found is None:
        return refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    return Command.response(body=found.encode())


def system_topics(context: BrokerContext, _command: Command) -> Command:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
    return Command.response(body=TopicList(tuple(context.topics.system_names())).encode())


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: update_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: update_topics,
    RequestCode.DELETE_TOPIC_IN_BROKER: delete_topic,
    RequestCode.GET_ALL_TOPIC_CONFIG: all_topics,
    RequestCode.GET_TOPIC_CONFIG: one_topic,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: system_topics,
}
