"""The page `docs/requests.md`, made from the rows of the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.admin.refused import REFUSED
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.request import Wait, Writes
from rocketmq_sdk.broker_embedded.settings.apache_names import apache_name
from rocketmq_sdk.codes import RequestCode
from support.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketmq_sdk.broker_embedded.request import Request

    Rows = Mapping[RequestCode, Request]

PAGE = DOCS / "requests.md"

_HEAD = """\
# Requests

Every request code of Apache RocketMQ 5.4.0 and what the embedded broker and its name server do with
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

- **asked**: who may be asked. A slave answers requests for its master with SYSTEM_BUSY, or says
  that it is a slave.
- **VIP**: whether the broker's second port, two below its own, serves it. It does not serve what
  may be held.
- **waits**: the setting that limits how long a request may have waited before it is served, in
  milliseconds; it is refused with SYSTEM_BUSY then (`brokerFastFailureEnable`).
- **cost**: what the work grows with.
- **writes**: what it changes.

"""


async def page() -> str:
    """The text of the page."""
    async with EmbeddedBroker() as broker:
        own = {row.code: row for row in broker.requests}
        namesrv = {row.code: row for row in broker.namesrv.requests()}
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
    )


def _stated(code: RequestCode, served: Rows, refused: Mapping[RequestCode, str]) -> str:
    return "served" if code in served else refused.get(code, "-")


def _table(title: str, rows: Iterable[Request], *, broker: bool = True) -> str:
    of_broker = " asked | VIP | waits |" if broker else ""
    lines = [
        f"### {title}\n",
        f"| code | name | header | body |{of_broker} cost | writes |",
        "|---|---|---|---|" + ("---|---|---|" if broker else "") + "---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.code):
        traits = ""
        if broker:
            traits = f" {row.asked.value} | {'yes' if row.vip else 'no'} | {_waits(row.wait)} |"
        lines.append(
            f"| {int(row.code)} | `{row.code.name}` | {_name(row.header)} | {_name(row.body)} |"
            f"{traits} {row.cost.value} | {_written(row.writes)} |"
        )
    return "\n".join(lines) + "\n"


def _name(part: type | None) -> str:
    return "-" if part is None else f"`{part.__name__}`"


def _waits(wait: Wait) -> str:
    return f"`{apache_name(wait.value)}`" if wait.value else "any time"


def _written(writes: Writes) -> str:
    return ", ".join(kind.name.lower() for kind in Writes if kind in writes and kind.name) or "-"
