"""Requests with extreme values, made from the rows of the requests.

Whatever field a row's header or body declares gets signs, digits without end, lone
surrogates, long lists, deep nesting and bombs, in JSON and in binary headers.
"""

from __future__ import annotations

import json
import zlib
from enum import Enum
from functools import cache
from random import Random
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin, get_type_hints

import attrs

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.body import Body, body_table
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.header import Header, header_fields
from rocketmq_sdk.protocol.text import encode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.broker_embedded.request import Request

TOPIC, GROUP = "Extreme", "ExtremeGroup"
"""What the requests are about, so that nobody else is concerned."""
NUMBERS = (
    "-1",
    "0",
    "1",
    "+1",
    "-0",
    "007",
    "",
    " ",
    "x",
    "1.5",
    "1e9",
    "0x10",
    "NaN",
    "true",
    "null",
    "\0",
    "\u0661\u0662",
    "4",
    "65535",
    "65536",
    str(2**31 - 1),
    str(2**31),
    str(-(2**31)),
    str(2**32),
    str(2**53),
    str(2**62),
    str(2**63 - 1),
    str(2**63),
    str(-(2**63)),
    str(2**64),
    "9" * 39,
    "9" * 5000,
    "-" + "9" * 5000,
)
TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\r\n\t\x1b[2J",
    "\ud800",
    "a\udfffb",
    "\udc00\ud800",
    "\ud83d\ude00",
    "\ufffe\uffff",
    "../../etc/passwd",
    "..",
    "/",
    "%s%n%x{0}{x}",
    "a@b@c",
    "%RETRY%",
    "%DLQ%",
    "%RETRY%../x",
    "rmq_sys_",
    "*",
    "||",
    "a||" * 1000,
    "'",
    '"',
    "\\",
    "x\x01y\x02",
    "true",
    "null",
    "-1",
    "[]",
    "{}",
    "t" * 127,
    "t" * 128,
    "t" * 255,
    "t" * 256,
    "\u00fc" * 5000,
    "t" * 100_000,
    ";" * 100_000,
    "a," * 50_000,
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "TOOLS_CONSUMER",
    "%RETRY%" + GROUP,
    TOPIC + ";" + TOPIC,
    (TOPIC + ";") * 20_000,
    (GROUP + ",") * 20_000,
    (TOPIC + "||") * 20_000,
)
MEMBERS: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    -(2**31),
    2**63 - 1,
    2**63,
    -(2**64),
    10**300,
    1.5,
    1e308,
    "",
    "x",
    "\ud800",
    "\0",
    "9" * 5000,
    [],
    {},
    [None] * 100,
    [[]] * 100_000,
    [{}] * 5000,
    ["x"] * 100_000,
    [0] * 100_000,
    {str(number): number for number in range(100_000)},
    {"\ud800": "\udfff"},
    [{"$ref": "$"}],
    {"$ref": "$.a"},
)
PLAIN = {
    "topic": TOPIC,
    "b": TOPIC,
    "originTopic": TOPIC,
    "defaultTopic": "TBW102",
    "c": "TBW102",
    "consumerGroup": GROUP,
    "group": GROUP,
    "groupName": GROUP,
    "producerGroup": "ExtremeProducers",
    "a": "ExtremeProducers",
    "clientID": "extreme",
    "clientId": "extreme",
    "brokerName": "extreme-broker",
    "brokerAddr": "127.0.0.1:1",
    "haServerAddr": "127.0.0.1:2",
    "clusterName": "extreme-cluster",
    "topicFilterType": "SINGLE_TAG",
    "perm": "6",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "maxMsgNums": "32",
    "subscription": "*",
    "suspendTimeoutMillis": "1",
    "pollTime": "1",
    "sysFlag": "4",
    "invisibleTime": "1000",
    "expType": "TAG",
    "exp": "*",
    "extraInfo": "0 1000 60000 0 0 broker-a 0 0",
    "namespace": "extreme",
    "filterGroups": GROUP,
    "mode": "POP",
    "bodyCrc32": "0",
}
"""Values with which a request is mostly served."""
OTHERS = tuple(sorted({*map(int, RequestCode), -1, 0, 9999, 65536, 2**31 - 1, -(2**31)}))
"""Codes of whatever peers there are; those with a row come twice."""
DRIVES_THE_BROKER = frozenset({RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG})
"""Requests whose good values would change what the others get; they get bad ones."""
PROPERTIES = (
    b"",
    b"\xff\xfe",
    b"=",
    b"maxMessageSize=" + b"9" * 5000,
    b"maxMessageSize=-1",
    b"maxMessageSize=\\ud800",
    b"unknown\\ud800=\\udc00",
    b"brokerPermission=x",
    b"\\u12",
    b"x" * 900_000,
    b"a=b\n" * 100_000,
    b"\0=\0",
)


_BOMBS: tuple[Callable[[], bytes], ...] = (
    lambda: b"",
    lambda: b"\xff\xfe\0",
    lambda: b"[" * 100_000,
    lambda: b'{"a":' * 100_000,
    lambda: b"{" * 900_000,
    lambda: b'{"a":' + b"9" * 900_000 + b"}",
    lambda: b'{"a":"' + b"\\ud800" * 10_000 + b'"}',
    lambda: b"{1:" * 30 + b"1" + b"}" * 30,
    lambda: b"{" + b",".join(b"%d:{}" % number for number in range(50_000)) + b"}",
    lambda: zlib.compress(bytes(50_000_000)),
    lambda: zlib.compress(pack(">i", 2**31 - 1) * 1000),
    lambda: zlib.compress(pack(">i", 2) + b"{}" + pack(">i", 500_000) + pack(">i", 0) * 500_000),
)


