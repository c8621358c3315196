"""Recorded conversations, and a broker without sockets or store to hold them with."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio
from trio.testing import MockClock

from rocketmq_sdk.broker_embedded.access.part import AccessPart
from rocketmq_sdk.broker_embedded.admin.part import AdminPart
from rocketmq_sdk.broker_embedded.admin.refused import REFUSED
from rocketmq_sdk.broker_embedded.core import Core
from rocketmq_sdk.broker_embedded.filter.part import FilterPart
from rocketmq_sdk.broker_embedded.members.assignment import TopicQueues
from rocketmq_sdk.broker_embedded.members.part import MemberPart
from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
from rocketmq_sdk.broker_embedded.needs import AUTHENTICATED
from rocketmq_sdk.broker_embedded.registration.calls import BrokerIdentity
from rocketmq_sdk.broker_embedded.registration.part import RegistrationPart
from rocketmq_sdk.broker_embedded.request import Request, handlers_of
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.supervision import Supervisor
from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
from rocketmq_sdk.broker_embedded.tables.put_times import PutTimes
from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
from rocketmq_sdk.broker_embedded.tables.unwritten import Unwritten
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RocketMQError, StoreError
from rocketmq_sdk.protocol.bodies.offsets import DelayOffsetSerializeWrapper
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_pretty
from rocketmq_sdk.remoting.budget import MemoryBudget
from rocketmq_sdk.remoting.channel import Channel
from rocketmq_sdk.remoting.dispatch import Dispatcher, error_response
from support.paths import WIRE_VECTORS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from rocketmq_sdk.protocol.body import Body

_B = TypeVar("_B", bound="Body")
ADDRESS = "127.0.0.1:21911"


class FixedClock:
    """Time that a test moves."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000


class TableInMemory:
    """A configuration file that keeps its text; counts how often it was written."""

    def __init__(self, content: object = None) -> None:
        self.text = None if content is None else encode_pretty(content)
        self.writes = 0

    def load(self) -> object | None:
        return None if self.text is None else decode_json(self.text.encode())

    def load_body(self, kind: type[_B]) -> _B | None:
        value = self.load()
        return None if value is None else kind.from_json(value)

    def store(self, value: object) -> None:
        self.text = encode_pretty(value)
        self.writes += 1


class FailingTable(TableInMemory):
    """A configuration file whose disk can be full."""

    fails = False

    def store(self, value: object) -> None:
        if self.fails:
            raise StoreError("No space left on device")
        super().store(value)


