"""Transactions as tests hold them over a raw connection: half messages, their ends,
checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from rocketmq_sdk.protocol.bodies.members import HeartbeatData
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.transactions import EndTransactionRequestHeader
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.message_id import parse_offset_id
from support.broker import Peer, send_request

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.model.received import ReceivedMessage

COMMIT, ROLLBACK, OPEN = 8, 12, 0
BORN = 946_684_800_000
"""The wall clock of virtual time when it begins."""


def half_request(
    topic: str, body: bytes, *, unique: str, group: str = "PG", properties: str = "", **fields: Any
) -> Command:
    """A transactional send."""
    text = f"UNIQ_KEY\x01{unique}\x02TRAN_MSG\x01true\x02PGROUP\x01{group}\x02{properties}"
    return send_request(topic, body, properties=text, sys_flag=4, **fields)


def end_request(answer: Command, outcome: int, *, group: str = "PG", **changes: Any) -> Command:
    """END_TRANSACTION for the half message that a send's answer tells of."""
    fields = answer.ext_fields
    values: dict[str, Any] = {
        "topic": "any",
        "producer_group": group,
        "tran_state_table_offset": int(fields["queueOffset"]),
        "commit_log_offset": parse_offset_id(fields["msgId"])[2],
        "commit_or_rollback": outcome,
        "msg_id": fields["transactionId"],
        "transaction_id": fields["transactionId"],
        **changes,
    }
    return Command.request(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(**values))


def end_of_check(check: Command, outcome: int, *, group: str = "PG") -> Command:
    """The answer of a producer to CHECK_TRANSACTION_STATE."""
    fields = check.ext_fields
    header = EndTransactionRequestHeader(
        topic=fields["topic"],
        producer_group=group,
        tran_state_table_offset=int(fields["tranStateTableOffset"]),
        commit_log_offset=int(fields["commitLogOffset"]),
        commit_or_rollback=outcome,
        from_transaction_check=True,
        msg_id=fields["msgId"],
        transaction_id=fields["transactionId"],
    )
    return Command.request(RequestCode.END_TRANSACTION, header)


def producer_heartbeat(client_id: str, *groups: str) -> Command:
    """HEART_BEAT of a producer."""
    return Command.request(
        RequestCode.HEART_BEAT, body=HeartbeatData(client_id, groups, ()).encode()
    )


def messages_in(broker: EmbeddedBroker, topic: str, queue_id: int = 0) -> list[ReceivedMessage]:
    """All messages of a queue, read past what consumers may read."""
    store = broker.store
    found: list[ReceivedMessage] = []
    for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
        unit = store.queue_unit(topic, queue_id, offset)
        assert unit is not None
        record = store.record_at(unit[0], unit[1])
        assert record is not None
        found += decode_messages(record, inflate=False)
    return found


def bodies_in(broker: EmbeddedBroker, topic: str, queue_id: int = 0) -> list[bytes]:
    """The bodies of all messages of a queue."""
    return [message.body for message in messages_in(broker, topic, queue_id)]


def halves(broker: EmbeddedBroker) -> list[ReceivedMessage]:
    """Everything in the half topic."""
    return messages_in(broker, TRANSACTION_HALF_TOPIC)


def ops(broker: EmbeddedBroker) -> list[bytes]:
    """The bodies of all op messages."""
    return bodies_in(broker, TRANSACTION_OP_TOPIC)


async def begun(
    peer: Peer, body: bytes, *, topic: str = "orders", unique: str | None = None, **fields: Any
) -> Command:
    """Send a half message; its answer."""
    answer = await peer.ask(
        half_request(topic, body, unique=unique or f"U-{body.decode()}", **fields)
    )
    assert answer.code == 0, answer.remark
    return answer


async def ended(peer: Peer, answer: Command, outcome: int, **changes: Any) -> Command:
    """End the half message that a send's answer tells of."""
    return await peer.ask(end_request(answer, outcome, **changes))
