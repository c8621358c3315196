"""Every request code, asked of the broker and the name server row by row of the page
that says what becomes of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from support.broker import connect
from support.paths import DOCS

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command

PAGE = DOCS / "requests.md"
ROWS = re.findall(
    r"^\| (\d+) \| `(\w+)` \| (.*?) \| (.*?) \|$", PAGE.read_text("utf-8"), re.MULTILINE
)
NOT_SUPPORTED = 3


def test_the_page_has_every_code_in_order() -> None:
    assert [(int(code), name) for code, name, *_ in ROWS] == sorted(
        (int(code), code.name) for code in RequestCode
    )


def check(answer: Command, stated: str, code: str) -> None:
    plain = f" request type {code} not supported"
    if stated == "served":
        assert answer.code != NOT_SUPPORTED, answer.remark
    elif stated == "-":
        assert (answer.code, answer.remark) == (NOT_SUPPORTED, plain)
    else:
        assert stated.startswith("refused: ")
        assert answer.code == NOT_SUPPORTED
        assert (answer.remark or "").startswith(plain)
        assert (answer.remark or "").endswith(stated.removeprefix("refused: "))


@pytest.mark.parametrize(
    ("code", "name", "broker_says", "namesrv_says"), ROWS, ids=[row[1] for row in ROWS]
)
async def test_what_becomes_of_a_request(
    autojump_clock: MockClock, code: str, name: str, broker_says: str, namesrv_says: str
) -> None:
    """Asked without fields or body: what is served answers, if only with what it
    misses.
    """
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
            check(await (await connect(broker, nursery)).ask(int(code)), broker_says, code)
            check(
                await (await connect(broker, nursery, namesrv=True)).ask(int(code)),
                namesrv_says,
                code,
            )
            nursery.cancel_scope.cancel()