class FakeChannel(Channel):
    """A peer that only asks; closing it runs the callbacks."""

    def __init__(
        self, *, local_address: str = "127.0.0.1:9876", remote_address: str = "127.0.0.1:50000"
    ) -> None:
        super().__init__(
            local_address=local_address,
            remote_address=remote_address,
            remote_host_packed=b"\x7f\x00\x00\x01\x00\x00\xc3\x50",
        )

    def abort(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            for callback in list(self.on_close):
                callback(self)

    def submit(self, *_arguments: Any, **_options: Any) -> Any:
        raise AssertionError("nobody calls a fake channel")

    send_oneway = respond = statistics = submit

    def unsent_bytes(self) -> int:
        return 0

    async def drained(self) -> None:
        return

    async def aclose(self) -> None:
        self.abort("closed")

    async def wait_closed(self) -> None:
        return


class StoreOfOffsets:
    """A store that only knows how long its queues are and that each message came at
    second `offset`.
    """

    description = "/store"

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.deleted: list[str] = []
        self.max_physical_offset = 1000
        self.min_physical_offset = 0
        self.files = MemoryFileSystem(1 << 20)
        self.dispatched = SimpleNamespace(value=900)
        self.flushed = SimpleNamespace(value=800)
        self.unreadable = SimpleNamespace(count=0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 0)

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return 0

    async def store_times(self, places: Sequence[tuple[str, int, int]]) -> list[int]:
        return [
            offset * 1000 if 0 <= offset < self.max_offset(topic, queue_id) else -1
            for topic, queue_id, offset in places
        ]

    def calculate_bit_maps(self, _bit_map: object) -> None:
        pass

    def used_ratio(self) -> float:
        return 0.25

    def earliest_store_time(self) -> int:
        return 0

    async def delete_topic(self, topic: str) -> None:
        self.deleted.append(topic)


class Scene:
    """A name server and the administration of a broker that is registered at it."""

    def __init__(
        self, config: BrokerConfig | None = None, *, files: dict[str, object] | None = None
    ) -> None:
        self.clock = FixedClock()
        self.files = {
            name: TableInMemory((files or {}).get(name)) for name in ("topics", "groups", "offsets")
        }
        self.config = LiveConfig(config or BrokerConfig(broker_ip1="127.0.0.1"))
        self.namesrv = NameServer(self.clock)
        self.store = StoreOfOffsets()
        self.core = core = Core.__new__(Core)
        core.unwritten = Unwritten()
        core.clock, core.config, core.store = self.clock, self.config, cast("Any", self.store)
        core.store_host, core.address = b"\x7f\0\0\1\0\0\x55\x97", lambda: ADDRESS
        core.topics = self.topics = TopicManager(self.files["topics"], self.config, self.clock)
        core.groups = self.groups = GroupManager(self.files["groups"], self.config, self.clock)
        core.offsets = self.offsets = ConsumerOffsetManager(
            cast("Any", self.files["offsets"]), self.clock
        )
        core.offsets.load()
        core.stats = BrokerStats()
        core.put_times = PutTimes(self.clock, core.stats)
        core.memory = MemoryBudget(1 << 28)
        core.boot_ms = self.clock.time_ms
        core.supervisor = Supervisor(self.clock, lambda: None)
        core.topic_deleted, core.group_deleted = [], []
        waiting = SimpleNamespace(behind_ms=0, pending_count=0)
        timers = SimpleNamespace(
            service=SimpleNamespace(enqueued=0, dequeued=0, behind_messages=0, timers=waiting),
            schedule=SimpleNamespace(
                wrapper=lambda: DelayOffsetSerializeWrapper({1: 2, 18: 0}, self.topics.data_version)
            ),
        )
        filters = FilterPart(core)
        topic_queues = TopicQueues(self.config, self.clock, self.namesrv.table.route, None)
        self.members = MemberPart(core, filters, topic_queues)
        part = RegistrationPart(
            core,
            self.namesrv,
            None,
            lambda: BrokerIdentity("DefaultCluster", "broker-a", 0, ADDRESS, "192.0.2.2:21912"),
        )
        self.registration = part.service
        self.registration.register_own()
        admin = AdminPart(
            core,
            part,
            self.members,
            filters,
            cast("Any", timers),
            cast("Any", None),
            AccessPart(core),
        )
        delays = Request(
            RequestCode.GET_ALL_DELAY_OFFSET,
            needs=AUTHENTICATED,
            serve=lambda: Command.response(body=timers.schedule.wrapper().encode()),
        )
        refused = {int(row.code): row.remark for row in REFUSED}
        self.broker = Dispatcher(handlers_of([*admin.requests(), delays]), refused)

    def ask(self, request: Command, *, namesrv: bool = False) -> Command:
        """The answer, which must be there at once."""
        answer = (self.namesrv.handler if namesrv else self.broker)(FakeChannel(), request)
        if callable(answer):
            try:
                answer = at_once(answer)
            except RocketMQError as error:
                answer = error_response(error)
        assert isinstance(answer, Command)
        return answer


def at_once(answer: Callable[[], Awaitable[Command | None]]) -> Command | None:
    """The answer that would wait for a disk, and there is none here."""
    return trio.run(answer, clock=MockClock(autojump_threshold=0))


Frame = tuple[str, Command, Command]


def conversation(name: str) -> Iterator[Frame]:
    """Connection, request and recorded answer, in the order of the requests."""
    path = WIRE_VECTORS / name
    text = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    asked: dict[tuple[str, int], Command] = {}
    answers: dict[tuple[str, int], Command] = {}
    for line in text.decode().splitlines():
        entry = json.loads(line)
        if "frame" not in entry:
            continue
        command = decode_frame(bytes.fromhex(entry["frame"])[4:])
        if command.is_response:
            answers[entry["conn"], command.opaque] = command
        elif entry["dir"] == "c2s" and not command.is_oneway:
            asked[entry["conn"], command.opaque] = command
    for key, request in asked.items():
        if key in answers:
            yield key[0], request, answers[key]


def body_of(command: Command) -> Any:
    """The body as JSON where it is that, lists of names sorted, since their order is
    that of Java's hash tables.
    """
    if not command.body:
        return None
    return _sorted(decode_json(command.body))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=repr)
    return value


def without(value: Any, *names: str) -> Any:
    """A JSON value without some members, at any depth."""
    if isinstance(value, dict):
        return {key: without(item, *names) for key, item in value.items() if key not in names}
    return [without(item, *names) for item in value] if isinstance(value, list) else value
