"""Every request code, asked of the broker and the name server row by row of the page
that says what becomes of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.pop.part import PopPart
from rocketmq_sdk.broker_embedded.request import Asked
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol import headers
from support.broker import connect
from support.paths import PACKAGE
from support.requests_page import PAGE, page

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command

ROWS = re.findall(
    r"^\| (\d+) \| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
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


async def test_the_page_is_made_from_the_rows(autojump_clock: MockClock) -> None:
    assert PAGE.read_text("utf-8") == await page(), "run `python -m tools.requests_page` in tests/"


async def test_rows_are_made_when_the_first_client_comes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a broker that nobody asks costs nothing for its requests."""
    made: list[object] = []
    of_pops = PopPart.requests
    monkeypatch.setattr(PopPart, "requests", lambda part: made.append(part) or of_pops(part))
    async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
        assert made == []
        for _ in range(2):
            peer = await connect(broker, nursery)
            answer = await peer.ask(int(RequestCode.GET_BROKER_CONFIG))
            assert answer.code == 0
        assert made == [broker.parts.pop]
        assert len(broker.requests) > 90
        nursery.cancel_scope.cancel()


async def test_each_code_has_one_row(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker:
        for rows in (broker.requests, broker.namesrv.requests):
            codes = [row.code for row in rows]
            assert len(codes) == len(set(codes))


async def test_one_family_for_header_body_and_call_of_a_request(
    autojump_clock: MockClock,
) -> None:
    """The families are those that `protocol.headers` lists; each of its modules, of the
    bodies and of the client's calls is one.
    """
    families = set(re.findall(r"^    (\w+)  +\w", headers.__doc__ or "", re.MULTILINE))
    folders = {
        name: {path.stem: path.read_text("utf-8") for path in (PACKAGE / name).glob("[a-z]*.py")}
        for name in ("protocol/headers", "protocol/bodies", "client/api")
    }
    assert set(folders["protocol/headers"]) == families
    assert set(folders["protocol/bodies"]) <= families | {"pop_records"}
    assert set(folders["client/api"]) <= families | {"caller"}
    async with EmbeddedBroker() as broker:
        rows = [*broker.requests, *broker.namesrv.requests]
    for row in rows:
        parts = {part.__module__ for part in (row.header, row.body) if part is not None}
        found = {name.rpartition(".")[2] for name in parts}
        if row.code is RequestCode.QUERY_DATA_VERSION:  # its body is the version of the topics
            found.discard("topics")
        assert len(found) <= 1, row.code.name
        for call, source in folders["client/api"].items():
            if f"RequestCode.{row.code.name}," in source:
                assert found <= {call}, f"{row.code.name}: client/api/{call}.py, {found}"


async def test_what_only_a_master_serves(autojump_clock: MockClock) -> None:
    """As `rejectRequest` of Apache's processors says, and the two that say why."""
    async with EmbeddedBroker() as broker:
        asked = {row.code: row.asked for row in broker.requests}
    assert {code for code, who in asked.items() if who is Asked.MASTER} == {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
    }
    assert {code for code, who in asked.items() if who is Asked.MASTER_BY_NAME} == {
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
    }


async def test_what_the_vip_port_does_not_serve(autojump_clock: MockClock) -> None:
    """What Apache registers at its main server only, because it may be held."""
    async with EmbeddedBroker() as broker:
        assert {row.code for row in broker.requests if not row.vip} == {
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.PEEK_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
        }


async def test_slaves_serve_what_consumers_ask_while_a_master_is_away(
    autojump_clock: MockClock,
) -> None:
    """The calls of `client/api/offsets.py` that go to any replica."""
    async with EmbeddedBroker() as broker:
        asked = {row.code: row.asked for row in broker.requests}
    codes = (
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    )
    assert {asked[code] for code in codes} == {Asked.ANY}