@cache
def _made_bomb(place: int) -> bytes:
    """Made once: some take long, and the good client's times are measured here too."""
    return _BOMBS[place]()


class Made(NamedTuple):
    """A request, and how to name it in a report."""

    command: Command
    what: str


class Extremes:
    """Makes requests, the same ones for the same seed."""

    def __init__(self, rows: Sequence[Request], seed: int = 0, *, others: bool = False) -> None:
        """With `others` also codes that have no row, known ones and unknown ones."""
        self._rows = list(rows)
        self._others = OTHERS if others else ()
        self._random = Random(seed)
        self._count = 0

    def make(self) -> Made:
        """The next request; the rows come in turn."""
        place = self._count % (len(self._rows) + len(self._others))
        self._count += 1
        if place >= len(self._rows):
            return self._other(self._others[place - len(self._rows)])
        row = self._rows[place]
        fields, changed = self._fields(row.header)
        if row.code in DRIVES_THE_BROKER:
            body: bytes = self._random.choice(PROPERTIES)
        else:
            body = self._body(row.body)
        encoding = self._random.choice(list(HeaderEncoding))
        command = Command(int(row.code), ext_fields=fields, body=body, encoding=encoding)
        return Made(command, f"{row.code.name} {changed} body {body[:80]!r} of {len(body)}")

    def _other(self, code: int) -> Made:
        """A request of any code with fields and a body of any kind."""
        names = self._random.sample(sorted(PLAIN), 3)
        fields = {name: self._random.choice(NUMBERS + TEXTS) for name in names}
        encoding = self._random.choice(list(HeaderEncoding))
        command = Command(code, ext_fields=fields, body=self._bomb(), encoding=encoding)
        return Made(command, f"{code} {', '.join(names)} of {len(command.body)}")

    def _fields(self, header: type[Header] | None) -> tuple[dict[str, str], str]:
        fields: dict[str, str] = {}
        known = () if header is None else header_fields(header)
        for field in known:
            plain = PLAIN.get(field.name, "0" if field.kind in ("int", "long") else "false")
            if field.required or self._random.random() < 0.5:
                fields[field.name] = plain
        changed: list[str] = []
        for field in self._random.sample(known, min(len(known), self._random.choice((0, 1, 1, 2)))):
            value = self._random.choice(NUMBERS if field.kind in ("int", "long") else TEXTS)
            fields[field.name] = value
            changed.append(f"{field.name}={value[:40]!r}")
        if known and self._random.random() < 0.1:
            gone = self._random.choice(known).name
            fields.pop(gone, None)
            changed.append(f"without {gone}")
        if self._random.random() < 0.02:
            fields.update({f"extra{number}": "x" for number in range(5000)})
        return fields, ", ".join(changed)

    def _body(self, body: type[Body] | None) -> bytes:
        if body is None:
            return b"" if self._random.random() < 0.9 else self._random.randbytes(1000)
        chance = self._random.random()
        if chance < 0.1:
            return self._bomb()
        members = self._plain(body)
        names = list(members)
        for name in self._random.sample(names, min(len(names), self._random.choice((0, 1, 1, 2)))):
            value = members[name]
            if isinstance(value, list) and value and self._random.random() < 0.5:
                inner = value[0]
                if isinstance(inner, dict) and inner and self._random.random() < 0.5:
                    key = self._random.choice(list(inner))
                    inner[key] = self._random.choice(MEMBERS)
                else:
                    members[name] = value * self._random.choice((2, 100, 4097))
            else:
                members[name] = self._random.choice(MEMBERS)
        return encode_text(json.dumps(members, ensure_ascii=self._random.random() < 0.5))

    def _bomb(self) -> bytes:
        place = self._random.randrange(len(_BOMBS) + 1)
        return _made_bomb(place) if place < len(_BOMBS) else self._random.randbytes(5000)

    def plain_body(self, body: type[Body]) -> bytes:
        """A body that is mostly taken."""
        return json.dumps(self._plain(body)).encode()

    def _plain(self, body: type[Body], depth: int = 4) -> dict[str, Any]:
        hints = get_type_hints(body)
        members: dict[str, Any] = {}
        for member in body_table(body).members:
            if member.name in PLAIN:
                members[member.name] = PLAIN[member.name]
                continue
            value = self._plain_value(hints[member.attribute], depth)
            if value is not None:
                members[member.name] = value
        return members

    def _plain_value(self, hint: Any, depth: int) -> Any:
        parts = [part for part in get_args(hint) if part not in (type(None), ...)]
        origin = get_origin(hint)
        if depth == 0:
            return None
        if origin in (tuple, list, frozenset):
            inner = self._plain_value(parts[0], depth - 1)
            return [] if inner is None else [inner]
        if origin is dict:
            return {"1": self._plain_value(parts[1], depth - 1)}
        if origin is not None:
            return self._plain_value(parts[0], depth)
        if isinstance(hint, type):
            if issubclass(hint, Body):
                return self._plain(hint, depth - 1)
            if issubclass(hint, Enum):
                return next(iter(hint)).value
            if attrs.has(hint):
                return {"topic": TOPIC, "brokerName": "extreme-broker", "queueId": 0}
            return {bool: False, int: 0, float: 0.0, str: "x"}.get(hint)
        return None
