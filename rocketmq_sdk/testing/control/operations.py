"""What the control endpoint can do: one row for each operation.

The page that describes them (`/openapi.json`) is made from the rows.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.testing.failures import ExpectationError
from rocketmq_sdk.testing.faults import Fault as DiskFault
from rocketmq_sdk.testing.faults import Operation as DiskOperation
from rocketmq_sdk.testing.traffic.request_faults import RequestFault
from rocketmq_sdk.testing.waits import WITHIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rocketmq_sdk.model.message import ReceivedMessage
    from rocketmq_sdk.testing.broker import TestBroker
    from rocketmq_sdk.testing.faulty_clock import ClockFault
    from rocketmq_sdk.testing.snapshots import Snapshot
    from rocketmq_sdk.testing.traffic.recording import Seen

Arguments = dict[str, Any]


class Field(NamedTuple):
    """One argument: a member of the body, of the query, or a part of the path."""

    name: str
    kind: type | tuple[type, ...]
    text: str
    required: bool = False


class Row(NamedTuple):
    """One operation."""

    method: str
    path: str
    serve: Callable[[Arguments], Awaitable[object]]
    text: str
    fields: tuple[Field, ...] = ()


NUMBER: Final = (int, float)
_TOPIC: Final = Field("topic", str, "a topic; * stands for anything in faults")
_GROUP: Final = Field("group", str, "a group; * stands for anything in faults")
_CLIENT: Final = Field("client", str, "a client id or host; * stands for anything")
_CODE: Final = Field("code", (str, int, list), "requests: a kind such as send, a name, a number")
_SELECTION: Final = (
    _CODE,
    _TOPIC,
    _GROUP,
    _CLIENT,
    Field("queue", int, "a queue id"),
    Field("times", int, "how many requests it meets; without it all"),
    Field("after", int, "how many requests pass first"),
)
_ACTION: Final = (
    Field(
        "action",
        str,
        "error, refuse, delay, drop_request, drop_answer, close_connection, out_of_order; of the "
        "disk: full_disk, slow_disk, unreadable_disk; wrong_clock",
        required=True,
    ),
    Field("error", (str, int), "the answer's code, of ResponseCode, by name or number"),
    Field("remark", str, "the answer's remark"),
    Field(
        "seconds",
        NUMBER,
        "of a delay, or of an operation of a slow disk; by which a clock is wrong",
    ),
    Field("served", bool, "whether the broker does what is asked before it fails"),
    Field("path", str, "files of the disk, such as commitlog/*"),
)
_WAIT: Final = (
    Field(
        "for",
        str,
        "stored, group, lag, committed, dead_letter, settled, hit",
        required=True,
    ),
    Field("topic", str, "of stored, committed; of lag: this one only"),
    Field("group", str, "of group, lag, committed, dead_letter"),
    Field("count", int, "messages, members, dead letters or hits; 1 without it"),
    Field("most", int, "of lag: messages that may be left"),
    Field("offsets", dict, "of committed: offsets by queue; without it the ends"),
    Field("fault", int, "of hit: the fault's id"),
    Field("within", NUMBER, f"seconds, of the broker's clock; {WITHIN:g} without it"),
)


class Operations:
    """The operations on one test broker."""

    def __init__(self, broker: TestBroker, advance: Callable[[float], None] | None) -> None:
        """`advance` moves the broker's clock; None where it cannot be moved."""
        self._broker = broker
        self._advance = advance
        self._faults: dict[int, RequestFault | DiskFault | ClockFault] = {}
        self._snapshots: dict[int, Snapshot] = {}

    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        lives = tuple(
            Row("POST", f"/v1/broker/{name}", self._life(name), text)
            for name, text in (
                ("start", "begin a life on the same data and address"),
                ("stop", "end its life in order"),
                ("restart", "stop and start"),
                ("kill", "end its life as kill -9 does"),
                ("reset", "be a new broker: nothing stored, no faults, nothing recorded"),
            )
        )
        return (
            Row("GET", "/v1/broker", self._state, "whether it runs, and where"),
            *lives,
            Row(
                "POST",
                "/v1/broker/emulate",
                self._emulate,
                "be to clients as Apache's broker of an older release; connections break",
                (Field("release", str, "such as 4.9.7; without it as the broker began"),),
            ),
            Row("GET", "/v1/report", self._report, "what it holds and saw, as text"),
            Row("GET", "/v1/topics", self._topics, "all topics, with their numbers of messages"),
            Row(
                "GET",
                "/v1/topics/{topic}/messages",
                self._messages,
                "the messages of a topic, in the order in which they were stored",
                (_in_path("topic"),),
            ),
            Row("GET", "/v1/groups", self._groups, "all groups: members, lag, dead letters"),
            Row(
                "GET",
                "/v1/groups/{group}/dead-letters",
                self._dead_letters,
                "the messages that a group has given up",
                (_in_path("group"),),
            ),
            Row(
                "GET",
                "/v1/requests",
                self._requests,
                "the requests that came, the last 10,000",
                (_CODE, _TOPIC, _GROUP, _CLIENT),
            ),
            Row("POST", "/v1/seed", self._seed, "make topics, groups, messages, offsets", _SEED),
            Row("POST", "/v1/wait", self._wait, "answer once something holds", _WAIT),
            *self._rows_of_faults(),
            *self._rows_of_snapshots(),
            Row("GET", "/v1/clock", self._clock, "the broker's clock"),
            Row(
                "POST",
                "/v1/clock",
                self._move_clock,
                "let time pass at once (with --virtual-clock)",
                (Field("advance", NUMBER, "seconds", required=True),),
            ),
        )

    def _rows_of_faults(self) -> tuple[Row, ...]:
        return (
            Row("GET", "/v1/faults", self._all_faults, "all faults and how often they were hit"),
            Row("POST", "/v1/faults", self._add_fault, "let something fail", _SELECTION + _ACTION),
            Row("DELETE", "/v1/faults", self._clear_faults, "end all faults"),
            Row("GET", "/v1/faults/{id}", self._one_fault, "one fault", (_in_path("id"),)),
            Row("DELETE", "/v1/faults/{id}", self._lift, "end a fault", (_in_path("id"),)),
            Row(
                "POST",
                "/v1/check",
                self._check,
                "fail (409) if a fault met nothing; then forget faults and records",
            ),
        )

    def _rows_of_snapshots(self) -> tuple[Row, ...]:
        return (
            Row("POST", "/v1/snapshots", self._snapshot, "keep the whole state; restarts"),
            Row(
                "POST",
                "/v1/snapshots/{id}/restore",
                self._restore,
                "put a state back; restarts",
                (_in_path("id"),),
            ),
        )

    # Its life

    def _life(self, name: str) -> Callable[[Arguments], Awaitable[object]]:
        async def change(_arguments: Arguments) -> object:
            await getattr(self._broker, name)()
            if name == "reset":
                self._faults.clear()
            return self._describe()

        return change

    async def _emulate(self, arguments: Arguments) -> object:
        await self._broker.emulate(arguments.get("release"))
        return self._describe()

    def _describe(self) -> dict[str, object]:
        broker = self._broker
        health = broker.health() if broker.running else None
        return {
            "running": broker.running,
            "brokerName": broker.config.broker_name,
            "emulates": broker.emulates,
            "address": broker.address,
            "namesrvAddress": broker.namesrv_address,
            "takingMessages": health is not None and health.taking_messages,
            "reasons": [] if health is None else list(health.reasons),
        }

    async def _state(self, _arguments: Arguments) -> object:
        return self._describe()

    # What it holds and saw

    async def _report(self, _arguments: Arguments) -> object:
        return {"report": self._broker.report()}

    async def _topics(self, _arguments: Arguments) -> object:
        seen = self._broker.wait.seen
        return {
            topic: {
                "messages": seen.stored(topic),
                "queues": {str(queue): list(ends) for queue, ends in seen.queues(topic).items()},
            }
            for topic in seen.topics()
        }

    async def _messages(self, arguments: Arguments) -> object:
        return [_message(message) for message in self._broker.sent(arguments["topic"])]

    async def _groups(self, _arguments: Arguments) -> object:
        seen = self._broker.wait.seen
        return {
            group: {
                "members": seen.members(group),
                "lag": seen.lag(group),
                "deadLetters": len(seen.dead_letters(group)),
            }
            for group in seen.groups()
        }

    async def _dead_letters(self, arguments: Arguments) -> object:
        return [_message(one) for one in self._broker.wait.seen.dead_letters(arguments["group"])]

    async def _requests(self, arguments: Arguments) -> object:
        code = arguments.get("code")
        found = self._broker.requests(
            int(code) if isinstance(code, str) and code.isdecimal() else code,
            topic=arguments.get("topic"),
            group=arguments.get("group"),
            client=arguments.get("client"),
        )
        return [_request(seen) for seen in found]

    async def _seed(self, arguments: Arguments) -> object:
        await self._broker.seed(**arguments)
        return {}

    # Waiting

    async def _wait(self, arguments: Arguments) -> object:
        wait, within = self._broker.wait, arguments.get("within", WITHIN)
        count = arguments.get("count", 1)
        group, topic = arguments.get("group"), arguments.get("topic")
        what = arguments["for"]
        if what == "settled":
            await wait.settled(within=within)
        elif what == "stored":
            messages = await wait.stored(_needed(topic, "topic"), count, within=within)
            return {"messages": [_message(message) for message in messages]}
        elif what == "dead_letter":
            messages = await wait.dead_letter(_needed(group, "group"), count, within=within)
            return {"messages": [_message(message) for message in messages]}
        elif what == "group":
            return {"members": await wait.group(_needed(group, "group"), count, within=within)}
        elif what == "lag":
            most = arguments.get("most", 0)
            await wait.lag(_needed(group, "group"), topic, most=most, within=within)
        elif what == "committed":
            offsets = arguments.get("offsets")
            await wait.committed(
                _needed(group, "group"),
                _needed(topic, "topic"),
                None if offsets is None else {int(queue): at for queue, at in offsets.items()},
                within=within,
            )
        elif what == "hit":
            fault = self._fault(arguments.get("fault"))
            if not isinstance(fault, RequestFault):
                raise ConfigurationError("only hits of a fault of requests can be waited for")
            await wait.hit(fault, count, within=within)
        else:
            raise ConfigurationError(f"nothing is called {what!r} that can be waited for")
        return {}

    # Faults

    async def _add_fault(self, arguments: Arguments) -> object:
        fault = self._declare(arguments)
        number = len(self._faults) + 1
        self._faults[number] = fault
        return _fault(number, fault)

    def _declare(self, arguments: Arguments) -> RequestFault | DiskFault | ClockFault:
        faults, action = self._broker.faults, arguments["action"]
        if action in ("full_disk", "unreadable_disk", "slow_disk"):
            return self._declare_disk(arguments)
        if action == "wrong_clock":
            return faults.wrong_clock(float(_needed(arguments.get("seconds"), "seconds")))
        which = faults.on(
            arguments.get("code"),
            topic=arguments.get("topic"),
            queue=arguments.get("queue"),
            group=arguments.get("group"),
            client=arguments.get("client"),
            times=arguments.get("times"),
            after=arguments.get("after", 0),
        )
        served = arguments.get("served", False)
        if action == "error":
            return which.error(
                arguments.get("error", "SYSTEM_ERROR"),
                arguments.get("remark", "as the test wants it"),
                served=served,
            )
        if action == "delay":
            return which.delay(float(_needed(arguments.get("seconds"), "seconds")), served=served)
        if action == "close_connection":
            return which.close_connection(served=served)
        simple: dict[str, Callable[[], RequestFault]] = {
            "refuse": which.refuse,
            "drop_request": which.drop_request,
            "drop_answer": which.drop_answer,
            "out_of_order": which.out_of_order,
        }
        if action not in simple:
            raise ConfigurationError(f"there is no action {action!r}")
        return simple[action]()

    def _declare_disk(self, arguments: Arguments) -> DiskFault:
        faults = self._broker.faults
        path = str(arguments.get("path", "commitlog/*"))
        if arguments["action"] == "full_disk":
            return faults.full_disk(path)
        if arguments["action"] == "unreadable_disk":
            return faults.unreadable_disk(path)
        seconds = float(_needed(arguments.get("seconds"), "seconds"))
        return faults.slow_disk(seconds, DiskOperation.SYNC, path)

    def _fault(self, number: Any) -> RequestFault | DiskFault | ClockFault:
        found = self._faults.get(int(number)) if str(number).isdecimal() else None
        if found is None:
            raise ConfigurationError(f"there is no fault {number}")
        return found

    async def _all_faults(self, _arguments: Arguments) -> object:
        return [_fault(number, fault) for number, fault in self._faults.items()]

    async def _one_fault(self, arguments: Arguments) -> object:
        return _fault(int(arguments["id"]), self._fault(arguments["id"]))

    async def _lift(self, arguments: Arguments) -> object:
        self._fault(arguments["id"]).lift()
        return {}

    async def _clear_faults(self, _arguments: Arguments) -> object:
        self._broker.faults.clear()
        self._faults.clear()
        return {}

    async def _check(self, _arguments: Arguments) -> object:
        try:
            self._broker.check()
        finally:
            self._faults.clear()
        return {}

    # Whole states, and time

    async def _snapshot(self, _arguments: Arguments) -> object:
        number = len(self._snapshots) + 1
        self._snapshots[number] = await self._broker.snapshot()
        return {"id": number, "size": self._snapshots[number].size}

    async def _restore(self, arguments: Arguments) -> object:
        number = arguments["id"]
        found = self._snapshots.get(int(number)) if number.isdecimal() else None
        if found is None:
            raise ConfigurationError(f"there is no snapshot {number}")
        await self._broker.restore(found)
        return self._describe()

    async def _clock(self, _arguments: Arguments) -> object:
        return {"now": self._broker.clock.now_ms(), "virtual": self._advance is not None}

    async def _move_clock(self, arguments: Arguments) -> object:
        if self._advance is None:
            raise ExpectationError("this clock cannot be moved; start with --virtual-clock")
        seconds = float(arguments["advance"])
        if not 0 <= seconds < 1e9:
            raise ConfigurationError(f"advance is {seconds:g}; give seconds from 0 on")
        self._advance(seconds)
        return await self._clock(arguments)


