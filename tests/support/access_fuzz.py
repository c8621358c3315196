"""Hostile frames at a broker with access control on, judged by a second implementation.

Each frame begins as a sample of some request, signed by somebody, and is then changed:
its bytes, fields, code, body, version or signature. What reaches the dispatcher must be
signed by a known user, and that user must be allowed it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from typing import TYPE_CHECKING, Any, Final

import attrs

from rocketmq_sdk.broker_embedded.access.guard import Guard
from rocketmq_sdk.broker_embedded.access.user_accounts import UserAccounts
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from rocketmq_sdk.protocol.signing import sign_in_place
from rocketmq_sdk.remoting.dispatch import Dispatcher
from support.access import ADMIN, GROUP, ON, SECRET, TOPIC, add_user, sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.remoting.channel import Channel

SECRET_TOPIC: Final = "TheTopicOfOthers"
KEYS: Final = {ADMIN: SECRET, "bob": "bob", "mallory": "mallory"}
NEED_NO_NAME: Final = frozenset((34, 35, 37, 105, 324, 325, 200151))
"""Requests that may name nothing, or the topic of replies, or the default topic."""
OF_TOPIC: Final = {10: "topic", 11: "topic", 12: "topic", 310: "b", 320: "b", 351: "topic"}
_TEXTS: Final = (
    "",
    "x",
    "\0",
    "*",
    ADMIN,
    "bob",
    SECRET_TOPIC,
    TOPIC,
    GROUP,
    f"%RETRY%{GROUP}",
    f"%RETRY%{GROUP}_{SECRET_TOPIC}",
    f"%RETRY%{SECRET_TOPIC}",
    "é\ud83d\ude00",
    "9" * 300,
    "null",
)


@attrs.define
class Report:
    """What became of the frames."""

    frames: int = 0
    unreadable: int = 0
    refused: int = 0
    served: int = 0
    failures: list[str] = attrs.field(factory=list)


class _Channel:
    """As much of a channel as the guard needs."""

    def __init__(self) -> None:
        self.attributes: dict[str, object] = {}
        self.remote_address = "10.0.0.9:1234"


def rightly_signed(command: Command) -> str | None:
    """The user whose signature fits, by an implementation of its own."""
    fields = command.ext_fields
    user = fields.get("AccessKey")
    if user not in KEYS:
        return None
    names = sorted(fields, key=lambda name: name.encode("utf-16-be", "replace"))
    digest = hmac.new(KEYS[user].encode(), digestmod=hashlib.sha1)
    for name in names:
        left_out = name == "_UNIQUE_KEY_QUERY" and command.version <= 399
        if name != "Signature" and not left_out:
            digest.update(fields[name].encode("utf-8", "replace"))
    digest.update(command.body)
    wanted = base64.b64encode(digest.digest()).decode()
    return user if fields.get("Signature") == wanted else None


def problem_of(command: Command, needs: dict[int, str]) -> str | None:
    """Why a request that was served should not have been; None when it rightly was."""
    user = rightly_signed(command)
    if user is None:
        return "nobody signed it"
    need = needs.get(command.code)
    if user == ADMIN or need is None or command.code in NEED_NO_NAME:
        return None
    if user == "mallory":
        return "mallory may do nothing"
    if need.startswith("Cluster"):
        return "bob may do nothing to the cluster"
    field = OF_TOPIC.get(command.code)
    if field is not None and SECRET_TOPIC in command.ext_fields.get(field, ""):
        return "bob may do nothing to that topic"
    return None


class Attack:
    """Makes frames."""

    def __init__(self, rows: list[Request], seed: int) -> None:
        self._rows = rows
        self._random = random.Random(seed)

    def frame(self) -> bytes:
        """The bytes of one frame, its length word included."""
        chosen = self._random
        command = sample(chosen.choice(self._rows))
        if chosen.random() < 0.3:
            self._change(command)
        who = chosen.choice(("nobody", "bob", "bob", "mallory", ADMIN, "guess", "stranger"))
        if who in KEYS:
            sign_in_place(command.ext_fields, command.body, who, KEYS[who])
        elif who != "nobody":
            name = ADMIN if who == "guess" else who
            sign_in_place(command.ext_fields, command.body, name, "guessed")
        if chosen.random() < 0.5:
            self._change(command)
        command.encoding = chosen.choice((HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ))
        data = encode_frame(command)
        return self._damage(data) if chosen.random() < 0.3 else data

    def _change(self, command: Command) -> None:
        chosen, fields = self._random, command.ext_fields
        kind = chosen.randrange(7)
        if kind == 0 and fields:
            fields[chosen.choice(list(fields))] = chosen.choice(_TEXTS)
        elif kind == 1 and fields:
            del fields[chosen.choice(list(fields))]
        elif kind == 2:
            fields[chosen.choice(("AccessKey", "accesskey", "Signature", "a", "b", "topic"))] = (
                chosen.choice(_TEXTS)
            )
        elif kind == 3:
            command.code = int(chosen.choice(self._rows).code)
        elif kind == 4:
            command.body = chosen.choice((b"", b"{}", b"[]", b"\xff", command.body + b" "))
        elif kind == 5:
            command.version = chosen.choice((0, 399, 400))
            fields["_UNIQUE_KEY_QUERY"] = chosen.choice(_TEXTS)
        else:
            command.flag = chosen.choice((0, 2))

    def _damage(self, data: bytes) -> bytes:
        chosen, changed = self._random, bytearray(data)
        for _ in range(chosen.randint(1, 4)):
            place = chosen.randrange(4, len(changed))
            kind = chosen.randrange(3)
            if kind == 0:
                changed[place] = chosen.randrange(256)
            elif kind == 1:
                del changed[place : place + chosen.randint(1, 8)]
            else:
                changed[place:place] = chosen.randbytes(chosen.randint(1, 8))
            if len(changed) <= 12:
                break
        return (len(changed) - 4).to_bytes(4, "big") + bytes(changed[4:])


async def attack(frames: int, seed: int, needs: dict[int, str]) -> Report:
    """Send so many frames; `needs` is what each request needs, in words."""
    report, reached = Report(), list[Command]()

    def served(_channel: Channel, command: Command) -> Command:
        reached.append(command)
        return Command.response()

    async with EmbeddedBroker(**ON) as broker:
        table = broker.parts.access.table
        await add_user(table, "mallory")
        await add_user(
            table, "bob", (f"Topic:{TOPIC}", "All", "Allow"), (f"Group:{GROUP}", "All", "Allow")
        )
        rows = [*broker.requests, *broker.namesrv.requests]
        codes = {int(row.code): served for row in rows}
        accounts = UserAccounts(table, authorizes=True)
        guard = Guard(
            Dispatcher(codes), Dispatcher(codes), rows, accounts, broker.parts.access.audit, "C"
        )
        maker = Attack(rows, seed)
        channel: Any = _Channel()
        for number in range(frames):
            _one(maker.frame(), guard, channel, reached, needs, report)
            if number % 1000 == 999:
                channel = _Channel()
    return report


def _one(
    data: bytes,
    guard: Callable[[Any, Command], object],
    channel: Any,
    reached: list[Command],
    needs: dict[int, str],
    report: Report,
) -> None:
    report.frames += 1
    try:
        command = decode_frame(data[4:])
    except RocketMQError:
        report.unreadable += 1
        return
    try:
        answer = guard(channel, command)
    except Exception as error:  # noqa: BLE001 - a crash is what is looked for
        report.failures.append(f"{command!r}: {type(error).__name__}: {error}")
        return
    if not reached:
        report.refused += 1
        if isinstance(answer, Command) and answer.code not in (3, 16):
            report.failures.append(f"{command!r} is refused with {answer!r}")
        return
    report.served += 1
    problem = problem_of(reached.pop(), needs)
    if problem is not None:
        report.failures.append(f"{command!r} {command.ext_fields} was let in: {problem}")
