"""Asking a broker which queues to read and how, and telling it how a group reads a
topic.
"""

from __future__ import annotations

from rocketmq_sdk.client.api.call import Caller, checked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.protocol.bodies.assignment import (
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_sdk.protocol.command import Command

AVERAGE = "AVG"
AVERAGE_BY_CIRCLE = "AVG_BY_CIRCLE"


async def query_assignment(
    client: Caller,
    address: str,
    topic: str,
    group: str,
    *,
    strategy_name: str = AVERAGE,
    message_model: MessageModel = MessageModel.CLUSTERING,
    timeout: float | None = 3.0,
) -> tuple[MessageQueueAssignment, ...] | None:
    """The queues of a topic that this client shall read (400), as the broker at
    `address` sees the group.

    None means: keep what you have (the broker does not know the member yet, or not the
    strategy). Raises the broker's error.
    """
    body = QueryAssignmentRequestBody(topic, group, client.client_id, strategy_name, message_model)
    response = await client.call_address(
        address, Command.request(RequestCode.QUERY_ASSIGNMENT, body=body.encode()), timeout
    )
    checked(response, address=address, topic=topic, group=group)
    return (
        QueryAssignmentResponseBody.decode(response.body).message_queue_assignments
        if response.body
        else None
    )


async def set_message_request_mode(
    client: Caller,
    address: str,
    topic: str,
    group: str,
    mode: MessageRequestMode,
    *,
    pop_share_queue_num: int = 0,
    timeout: float | None = None,
) -> None:
    """Let a group pull a topic or pop it (401); consumers that ask for their assignment
    follow. Raises the broker's error.
    """
    body = SetMessageRequestModeRequestBody(topic, group, mode, pop_share_queue_num)
    command = Command.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())
    checked(
        await client.call_address(address, command, timeout),
        address=address,
        topic=topic,
        group=group,
    )


async def get_all_message_request_modes(
    client: Caller, address: str, *, timeout: float | None = None
) -> dict[str, dict[str, SetMessageRequestModeRequestBody]]:
    """The modes of all groups by topic (402). Raises the broker's error."""
    response = checked(
        await client.call_address(
            address, Command.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE), timeout
        ),
        address=address,
    )
    return MessageRequestModeSerializeWrapper.decode(response.body).message_request_mode_map
