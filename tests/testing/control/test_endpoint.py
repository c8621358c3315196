"""The control endpoint: what it does, what it refuses, how it describes itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import trio
from openapi_spec_validator import validate

from rocketmq_sdk import Admin, Message, NotSupportedError, Producer
from rocketmq_sdk.errors import BrokerError, ConfigurationError
from rocketmq_sdk.http_server import BODY_MAX, HEAD_MAX
from rocketmq_sdk.testing import TestBroker
from rocketmq_sdk.testing.control.arguments import ACTIONS, WAITS
from rocketmq_sdk.testing.control.endpoint import Endpoint, check_address
from support.control_client import open_control

if TYPE_CHECKING:
    from trio.testing import MockClock

pytestmark = pytest.mark.real_time


async def send(broker: TestBroker, *bodies: str) -> None:
    async with Producer("shop", namesrv=broker, retry_times=0) as producer:
        for body in bodies:
            await producer.send(Message("orders", body.encode(), tags="new", keys=["42"]))


async def test_a_broker_is_seeded_watched_and_waited_for() -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        seed = {"topics": {"orders": 2}, "messages": {"orders": ["0"]}, "groups": ["billing"]}
        assert await control.done("POST", "/v1/seed", seed) == {}
        await send(broker, "1")
        wait = {"for": "stored", "topic": "orders", "count": 2}
        found = await control.done("POST", "/v1/wait", wait)
        assert [message["body"] for message in found["messages"]] == ["0", "1"]
        (_, message) = await control.done("GET", "/v1/topics/orders/messages")
        assert (message["tags"], message["keys"], message["bodyBase64"]) == ("new", ["42"], "MQ==")
        topics = await control.done("GET", "/v1/topics")
        assert topics["orders"]["messages"] == 2
        (request,) = await control.done("GET", "/v1/requests?code=send&topic=orders")
        assert (request["name"], request["answer"], request["groups"]) == (
            "SEND_MESSAGE_V2",
            0,
            ["shop"],
        )
        assert await control.done("GET", "/v1/requests?code=310&client=nobody") == []
        assert "'orders' holds 2" in (await control.done("GET", "/v1/report"))["report"]
        assert await control.done("GET", "/v1/groups") == {}
        assert await control.done("GET", "/v1/groups/billing/dead-letters") == []
        assert await control.done("POST", "/v1/wait", {"for": "settled"}) == {}
        offsets = {"billing": {"orders": [1, 1]}}
        await control.done("POST", "/v1/seed", {"offsets": offsets})
        await control.done("POST", "/v1/wait", {"for": "lag", "group": "billing", "most": 2})


async def test_a_wait_that_fails_says_what_was_seen() -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        for wait, text in (
            ({"for": "stored", "topic": "orders"}, "no topic 'orders'"),
            ({"for": "group", "group": "billing"}, "no members, no offsets (groups: none)"),
            ({"for": "lag", "group": "billing"}, "no members, no offsets (groups: none)"),
            ({"for": "dead_letter", "group": "billing"}, "there are 0"),
            (
                {"for": "committed", "group": "g", "topic": "orders", "offsets": {"0": 1}},
                "offsets are {}",
            ),
        ):
            status, found = await control.ask("POST", "/v1/wait", {**wait, "within": 0.01})
            assert (status, found["kind"]) == (409, "WaitTimeoutError")
            assert text in found["error"]


async def test_faults_are_declared_counted_and_lifted() -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        fault = {"code": "send", "topic": "orders", "times": 1, "action": "error", "error": 16}
        number = (await control.done("POST", "/v1/faults", fault))["id"]
        with pytest.raises(BrokerError):
            await send(broker, "1")
        await send(broker, "2")
        assert (await control.done("GET", f"/v1/faults/{number}"))["hits"] == 1
        await control.done("POST", "/v1/wait", {"for": "hit", "fault": number})
        await control.done("POST", "/v1/check")
        await control.done("POST", "/v1/faults", fault | {"topic": "oders"})
        status, found = await control.ask("POST", "/v1/check")
        assert status == 409
        assert "oders" in found["error"]
        assert await control.done("GET", "/v1/faults") == []
        for _ in range(9):
            number = (await control.done("POST", "/v1/faults", fault))["id"]
            await control.done("DELETE", f"/v1/faults/{number}")
        assert len(await control.done("GET", "/v1/faults")) == 9
        await control.done("DELETE", "/v1/faults")
        assert await control.done("GET", "/v1/faults") == []
        await send(broker, "3")


async def test_a_wall_clock_is_wrong_until_it_is_right_again() -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        status, found = await control.ask("POST", "/v1/faults", {"action": "wrong_clock"})
        assert (status, "seconds is missing" in found["error"]) == (400, True), found
        wrong = {"action": "wrong_clock", "seconds": -7200}
        number = (await control.done("POST", "/v1/faults", wrong))["id"]
        await send(broker, "earlier")
        await control.done("POST", "/v1/broker/restart")  # its machine's clock is still wrong
        await send(broker, "earlier too")
        await control.done("DELETE", f"/v1/faults/{number}")
        await send(broker, "now")
        stored = await control.done("GET", "/v1/topics/orders/messages")
        times = {message["body"]: message["storeTimestamp"] for message in stored}
        late = times["now"] - times["earlier"], times["now"] - times["earlier too"]
        assert all(7_000_000 < by < 7_400_000 for by in late), times


ALL: dict[str, Any] = {
    "code": "send",
    "topic": "orders",
    "group": "shop",
    "client": "*",
    "queue": 0,
    "times": 1,
    "after": 2,
    "error": "SYSTEM_BUSY",
    "remark": "no",
    "served": True,
    "seconds": 1,
    "within": 0.5,
    "path": "index/*",
}
"""Something for each argument of a fault."""


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_takes_its_arguments_and_no_others(action: str) -> None:
    takes = ACTIONS[action]
    async with TestBroker() as broker, open_control(broker) as control:
        fault = {name: value for name, value in ALL.items() if name in takes}
        made = await control.done("POST", "/v1/faults", {"action": action, **fault})
        for name in ALL.keys() - takes:
            wrong = {"action": action, **fault, name: ALL[name]}
            status, found = await control.ask("POST", "/v1/faults", wrong)
            assert (status, f"{action} takes no {name}; it takes " in found["error"]) == (400, True)
        assert await control.done("GET", "/v1/faults") == [made]
        await control.done("DELETE", "/v1/faults")


@pytest.mark.parametrize("what", WAITS)
async def test_a_wait_takes_its_arguments_and_no_others(what: str) -> None:
    given = {"topic": "orders", "group": "g", "count": 0, "most": 5, "offsets": {"0": 1}}
    takes = WAITS[what]
    async with TestBroker() as broker, open_control(broker) as control:
        await control.done(
            "POST", "/v1/seed", {"topics": ["orders"], "offsets": {"g": {"orders": 1}}}
        )
        fault = await control.done("POST", "/v1/faults", {"action": "refuse"})
        given["fault"] = fault["id"]
        asked = {"for": what, **{name: given[name] for name in takes}}
        await control.done("POST", "/v1/wait", asked)
        for name in given.keys() - takes:
            status, found = await control.ask("POST", "/v1/wait", {**asked, name: given[name]})
            assert (status, f"{what} takes no {name}; it takes" in found["error"]) == (400, True)
        await control.done("DELETE", "/v1/faults")


async def test_lives_and_states() -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        await send(broker, "1")
        kept = await control.done("POST", "/v1/snapshots")
        assert kept["size"] > 0
        for name, running in (
            ("stop", False),
            ("start", True),
            ("kill", False),
            ("restart", True),
        ):
            assert (await control.done("POST", f"/v1/broker/{name}"))["running"] is running
        assert len(broker.sent("orders")) == 1
        began = await control.done("POST", "/v1/broker/reset")
        assert began["takingMessages"] is True
        assert broker.sent("orders") == []
        await control.done("POST", f"/v1/snapshots/{kept['id']}/restore")
        assert len(broker.sent("orders")) == 1
        await control.done("POST", "/v1/broker/stop")
        status, found = await control.ask("GET", "/v1/topics")
        assert (status, found["kind"]) == (409, "ClosedError")
        assert (await control.done("GET", "/v1/broker"))["running"] is False


async def test_a_release_that_is_emulated_until_a_reset() -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        assert (await control.done("GET", "/v1/broker"))["emulates"] is None
        await send(broker, "1")
        found = await control.done("POST", "/v1/broker/emulate", {"release": "4.9.7"})
        assert (found["emulates"], found["running"]) == ("4.9.7", True)
        assert len(broker.sent("orders")) == 1
        async with Admin(namesrv=broker) as admin:
            with pytest.raises(NotSupportedError, match=r"since RocketMQ 5\.3\.0"):
                await admin.users.list()
        status, _ = await control.ask("POST", "/v1/broker/emulate", {"release": "3.2.6"})
        assert (status, broker.emulates) == (400, "4.9.7")
        await control.done("POST", "/v1/broker/stop")
        found = await control.done("POST", "/v1/broker/emulate")
        assert (found["emulates"], found["running"]) == (None, False)
        await control.done("POST", "/v1/broker/emulate", {"release": "5.1.4"})
        assert (await control.done("POST", "/v1/broker/reset"))["emulates"] is None


async def test_a_clock_that_moves() -> None:
    moved: list[float] = []
    async with TestBroker() as broker, open_control(broker, advance=moved.append) as control:
        assert (await control.done("GET", "/v1/clock"))["virtual"] is True
        await control.done("POST", "/v1/clock", {"advance": 1800})
        assert moved == [1800]
        assert (await control.ask("POST", "/v1/clock", {"advance": -1}))[0] == 400
    async with TestBroker() as broker, open_control(broker) as control:
        status, found = await control.ask("POST", "/v1/clock", {"advance": 1})
        assert (status, "--virtual-clock" in found["error"]) == (409, True)


async def test_a_clock_ends_before_dates_do(mock_clock: MockClock) -> None:
    async with TestBroker(patient=True) as broker:
        mock_clock.jump(190_000_000_000 - broker.clock.now_ms() / 1000 - 1.5e9)
        async with open_control(broker, advance=mock_clock.jump) as control:
            await control.done("POST", "/v1/clock", {"advance": 999_999_999})
            status, found = await control.ask("POST", "/v1/clock", {"advance": 999_999_999})
            assert (status, "ends with the year 8000" in found["error"]) == (400, True)
            await control.done("POST", "/v1/seed", {"messages": {"orders": ["1"]}})


COMMITTED = {"for": "committed", "group": "g", "topic": "orders"}
NAN = float("nan")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/", None, 404, "/openapi.json"),
        ("GET", "/v1/topics//messages", None, 404, "there is no"),
        ("PUT", "/v1/broker", None, 405, "takes GET"),
        ("POST", "/v1/wait", {"for": "rain"}, 400, "for is 'rain'; it is one of stored,"),
        ("POST", "/v1/wait", {}, 400, "for is missing"),
        ("POST", "/v1/wait", {"for": "stored"}, 400, "topic is missing"),
        ("POST", "/v1/wait", {"for": "stored", "topik": "x"}, 400, "no argument 'topik'"),
        ("POST", "/v1/wait", {"for": "stored", "topic": 1}, 400, "topic is 1; give a text ("),
        ("POST", "/v1/wait", {"for": "hit"}, 400, "fault is missing"),
        ("POST", "/v1/faults", {"action": "delay", "seconds": "1"}, 400, "'1'; give a number ("),
        ("POST", "/v1/wait", {"for": "stored", "topic": "x", "count": True}, 400, "count is True"),
        ("POST", "/v1/wait", [1], 400, "no JSON object"),
        ("POST", "/v1/faults", {"action": "burn"}, 400, "action is 'burn'; it is one of"),
        ("POST", "/v1/faults", {"action": "refuse", "code": "snd"}, 400, "no request 'snd'"),
        ("POST", "/v1/faults", {"action": "delay"}, 400, "seconds is missing"),
        ("DELETE", "/v1/faults/7", None, 400, "no fault 7"),
        ("POST", "/v1/snapshots/x/restore", None, 400, "no snapshot x"),
        ("POST", "/v1/seed", {"messages": {"orders": [{"body": "x", "y": 1}]}}, 400, "member 'y'"),
        ("GET", "/v1/requests?code=snd", None, 400, "no request 'snd'"),
        ("POST", "/v1/wait", {**COMMITTED, "offsets": {"x": 1}}, 400, "whole numbers by queue"),
        ("POST", "/v1/wait", {**COMMITTED, "offsets": {"0": "1"}}, 400, "whole numbers by queue"),
        ("POST", "/v1/wait", {"for": "settled", "within": -1}, 400, "within is -1; it is at least"),
        ("POST", "/v1/wait", {"for": "settled", "within": NAN}, 400, "within is nan"),
        ("POST", "/v1/seed", {"messages": {"orders": "abc"}}, 400, "are lists by topic"),
        ("POST", "/v1/seed", {"messages": {"orders": 5}}, 400, "are lists by topic"),
        ("POST", "/v1/seed", {"offsets": {"g": 5}}, 400, "are whole numbers, or lists"),
        ("POST", "/v1/seed", {"offsets": {"g": {"orders": "x"}}}, 400, "are whole numbers"),
        ("POST", "/v1/faults", {"action": "delay", "seconds": -1}, 400, "seconds is -1"),
        ("POST", "/v1/faults", {"action": "delay", "seconds": NAN}, 400, "seconds is nan"),
        ("POST", "/v1/faults", {"action": "slow_disk", "seconds": -1}, 400, "seconds is -1"),
        ("POST", "/v1/faults", {"action": "refuse", "after": -1}, 400, "after is -1"),
        ("POST", "/v1/faults", {"action": "refuse", "times": 0}, 400, "times is 0"),
        ("POST", "/v1/faults", {"action": "refuse", "code": [1.5]}, 400, "a code is 1.5"),
        ("POST", "/v1/faults", {"action": "error", "error": 2**31}, 400, "a code has 32 bits"),
        ("GET", "/v1/faults/%C2%B2", None, 400, "no fault \u00b2"),
        ("POST", "/v1/clock", {"advance": NAN}, 400, "advance is nan"),
        ("POST", "/v1/clock", {"advance": 10**400}, 400, "give a number (seconds)"),
        ("POST", "/v1/wait", {"for": "settled", "within": 10**400}, 400, "give a number (seconds"),
        ("POST", "/v1/faults", {"action": "delay", "seconds": 1e99}, 400, "at most 3.1536e+09 sec"),
        ("POST", "/v1/faults", {"action": "slow_disk", "seconds": 1e99}, 400, "at most 3.1536e+09"),
    ],
)
async def test_bad_requests_are_answered_and_the_connection_goes_on(
    method: str, path: str, body: Any, status: int, text: str
) -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        found = await control.ask(method, path, body)
        assert found[0] == status
        assert text in found[1]["error"]
        assert (await control.done("GET", "/v1/broker"))["running"] is True


async def test_bodies_have_limits_and_a_form() -> None:
    async with TestBroker() as broker:
        async with open_control(broker) as control:
            status, found = await control.ask("POST", "/v1/wait", raw=b"{")
            assert (status, "no JSON" in found["error"]) == (400, True)
            status, found = await control.ask("POST", "/v1/wait", raw=b"[" * 100_000)
            assert status == 400
            form = "application/x-www-form-urlencoded"  # as curl says by itself
            status, found = await control.ask("POST", "/v1/wait", raw=b"{}", content_type=form)
            assert (status, "Content-Type: application/json" in found["error"]) == (415, True)
        async with open_control(broker) as control:
            status, _ = await control.ask("POST", "/v1/wait", raw=bytes(BODY_MAX + 1))
            assert status == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://example.com"}, 403),
        ({"host": "rebound.example.com:80"}, 403),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:7"}, 200),
    ],
)
async def test_pages_in_browsers_are_refused(headers: dict[str, str], status: int) -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        assert (await control.ask("GET", "/v1/broker", **headers))[0] == status


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * HEAD_MAX,
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"",
    ],
)
async def test_what_is_no_http_ends_its_connection_only(data: bytes) -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        async with await trio.open_tcp_stream("127.0.0.1", control.port) as stream:
            await stream.send_all(data)
            await stream.send_eof()
            with trio.fail_after(60):
                answer = b"".join([part async for part in stream])
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        await control.done("GET", "/v1/broker")


async def test_too_many_connections_are_closed_at_once() -> None:
    async with TestBroker() as broker, open_control(broker) as control:
        streams = [await trio.open_tcp_stream("127.0.0.1", control.port) for _ in range(64)]
        with trio.fail_after(60):
            assert await streams[-1].receive_some() == b""
        for stream in streams:
            await stream.aclose()
        await control.done("GET", "/v1/broker")


async def test_it_describes_each_operation() -> None:
    """What is sent and answered is held against it by `Control`, in each test here."""
    async with TestBroker() as broker, open_control(broker) as control:
        described = await control.done("GET", "/openapi.json")
        validate(described)  # as OpenAPI's own schema has it
        assert described["openapi"].startswith("3.1")
        rows = Endpoint(broker).rows
        assert sum(len(methods) for methods in described["paths"].values()) == len(rows)
        for path, methods in described["paths"].items():
            for operation in methods.values():
                assert operation["summary"]
                assert {"200", "400", "409"} <= operation["responses"].keys()
                named = {part["name"] for part in operation["parameters"] if part["in"] == "path"}
                assert named == set(re.findall(r"\{(\w+)\}", path))


def test_others_reach_it_only_when_that_is_wanted() -> None:
    assert check_address("127.0.0.1:0", open_to_all=False) == ("127.0.0.1", 0)
    with pytest.raises(ConfigurationError, match="--control-open"):
        check_address("0.0.0.0:8000", open_to_all=False)
    assert check_address("0.0.0.0:8000", open_to_all=True) == ("0.0.0.0", 8000)
