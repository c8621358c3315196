"""What the control endpoint can do: one row for each operation.

The page that describes them (`/openapi.json`) is made from the rows.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.testing.control.arguments import (
    ACTION,
    ACTIONS,
    CLIENT,
    CODE,
    GROUP,
    NUMBER,
    SEED,
    SELECTION,
    TOPIC,
    WAIT,
    WAITS,
    Arguments,
    Field,
    by_queue,
    check_taken,
    in_path,
    needed,
    number_of,
)
from rocketmq_sdk.testing.control.schemas import (
    KEPT,
    NOTHING,
    REPORT,
    WAITED,
    items,
    named,
    one_of_parts,
)
from rocketmq_sdk.testing.failures import ExpectationError
from rocketmq_sdk.testing.faults import Fault as DiskFault
from rocketmq_sdk.testing.faults import Operation as DiskOperation
from rocketmq_sdk.testing.traffic.request_faults import RequestFault
from rocketmq_sdk.testing.waits import WITHIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.testing.broker import TestBroker
    from rocketmq_sdk.testing.control.schemas import Schema
    from rocketmq_sdk.testing.faulty_clock import ClockFault
    from rocketmq_sdk.testing.snapshots import Snapshot
    from rocketmq_sdk.testing.traffic.recording import Seen


_LATEST: Final = 190_000_000_000_000
"""Epoch milliseconds that a clock may reach. Dates end 2,000 years later, so that what
is due by then, such as a message of a far time, has one.
"""


class Row(NamedTuple):
    """One operation."""

    method: str
    path: str
    serve: Callable[[Arguments], Awaitable[object]]
    text: str
    fields: tuple[Field, ...] = ()
    answer: Schema = NOTHING
    """What is answered."""


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
            Row("POST", f"/v1/broker/{name}", self._life(name), text, answer=one_of_parts("Broker"))
            for name, text in (
                ("start", "begin a life on the same data and address"),
                ("stop", "end its life in order"),
                ("restart", "stop and start"),
                ("kill", "end its life as kill -9 does"),
                ("reset", "be a new broker: nothing stored, no faults, nothing recorded"),
            )
        )
        return (
            Row(
                "GET",
                "/v1/broker",
                self._state,
                "whether it runs, and where",
                answer=one_of_parts("Broker"),
            ),
            *lives,
            Row(
                "POST",
                "/v1/broker/emulate",
                self._emulate,
                "be to clients as Apache's broker of an older release; connections break",
                (Field("release", str, "such as 4.9.7; without it as the broker began"),),
                one_of_parts("Broker"),
            ),
            *self._rows_of_state(),
            Row("POST", "/v1/seed", self._seed, "make topics, groups, messages, offsets", SEED),
            Row("POST", "/v1/wait", self._wait, "answer once something holds", WAIT, WAITED),
            *self._rows_of_faults(),
            *self._rows_of_snapshots(),
            Row(
                "GET", "/v1/clock", self._clock, "the broker's clock", answer=one_of_parts("Clock")
            ),
            Row(
                "POST",
                "/v1/clock",
                self._move_clock,
                "let time pass at once (with --virtual-clock)",
                (Field("advance", NUMBER, "seconds", required=True, least=0),),
                one_of_parts("Clock"),
            ),
        )

    def _rows_of_state(self) -> tuple[Row, ...]:
        return (
            Row(
                "GET",
                "/v1/report",
                self._report,
                "what it holds and saw, as text",
                answer=REPORT,
            ),
            Row(
                "GET",
                "/v1/topics",
                self._topics,
                "all topics, with their numbers of messages and where each queue begins and ends",
                answer=named(one_of_parts("Topic")),
            ),
            Row(
                "GET",
                "/v1/topics/{topic}/messages",
                self._messages,
                "the messages of a topic, in the order in which they were stored",
                (in_path("topic"),),
                items(one_of_parts("Message")),
            ),
            Row(
                "GET",
                "/v1/groups",
                self._groups,
                "all groups: members, lag, dead letters",
                answer=named(one_of_parts("Group")),
            ),
            Row(
                "GET",
                "/v1/groups/{group}/dead-letters",
                self._dead_letters,
                "the messages that a group has given up",
                (in_path("group"),),
                items(one_of_parts("Message")),
            ),
            Row(
                "GET",
                "/v1/requests",
                self._requests,
                "the requests that came, the last 10,000",
                (CODE, TOPIC, GROUP, CLIENT),
                items(one_of_parts("Request")),
            ),
        )

    def _rows_of_faults(self) -> tuple[Row, ...]:
        return (
            Row(
                "GET",
                "/v1/faults",
                self._all_faults,
                "all faults and how often they were hit",
                answer=items(one_of_parts("Fault")),
            ),
            Row(
                "POST",
                "/v1/faults",
                self._add_fault,
                "let something fail",
                SELECTION + ACTION,
                one_of_parts("Fault"),
            ),
            Row("DELETE", "/v1/faults", self._clear_faults, "end all faults"),
            Row(
                "GET",
                "/v1/faults/{id}",
                self._one_fault,
                "one fault",
                (in_path("id"),),
                one_of_parts("Fault"),
            ),
            Row("DELETE", "/v1/faults/{id}", self._lift, "end a fault", (in_path("id"),)),
            Row(
                "POST",
                "/v1/check",
                self._check,
                "fail (409) if a fault met nothing; then forget faults and records",
            ),
        )

    def _rows_of_snapshots(self) -> tuple[Row, ...]:
        return (
            Row(
                "POST",
                "/v1/snapshots",
                self._snapshot,
                "keep the whole state; restarts",
                answer=KEPT,
            ),
            Row(
                "POST",
                "/v1/snapshots/{id}/restore",
                self._restore,
                "put a state back; restarts",
                (in_path("id"),),
                one_of_parts("Broker"),
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
            code if code is None or (number := number_of(code)) < 0 else number,
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
        check_taken("for", arguments, WAITS, ("within",))
        wait, within = self._broker.wait, arguments.get("within", WITHIN)
        count = arguments.get("count", 1)
        group, topic = arguments.get("group"), arguments.get("topic")
        what = arguments["for"]
        if what == "settled":
            await wait.settled(within=within)
        elif what == "stored":
            messages = await wait.stored(needed(topic, "topic"), count, within=within)
            return {"messages": [_message(message) for message in messages]}
        elif what == "dead_letter":
            messages = await wait.dead_letter(needed(group, "group"), count, within=within)
            return {"messages": [_message(message) for message in messages]}
        elif what == "group":
            return {"members": await wait.group(needed(group, "group"), count, within=within)}
        elif what == "lag":
            most = arguments.get("most", 0)
            await wait.lag(needed(group, "group"), topic, most=most, within=within)
        elif what == "committed":
            offsets = arguments.get("offsets")
            await wait.committed(
                needed(group, "group"),
                needed(topic, "topic"),
                None if offsets is None else by_queue(offsets),
                within=within,
            )
        else:
            fault = self._fault(needed(arguments.get("fault"), "fault"))
            if not isinstance(fault, RequestFault):
                raise ConfigurationError("only hits of a fault of requests can be waited for")
            await wait.hit(fault, count, within=within)
        return {}

    # Faults

    async def _add_fault(self, arguments: Arguments) -> object:
        fault = self._declare(arguments)
        number = len(self._faults) + 1
        self._faults[number] = fault
        return _fault(number, fault)

    def _declare(self, arguments: Arguments) -> RequestFault | DiskFault | ClockFault:
        check_taken("action", arguments, ACTIONS)
        faults, action = self._broker.faults, arguments["action"]
        if action in ("full_disk", "unreadable_disk", "slow_disk"):
            return self._declare_disk(arguments)
        if action == "wrong_clock":
            return faults.wrong_clock(float(needed(arguments.get("seconds"), "seconds")))
        seconds = needed(arguments.get("seconds"), "seconds") if action == "delay" else 0
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
            return which.delay(float(seconds), served=served)
        if action == "close_connection":
            return which.close_connection(served=served)
        if action == "out_of_order":
            return which.out_of_order(within=float(arguments.get("within", 1)))
        simple: dict[str, Callable[[], RequestFault]] = {
            "refuse": which.refuse,
            "drop_request": which.drop_request,
            "drop_answer": which.drop_answer,
        }
        return simple[action]()

    def _declare_disk(self, arguments: Arguments) -> DiskFault:
        faults = self._broker.faults
        path = str(arguments.get("path", "commitlog/*"))
        times, after = arguments.get("times"), arguments.get("after", 0)
        if arguments["action"] == "full_disk":
            return faults.full_disk(path, times=times, after=after)
        if arguments["action"] == "unreadable_disk":
            return faults.unreadable_disk(path, times=times, after=after)
        seconds = float(needed(arguments.get("seconds"), "seconds"))
        return faults.slow_disk(seconds, DiskOperation.SYNC, path, times=times, after=after)

    def _fault(self, number: Any) -> RequestFault | DiskFault | ClockFault:
        found = self._faults.get(number_of(str(number)))
        if found is None:
            raise ConfigurationError(f"there is no fault {number}")
        return found

    async def _all_faults(self, _arguments: Arguments) -> object:
        return [_fault(number, fault) for number, fault in self._faults.items()]

    async def _one_fault(self, arguments: Arguments) -> object:
        fault = self._fault(arguments["id"])
        return _fault(int(arguments["id"]), fault)

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
        found = self._snapshots.get(number_of(number))
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
        if self._broker.clock.now_ms() + seconds * 1000 > _LATEST:
            raise ConfigurationError(f"advance is {seconds:g}; the clock ends with the year 8000")
        self._advance(seconds)
        return await self._clock(arguments)


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