_SEED: Final = (
    Field("topics", (dict, list), "numbers of queues by name, or names"),
    Field("groups", list, "names"),
    Field("messages", dict, "by topic: texts, JSON, or objects with body, tags, keys, queue, ..."),
    Field("offsets", dict, "by group and topic: one for all queues, or a list"),
)


def _in_path(name: str) -> Field:
    return Field(name, str, f"the {name}", required=True)


def _needed(value: Any, name: str) -> Any:
    if value is None:
        raise ConfigurationError(f"{name} is missing")
    return value


def _message(message: ReceivedMessage) -> Mapping[str, object]:
    return {
        "topic": message.topic,
        "messageId": message.message_id,
        "body": message.body.decode("utf-8", "replace"),
        "bodyBase64": base64.b64encode(message.body).decode("ascii"),
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": message.properties,
        "queueId": message.queue_id,
        "queueOffset": message.offset,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
    }


def _request(seen: Seen) -> Mapping[str, object]:
    return {
        "name": seen.name,
        "code": seen.code,
        "where": seen.where,
        "host": seen.host,
        "clientId": seen.client_id,
        "topics": sorted(seen.topics),
        "groups": sorted(seen.groups),
        "queueId": seen.queue,
        "fields": dict(seen.fields),
        "answer": seen.answer,
        "time": seen.time,
    }


def _fault(number: int, fault: RequestFault | DiskFault | ClockFault) -> Mapping[str, object]:
    return {"id": number, "hits": fault.hits, "fault": repr(fault)}
