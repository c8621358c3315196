"""`Request`: one row for each request that a server serves.

A row names code, header, body and handler, and what is checked in front of the handler:
what the caller must be allowed (`needs`), which role may be asked, the VIP port, how
long the request may have waited, how large its body may be, its cost and what it
changes. What is admitted of single fields stands at the header and body classes
(`protocol.limits`). The tables of handlers, access control, the refusals of slaves,
fast failure and the page `docs/requests.md` are made from the rows.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import trio

from rocketmq_sdk.broker_embedded.admission import check_body_size, check_part
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.json.dialect import NotStrictError
from rocketmq_sdk.protocol.limits import TEXT_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from rocketmq_sdk.broker_embedded.needs import Rule
    from rocketmq_sdk.protocol.body import Body
    from rocketmq_sdk.protocol.header import Header
    from rocketmq_sdk.remoting.budget import MemoryBudget
    from rocketmq_sdk.remoting.channel import Channel, Handler, Together

    Answer = Command | Callable[[], Awaitable[Command | None]] | None


class Answers(Protocol):
    """Holds answers back that depend on what is not written yet."""

    touched: bool
    """Whether the handler that ran last depends on something unwritten."""

    def hold(self, answer: Answer, /) -> Answer:
        """The answer, after what is unwritten now is written."""
        ...


class _NothingUnwritten:
    touched = False

    def hold(self, answer: Answer, /) -> Answer:
        return answer


KIBIBYTE: Final = 1024
BODY: Final = 1024 * KIBIBYTE
"""Most bytes of a body, unless the row says otherwise."""
SETTINGS: Final = 64 * KIBIBYTE
"""Most bytes of a text of settings."""
TABLE: Final = 8 * 1024 * KIBIBYTE
"""Most bytes of a whole table, as a broker registers it."""
WHOLE_FRAME: Final = 1 << 31
"""For messages: `maxMessageSize` is their limit."""
_TOLERATED: Final = 64 * KIBIBYTE
"""Most bytes of a body that is not strict JSON; the tolerant reader takes long."""
KEPT_BODY: Final = 4 * KIBIBYTE
"""Most bytes of a body, with the fields of its header, that is kept decoded."""
KEPT_BODIES: Final = 256 * KIBIBYTE
"""Bytes of the bodies that are kept decoded for one kind of request."""
AT_ONCE: Final = 32 * KIBIBYTE
"""Bytes of a body that is decoded on the loop; larger ones, and those that inflate, are
decoded in a thread.
"""
_TOLERATED_AT_ONCE: Final = 4 * KIBIBYTE
"""Most bytes of a body that is not strict JSON and is decoded on the loop: some
milliseconds of work.
"""
_OBJECT: Final = 72
"""Bytes that a list, an object or an entry of one takes when it is decoded, at most,
beside its text.
"""
_OF_INFLATED: Final = 8
"""How many times its bytes an inflated body takes when it is decoded, at most."""

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

    `serve` is called with the decoded header and body that the row names, after channel
    and command if `connection` says so. With `raw` it gets channel and command only and
    decodes what it needs: requests of hot paths. It returns the answer, a function that
    makes the answer later, or None: no answer, or one that comes from elsewhere.
    """

    code: RequestCode
    serve: Callable[..., Answer]
    needs: Rule
    """What the caller must be allowed, where access control is on."""
    header: type[Header] | None = None
    body: type[Body] | None = None
    raw: bool = False
    together: Together | None = None
    """Serves several that arrived together, where it is served so and not refused."""
    connection: bool = False
    read_body: Callable[[Command, Any], object] | None = None
    """Decodes the body, given command and header, where its class alone does not."""
    unpacked: Callable[[Command], int] | None = None
    """Most bytes that a compressed body may inflate to; 0 when it is small enough to be
    decoded on the loop.
    """
    body_limit: int = BODY
    """Most bytes of the body."""
    repeated: bool = False
    """Whether clients send the same body again and again, all the time that they are
    there: the last ones are kept decoded, with their headers.
    """
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


class _Decoding:
    """Large bodies are decoded one at a time.

    Their objects take many times their bytes, and count against the memory of
    connections meanwhile.
    """

    __slots__ = ("_memory", "_one_at_a_time")

    def __init__(self, memory: MemoryBudget | None) -> None:
        self._memory = memory
        self._one_at_a_time = trio.CapacityLimiter(1)

    async def in_thread(
        self, decode: Callable[[Command], list[object]], command: Command, unpacked: int
    ) -> list[object]:
        async with self._one_at_a_time:
            if self._memory is None:
                return await trio.to_thread.run_sync(decode, command)
            size = unpacked * _OF_INFLATED or await trio.to_thread.run_sync(memory_of, command.body)
            with self._memory.working_on(size):
                return await trio.to_thread.run_sync(decode, command)


def memory_of(body: bytes) -> int:
    """Bytes of memory that the objects of a JSON text take, at most."""
    objects = body.count(b",") + body.count(b"[") + body.count(b"{")
    return len(body) + _OBJECT * objects


def handler_of(row: Request, answers: Answers, decoding: _Decoding) -> Handler:
    """The handler of a row: admits and decodes what the row names, then serves."""
    if row.raw:
        return _raw(row, answers)
    decoded = _Decoded(row, answers, decoding)
    reads = row.body is not None or row.read_body is not None
    return decoded.with_body if reads else decoded.without_body


