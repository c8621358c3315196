"""Commands that find, print, follow and send messages, dead letters among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.consumer.outcome import RejectMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import (
    ConfigurationError,
    FilterSyntaxError,
    GroupNotFoundError,
    NotFoundError,
)
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from support.command_line import Shell, shell

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


async def test_what_is_sent_is_found_by_everything_that_names_it(
    autojump_clock: MockClock,
) -> None:
    async with shell() as sh:
        [sent] = await sh.rows(
            *("sendMessage", "-t", "orders", "-p", "größe", "-k", "a b", "-c", "paid"),
            *("--property", "colour=red=blue", "-b", "broker-a", "-i", "1"),
        )
        assert (sent["status"], sent["queue"], sent["offset"]) == ("SEND_OK", 1, 0)
        for query in (
            ["queryMsgById", "-i", sent["offsetId"]],
            ["queryMsgById", "-i", sent["id"], "-t", "orders"],
            ["queryMsgByUniqueKey", "-i", sent["id"], "-t", "orders"],
            ["queryMsgByKey", "-k", "b", "-t", "orders"],
            ["queryMsgByOffset", "-t", "orders", "-b", "broker-a", "-i", "1", "-o", "0"],
            ["printMsg", "-t", "orders"],
            ["tail", "orders", "-b", "0", "--limit", "1"],
        ):
            [found] = await sh.rows(*query)
            assert found["id"] == sent["id"], query
            assert (found["body"], found["tags"]) == ("größe", "paid")
            assert found["keys"] == ["a", "b"]
            assert found["properties"]["colour"] == "red=blue"
        assert (await sh.run("queryMsgByKey", "-k", "nope", "-t", "orders")).code == 1
        with pytest.raises(NotFoundError):
            await sh.run("queryMsgByOffset", "-t", "orders", "-b", "broker-a", "-i", "1", "-o", "9")


@pytest.mark.parametrize(
    ("form", "body", "shown"),
    [
        ("auto", b"text", "text"),
        ("auto", b"\xff\x00", "ff00"),
        ("text", b"\xff", "\ufffd"),
        ("hex", b"ab", "6162"),
        ("base64", b"\xff\x00", "/wA="),
        ("json", b'{"a":\n 1}', '{"a": 1}'),
        ("json", b"{no", "{no"),
    ],
)
async def test_forms_of_bodies(
    form: str, body: bytes, shown: str, autojump_clock: MockClock
) -> None:
    async with shell() as sh:
        await sh.producer.send(Message("orders", body))
        [row] = await sh.rows("printMsg", "-t", "orders", "--body", form)
        assert row["body"] == shown
        [row] = await sh.rows("printMsg", "-t", "orders", "--body", "none")
        assert "body" not in row
        assert row["size"] == len(body)


async def test_a_body_cannot_change_the_terminal(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await sh.producer.send(Message("orders", b"\x1b[2Jbad\nline", keys=["k"]))
        for query in (["printMsg", "-t", "orders"], ["queryMsgByKey", "-k", "k", "-t", "orders"]):
            assert "\x1b" not in (await sh.run(*query)).text
        assert len((await sh.run("printMsg", "-t", "orders")).lines) == 1


async def test_a_time_limits_what_is_printed(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await sh.producer.send(Message("orders", b"old"))
        [old] = await sh.rows("printMsg", "-t", "orders")
        await trio.sleep(100)
        await sh.producer.send(Message("orders", b"new"))
        rows = await sh.rows("printMsg", "-t", "orders", "-e", old["stored"])
        assert [row["body"] for row in rows] == ["old"]
        rows = await sh.rows("printMsg", "-t", "orders", "--limit", "1")
        assert [row["body"] for row in rows] == ["old"]


async def test_tail_shows_what_comes(autojump_clock: MockClock) -> None:
    async with shell() as sh, trio.open_nursery() as nursery:
        found: list[dict[str, Any]] = []

        async def tail() -> None:
            found.extend(await sh.rows("tail", "orders", "--limit", "2", "-s", "paid"))
            nursery.cancel_scope.cancel()

        nursery.start_soon(tail)
        await trio.sleep(5)
        for number in range(4):
            tag = "paid" if number % 2 else "open"
            await sh.producer.send(Message("orders", b"%d" % number, tags=tag))
        await trio.sleep_forever()
    assert sorted(row["body"] for row in found) == ["1", "3"]


async def test_a_body_from_a_file(tmp_path: Path, autojump_clock: MockClock) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00")
    async with shell() as sh:
        await sh.run("sendMessage", "-t", "orders", "--body-file", str(file))
        [row] = await sh.rows("printMsg", "-t", "orders", "--body", "hex")
        assert row["body"] == "ff00"
        with pytest.raises(ConfigurationError, match="nope"):
            await sh.run("sendMessage", "-t", "orders", "--body-file", str(tmp_path / "nope"))
        with pytest.raises(ConfigurationError, match="together"):
            await sh.run("sendMessage", "-t", "orders", "-p", "x", "-i", "1")


async def give_up(sh: Shell, bodies: list[bytes]) -> None:
    async def reject(_message: ReceivedMessage) -> None:
        raise RejectMessage("no")

    async with PushConsumer(
        "billing",
        namesrv=sh.broker,
        subscriptions={"orders": "*"},
        listener=reject,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        for number, body in enumerate(bodies):
            await sh.producer.send(
                Message("orders", body, keys=[f"k{number}"], properties={"n": str(number)})
            )
        while True:
            rows = await sh.rows("dlq", "list")
            if rows and rows[0]["messages"] == len(bodies):
                return
            await trio.sleep(1)


async def test_dead_letters(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await give_up(sh, [b"0", b"1", b"2"])
        [row] = await sh.rows("dlq", "list")
        assert (row["group"], row["messages"]) == ("billing", 3)
        rows = await sh.rows("dlq", "show", "billing")
        assert sorted(row["body"] for row in rows) == ["0", "1", "2"]
        [row] = await sh.rows("dlq", "show", "billing", "-k", "k1")
        assert row["body"] == "1"
        [row] = await sh.rows("dlq", "show", "billing", "--property", "n=2")
        assert row["body"] == "2"
        assert await sh.rows("dlq", "show", "billing", "-s", "none") == []
        rows = await sh.rows("dlq", "show", "billing", "--sql", "n > 0 AND KEYS <> 'k1'")
        assert [row["body"] for row in rows] == ["2"]
        with pytest.raises(FilterSyntaxError):
            await sh.run("dlq", "resend", "billing", "--sql", "n >")

        with pytest.raises(ConfigurationError, match="--all"):
            await sh.run("dlq", "resend", "billing")
        await sh.run("dlq", "resend", "billing", "--all", "--dry-run")
        waiting = await sh.admin.topics.offsets("%RETRY%billing")
        assert sum(ends.max_offset for ends in waiting.values()) == 0
        assert (await sh.run("dlq", "resend", "billing", "-k", "nope")).code == 1
        *letters, done = await sh.rows("dlq", "resend", "billing", "-k", "k1")
        assert [letter["body"] for letter in letters] == ["1"]
        assert done["count"] == 1
        [again] = await sh.rows("printMsg", "-t", "%RETRY%billing")
        assert (again["body"], again["keys"]) == ("1", ["k1"])

        with pytest.raises(ConfigurationError, match="--yes"):
            await sh.run("dlq", "purge", "billing")
        assert "3 dead letters" in (await sh.run("dlq", "purge", "billing", "--yes")).text
        assert await sh.rows("dlq", "list") == []
        for code, action in enumerate((["show"], ["resend", "--all"])):
            printed = await sh.run("dlq", action[0], "billing", *action[1:])
            assert (printed.code, printed.text) == (code, "billing has given up no message\n")
        assert (await sh.run("dlq", "purge", "billing", "--yes")).code == 0
        with pytest.raises(GroupNotFoundError, match="'biling'"):
            await sh.run("dlq", "show", "biling")


async def test_the_story_of_a_message(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        await give_up(sh, [b"0"])
        [found] = await sh.rows("queryMsgByKey", "-k", "k0", "-t", "orders")
        rows = await sh.rows("trace", found["id"], "-t", "orders")
        assert [row["what"] for row in rows] == ["in its topic", "given up by a group"]
        assert rows[-1]["group"] == "billing"
