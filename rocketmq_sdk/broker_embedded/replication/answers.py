"""What a broker's role changes for clients: what a slave refuses, and which broker a
consumer is told to read from next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.messages import GetResult, GetStatus
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.route import MASTER_ID
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
    from rocketmq_sdk.remoting.channel import Channel, Handler

BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"
_WRITES: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
)
_ENDINGS: Final = (RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE)
_OUT_OF_RANGE: Final = frozenset(
    {
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.OFFSET_OVERFLOW_BADLY,
    }
)


def slave_handlers() -> dict[int, Handler]:
    """What a slave answers to requests that would write: only its master does."""

    def busy(_channel: Channel, _command: Command) -> Command:
        return Command.response(ResponseCode.SYSTEM_BUSY, remark=BUSY)

    def no_slave(_channel: Channel, command: Command) -> Command:
        return Command.response(
            ResponseCode.SLAVE_NOT_AVAILABLE,
            remark=f"{RequestCode(command.code).name}: this broker is a slave; ask its master",
        )

    return {**{int(code): busy for code in _WRITES}, **{int(code): no_slave for code in _ENDINGS}}


def why_not_read(context: BrokerContext) -> str | None:
    """Why a slave does not serve a pull now; None on a master, and where
    `slaveReadEnable` allows it.
    """
    replication = context.replication
    if not replication.is_slave:
        return None
    if not context.config.current.slave_read_enable:
        return BUSY
    if replication.refuses_reads:
        slave = replication.slave
        return (
            "[REJECTREQUEST]this slave does not serve now: "
            f"{(slave and slave.problem) or 'its log is being compared with its master'}"
        )
    return None


def directed(
    context: BrokerContext,
    group: SubscriptionGroupConfig,
    result: GetResult,
    code: int,
    asked_offset: int,
) -> tuple[int, int, int]:
    """Code, next offset and suggested broker id of a pull's answer, by the broker's
    role.

    A reader far behind is sent to a slave, one that has caught up to the master. A
    slave with its master alive sends everybody else there, and whoever finds nothing
    comes again at once, at the master. A slave alone keeps its readers: those that ask
    for what it does not have wait for it, because the master may have it; Apache's let
    them ask again and again. Offsets outside of a queue are not corrected on a slave
    unless `offsetCheckInSlave` says so.
    """
    config, replication = context.config.current, context.replication
    next_offset = result.next_begin_offset
    if not config.slave_read_enable:
        return code, next_offset, MASTER_ID
    suggested = (
        group.which_broker_when_consume_slowly
        if result.suggest_slave
        else replication.home(group.broker_id)
    )
    if not replication.is_slave:
        return code, next_offset, suggested
    checks = config.store.offset_check_in_slave
    if result.status in _OUT_OF_RANGE and not checks:
        next_offset = asked_offset
    if replication.master_is_there:
        if code != ResponseCode.SUCCESS and not result.suggest_slave:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
    elif code == ResponseCode.PULL_OFFSET_MOVED and not checks:
        code = ResponseCode.PULL_NOT_FOUND
    return code, next_offset, suggested