def _raw(row: Request, answers: Answers) -> Handler:
    serve, header, most = row.serve, row.header, row.body_limit
    if most >= WHOLE_FRAME:
        # Sends: their handlers judge body, properties and names, as Apache's do.

        def message(channel: Channel, command: Command) -> Answer:
            answer = serve(channel, command)
            return answers.hold(answer) if answers.touched else answer

        return message
    if header is None:

        def sized(channel: Channel, command: Command) -> Answer:
            if len(command.body) > most:
                check_body_size(command, most)
            return serve(channel, command)

        return sized
    join, decode = "".join, header.from_ext

    def admitted(channel: Channel, command: Command) -> Answer:
        # Where all texts together are short, each of them is.
        if len(join(command.ext_fields.values())) > TEXT_MAX:
            check_part(decode(command.ext_fields))
        if len(command.body) > most:
            check_body_size(command, most)
        answer = serve(channel, command)
        return answers.hold(answer) if answers.touched else answer

    return admitted


_Written = tuple[bytes, tuple[object, ...]]
"""A body, and the fields that are decoded with it."""


def _cost_of(written: _Written) -> int:
    """Bytes of the keys of what is kept decoded."""
    body, fields = written
    return len(body) + (len(repr(fields)) if fields else 0)


class _Decoded:
    """Decodes what a row names and serves it; a broker has about a hundred of them."""

    __slots__ = (
        "_answers",
        "_call",
        "_connection",
        "_decoding",
        "_header",
        "_kept",
        "_kept_bytes",
        "_most",
        "_row",
    )

    def __init__(self, row: Request, answers: Answers, decoding: _Decoding) -> None:
        self._row = row
        self._call = row.serve
        self._header = row.header
        self._most = row.body_limit
        self._connection = row.connection
        self._answers = answers
        self._decoding = decoding
        self._kept: dict[_Written, list[object]] = {}
        self._kept_bytes = 0

    def without_body(self, channel: Channel, command: Command) -> Answer:
        """The handler of a row that reads no body."""
        if len(command.body) > self._most:
            check_body_size(command, self._most)
        answers, header, call = self._answers, self._header, self._call
        if header is None:
            answer = call(channel, command) if self._connection else call()
        else:
            decoded = header.from_ext(command.ext_fields)
            check_part(decoded)
            answer = call(channel, command, decoded) if self._connection else call(decoded)
        return answers.hold(answer) if answers.touched else answer

    def with_body(self, channel: Channel, command: Command) -> Answer:
        """The handler of a row that reads the body, in a thread where it is large."""
        size, unpacked = len(command.body), self._row.unpacked
        if size > self._most:
            check_body_size(command, self._most)
        inflated = 0 if unpacked is None else unpacked(command)
        if self._row.repeated and size <= KEPT_BODY and not inflated:
            return self._serve(channel, command, self._known_arguments(command))
        if size > AT_ONCE or inflated:
            return lambda: self._later(channel, command, inflated)
        try:
            arguments = self._arguments(command, _TOLERATED_AT_ONCE)
        except NotStrictError:
            return lambda: self._later(channel, command, inflated)
        return self._serve(channel, command, arguments)

    def _known_arguments(self, command: Command) -> list[object]:
        """What came before in the same bytes, or comes again: decoded once."""
        kept, written = self._kept, command.body
        fields: tuple[object, ...] = ()
        if self._header is not None:
            fields = (command.version, *command.ext_fields.items())
        decoded = kept.get((written, fields))
        if decoded is None:
            decoded = self._arguments(command)
            cost = _cost_of((written, fields))
            if cost > KEPT_BODY:
                return decoded
            while self._kept_bytes > KEPT_BODIES:
                oldest = next(iter(kept))
                del kept[oldest]
                self._kept_bytes -= _cost_of(oldest)
            kept[written, fields] = decoded
            self._kept_bytes += cost
        return decoded

    def _arguments(self, command: Command, tolerated: int = _TOLERATED) -> list[object]:
        row, decoded = self._row, list[object]()
        if row.header is not None:
            decoded.append(row.header.from_ext(command.ext_fields))
            check_part(decoded[0])
        if row.read_body is not None:
            decoded.append(row.read_body(command, *decoded))
        elif row.body is not None:
            decoded.append(row.body.decode(command.body, tolerated=tolerated))
        check_part(decoded[-1])
        return decoded

    def _serve(self, channel: Channel, command: Command, decoded: list[object]) -> Answer:
        answers, call = self._answers, self._call
        answer = call(channel, command, *decoded) if self._connection else call(*decoded)
        return answers.hold(answer) if answers.touched else answer

    async def _later(self, channel: Channel, command: Command, inflated: int) -> Command | None:
        decoded = await self._decoding.in_thread(self._arguments, command, inflated)
        answer = self._serve(channel, command, decoded)
        return answer if answer is None or isinstance(answer, Command) else await answer()


def handlers_of(
    rows: Iterable[Request],
    *,
    slave: bool = False,
    answers: Answers | None = None,
    memory: MemoryBudget | None = None,
) -> dict[int, Handler]:
    """The handlers of all rows by code, for a master or for a slave.

    `answers` holds back those that depend on what is not written yet; `memory` counts
    what large bodies take while they are decoded.
    """
    held = _NothingUnwritten() if answers is None else answers
    decoding = _Decoding(memory)
    return {
        int(row.code): _REFUSALS_OF_SLAVES[row.asked]
        if slave and row.asked in _REFUSALS_OF_SLAVES
        else handler_of(row, held, decoding)
        for row in rows
    }


def together_of(
    rows: Iterable[Request], handlers: Mapping[int, Handler], *, slave: bool = False
) -> dict[Handler, Together]:
    """What serves several requests at once, by what serves each of them alone."""
    return {
        handlers[int(row.code)]: row.together
        for row in rows
        if row.together is not None and not (slave and row.asked in _REFUSALS_OF_SLAVES)
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
