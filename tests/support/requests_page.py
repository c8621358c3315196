"""The page `docs/requests.md`, made from the rows of the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args, get_type_hints

import attrs

from rocketmq_sdk.broker_embedded.admin.refused import REFUSED
from rocketmq_sdk.broker_embedded.admission import DEPTH_MAX, limits_of
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.request import WHOLE_FRAME, Wait, Writes
from rocketmq_sdk.broker_embedded.settings.apache_names import apache_name
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.limits import ENTRIES_MAX, TEXT_MAX, Between, Length
from support.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketmq_sdk.broker_embedded.request import Request

    Rows = Mapping[RequestCode, Request]

PAGE = DOCS / "requests.md"

_HEAD = """\
# Requests

Every request code of Apache RocketMQ 5.5.0 and what the embedded broker and its name server do with
it. This page is made from the rows of the requests in the code: `python -m tools.requests_page` in
`tests/` writes it again, a test compares it, and another one asks both servers row by row.

- `served`: answered as Apache's servers answer, whatever is missing in the request.
- `refused`: answered with code 3 and the reason.
- `-`: answered with code 3 alone, as a server that does not know the code. Those are codes that no
  release serves any more, requests that brokers send to clients (39, 40, 220, 221, 307, 309, 326;
  307 and 309 are passed on by the broker), and requests meant for the other server.

| code | name | broker | name server |
|---|---|---|---|
"""

_TRAITS = """
## What a served request is

- **needs**: what the caller must be allowed where [access control](security.md) is on: one of the
  actions on each resource. `name` is a field of the header. A super user needs nothing.
- **asked**: who may be asked. A slave answers requests for its master with SYSTEM_BUSY, or says
  that it is a slave.
- **VIP**: whether the broker's second port, two below its own, serves it. It does not serve what
  may be held.
- **waits**: the setting that limits how long a request may have waited before it is served, in
  milliseconds; it is refused with SYSTEM_BUSY then (`brokerFastFailureEnable`).
- **most bytes of body**: a larger body is refused (INVALID_PARAMETER) before it is looked into;
  "a frame" means as much as a frame holds (for messages: `maxMessageSize`).
- **cost**: what the work grows with.
- **writes**: what it changes.

"""

_LIMITS = f"""\
### Limits of fields

What is over a limit is answered with INVALID_PARAMETER (29); the remark names the field, its value
and the limit. A text that is not listed may have {TEXT_MAX:,} characters, a list or table
{ENTRIES_MAX:,} entries, numbers the range of their type, nesting {DEPTH_MAX} levels. Half a
surrogate pair in a text is read as `?`, as Apache writes it.

| header or body | field | limit |
|---|---|---|
"""


async def page() -> str:
    """The text of the page."""
    async with EmbeddedBroker() as broker:
        own = {row.code: row for row in broker.requests}
        namesrv = {row.code: row for row in broker.namesrv.requests}
    refused = {row.code: f"refused: {row.reason}" for row in REFUSED}
    lines = [
        f"| {int(code)} | `{code.name}` | {_stated(code, own, refused)} | "
        f"{_stated(code, namesrv, {})} |"
        for code in sorted(RequestCode)
    ]
    return (
        _HEAD
        + "\n".join(lines)
        + "\n"
        + _TRAITS
        + _table("The broker", own.values())
        + "\n"
        + _table("The name server", namesrv.values(), broker=False)
        + "\n"
        + _limits([*own.values(), *namesrv.values()])
    )


def _limits(rows: Iterable[Request]) -> str:
    """What the header and body classes of all rows declare of their fields."""
    parts: dict[type, None] = {}
    for row in rows:
        for part in (row.header, row.body):
            if part is not None:
                _add_parts(part, parts)
    lines = [
        f"| `{part.__name__}` | `{field.name}` | {_limit(field.limit)} |"
        for part in sorted(parts, key=lambda part: part.__name__)
        for field in limits_of(part)
        if field.limit is not None
    ]
    return _LIMITS + "\n".join(lines) + "\n"


def _add_parts(part: type, parts: dict[type, None]) -> None:
    if part in parts or not attrs.has(part):
        return
    parts[part] = None
    for hint in get_type_hints(part, include_extras=True).values():
        for inner in _types_in(hint):
            _add_parts(inner, parts)


def _types_in(hint: object) -> Iterable[type]:
    if isinstance(hint, type) and not get_args(hint):
        yield hint
    for inner in get_args(hint):
        yield from _types_in(inner)


def _limit(limit: Between | Length) -> str:
    if isinstance(limit, Between):
        return str(limit)
    return f"up to {limit.most:,} characters or entries"


def _stated(code: RequestCode, served: Rows, refused: Mapping[RequestCode, str]) -> str:
    return "served" if code in served else refused.get(code, "-")


def _table(title: str, rows: Iterable[Request], *, broker: bool = True) -> str:
    of_broker = " asked | VIP | waits |" if broker else ""
    lines = [
        f"### {title}\n",
        f"| code | name | needs | header | body | most bytes of body |{of_broker} cost | writes |",
        "|---|---|---|---|---|---|" + ("---|---|---|" if broker else "") + "---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.code):
        traits = ""
        if broker:
            traits = f" {row.asked.value} | {'yes' if row.vip else 'no'} | {_waits(row.wait)} |"
        lines.append(
            f"| {int(row.code)} | `{row.code.name}` | {row.needs.text} | "
            f"{_name(row.header)} | {_name(row.body)} | "
            f"{'a frame' if row.body_limit >= WHOLE_FRAME else f'{row.body_limit:,}'} |"
            f"{traits} {row.cost.value} | {_written(row.writes)} |"
        )
    return "\n".join(lines) + "\n"


def _name(part: type | None) -> str:
    return "-" if part is None else f"`{part.__name__}`"


def _waits(wait: Wait) -> str:
    return f"`{apache_name(wait.value)}`" if wait.value else "any time"


def _written(writes: Writes) -> str:
    return ", ".join(kind.name.lower() for kind in Writes if kind in writes and kind.name) or "-"
