"""`Request`: one row for each request that a server serves.

A row names code, header, body and handler, and what is checked in front of the handler:
which role may be asked, the VIP port, how long the request may have waited, its cost
and what it changes. The tables of handlers, the refusals of slaves, fast failure and
the page `docs/requests.md` are made from the rows.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rocketmq_sdk.protocol.body import Body
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.channel import Channel, Handler

    Answer = Command | Callable[[], Awaitable[Command | None]] | None

BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"


class Asked(Enum):
    """Who may be asked."""

    ANY = "any"
    """A master and its slaves."""
    MASTER = "master"
    """A master; slaves answer SYSTEM_BUSY, as Apache's `rejectRequest` does."""
    MASTER_BY_NAME = "master (slaves say so)"
    """A master; slaves answer SLAVE_NOT_AVAILABLE and say that they are one."""


class Wait(Enum):
    """Which setting limits how long a request may have waited before it is served.

    The values are attributes of `BrokerConfig`; see `fast_failure`.
    """

    SEND = "wait_time_mills_in_send_queue"
    PULL = "wait_time_mills_in_pull_queue"
    LITE_PULL = "wait_time_mills_in_lite_pull_queue"
    HEARTBEAT = "wait_time_mills_in_heartbeat_queue"
    TRANSACTION = "wait_time_mills_in_transaction_queue"
    ACK = "wait_time_mills_in_ack_queue"
    ADMIN = "wait_time_mills_in_admin_broker_queue"
    UNLIMITED = ""
    """Served however long it waited, as by the pools that nobody cleans in Apache's."""


class Cost(Enum):
    """What the work for one request grows with."""

    FIXED = "fixed"
    """Nothing: a few look-ups."""
    BODY = "body"
    """The body of the request: messages, subscriptions, lists."""
    MESSAGES = "messages"
    """The messages that it reads or returns."""
    TABLE = "table"
    """A table of the broker: topics, groups, offsets, members."""
    FILES = "files"
    """The files or queues of the store."""


class Writes(Flag):
    """What a request changes."""

    NOTHING = 0
    LOG = auto()
    """Messages, marks and checkpoints in the commit log."""
    TOPICS = auto()
    GROUPS = auto()
    OFFSETS = auto()
    MEMBERS = auto()
    """Who is in a group, and who holds which queue; in memory only."""
    SETTINGS = auto()
    FILES = auto()
    """It removes files of the store."""
    ROUTES = auto()
    """What a name server tells of brokers and topics."""


class Request(NamedTuple):
    """A request that is served.

    `serve` is called with the decoded header and body that the row names. With `raw` it
    gets channel and command instead and decodes them itself: requests of hot paths, and
    those that need the connection. It returns the answer, a function that makes the
    answer later, or None: no answer, or one that comes from elsewhere.
    """

    code: RequestCode
    serve: Callable[..., Answer]
    header: type[Header] | None = None
    body: type[Body] | None = None
    raw: bool = False
    asked: Asked = Asked.ANY
    vip: bool = True
    """Whether the VIP port serves it; what may be held there would fill it."""
    wait: Wait = Wait.ADMIN
    cost: Cost = Cost.FIXED
    writes: Writes = Writes.NOTHING


class Refusal(NamedTuple):
    """A request that Apache's servers know and this one does not serve, and why."""

    code: RequestCode
    reason: str

    @property
    def remark(self) -> str:
        """The remark of the answer."""
        return f" request type {int(self.code)} not supported: {self.code.name} {self.reason}"


def handler_of(row: Request) -> Handler:
    """The handler of a row: decodes what the row names, then serves."""
    serve, header, body = row.serve, row.header, row.body
    if row.raw:
        return serve
    if header is not None and body is not None:
        return lambda _channel, command: serve(
            header.from_ext(command.ext_fields), body.decode(command.body)
        )
    if header is not None:
        return lambda _channel, command: serve(header.from_ext(command.ext_fields))
    if body is not None:
        return lambda _channel, command: serve(body.decode(command.body))
    return lambda _channel, _command: serve()


def handlers_of(rows: Iterable[Request], *, slave: bool = False) -> dict[int, Handler]:
    """The handlers of all rows by code, for a master or for a slave."""
    return {
        int(row.code): _REFUSALS_OF_SLAVES[row.asked]
        if slave and row.asked in _REFUSALS_OF_SLAVES
        else handler_of(row)
        for row in rows
    }


def refuse(code: int, remark: str) -> Command:
    """An answer that is no success."""
    return Command.response(code, remark=remark)


def _busy(_channel: Channel, _command: Command) -> Command:
    return refuse(ResponseCode.SYSTEM_BUSY, BUSY)


def _not_master(_channel: Channel, command: Command) -> Command:
    name = RequestCode(command.code).name
    return refuse(
        ResponseCode.SLAVE_NOT_AVAILABLE, f"{name}: this broker is a slave; ask its master"
    )


_REFUSALS_OF_SLAVES: Final[dict[Asked, Handler]] = {
    Asked.MASTER: _busy,
    Asked.MASTER_BY_NAME: _not_master,
}
