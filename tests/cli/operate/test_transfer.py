"""A topic written to a file and sent from it again."""

from __future__ import annotations

import gzip
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.cli.operate import transfer
from rocketmq_sdk.cli.operate.transfer import from_line, to_line
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.received import ReceivedMessage
from support.command_line import shell
from support.compiled import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trio.testing import MockClock

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
NAMES = TEXT.map(lambda name: "x-" + name)


@given(
    body=st.binary(min_size=1, max_size=40) | TEXT.map(str.encode),
    tags=st.none() | st.sampled_from(["paid", "größe"]),
    keys=st.lists(TEXT, max_size=3),
    sharding_key=st.none() | TEXT,
    properties=st.dictionaries(NAMES, TEXT, max_size=3),
    queue=st.integers(0, 100),
)
def test_a_line_holds_all_that_a_producer_gave(
    body: bytes,
    tags: str | None,
    keys: list[str],
    sharding_key: str | None,
    properties: dict[str, str],
    queue: int,
) -> None:
    stored = ReceivedMessage(
        "orders",
        body,
        tags=tags,
        keys=keys,
        sharding_key=sharding_key,
        properties={**properties, "WAIT": "true", "CLUSTER": "c"},
        queue_id=queue,
    )
    line = to_line(stored)
    assert "\n" not in line
    message, place = from_line(line, "copy")
    assert place == queue
    wanted = Message(
        "copy", body, tags=tags, keys=keys, sharding_key=sharding_key, properties=properties
    )
    for name in fields_of(Message):
        if name != "_text":
            assert getattr(message, name) == getattr(wanted, name), name


@pytest.mark.parametrize("name", ["orders.jsonl", "orders.jsonl.gz", "orders.jsonl.zst"])
async def test_there_and_back(
    name: str, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "LINES_AT_ONCE", 100)
    file = str(tmp_path / name)
    bars: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        bars.append((title, total, []))
        yield bars[-1][2].append

    monkeypatch.setattr(transfer, "progress", progress)
    async with shell() as sh:
        await sh.admin.topics.create("copy", queues=2)
        for number in range(450):
            await sh.producer.send(Message("orders", b"%d" % number, keys=[f"k{number}"], tags="t"))
        await sh.producer.send(Message("orders", b"\xff"))
        [done] = await sh.rows("export", "-t", "orders", file)
        assert done["count"] == 451
        [done] = await sh.rows("import", "-t", "copy", file)
        assert done["count"] == 451
        size = (await trio.Path(file).stat()).st_size
        written, read = bars
        assert written == ("messages", 451, [451])
        # Nobody knows how many messages a file has, but how far it was read.
        assert read[:2] == (f"bytes of {name}", size)
        assert len(read[2]) == 5
        assert read[2] == sorted(read[2])
        assert read[2][-1] == size
        for queue_id in range(2):
            before, after = [
                [
                    (message.body, message.keys, message.tags)
                    for queue in await sh.admin.messages.queues(topic)
                    if queue.queue_id == queue_id
                    for message in await sh.admin.messages.from_offset(queue, 0, 5000)
                ]
                for topic in ("orders", "copy")
            ]
            assert before == after


async def test_a_file_is_not_replaced_unasked_and_never_half_there(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    file = tmp_path / "orders.jsonl"
    async with shell() as sh:
        await sh.producer.send(Message("orders", b"x"))
        await sh.run("export", "-t", "orders", str(file))
        with pytest.raises(ConfigurationError, match="--force"):
            await sh.run("export", "-t", "orders", str(file))
        await sh.run("export", "-t", "orders", str(file), "--force")
        assert [path.name for path in await trio.Path(tmp_path).iterdir()] == ["orders.jsonl"]
        with pytest.raises(ConfigurationError, match="no/such"):
            await sh.run("export", "-t", "orders", str(tmp_path / "no/such/file"))


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        "{}",
        '{"body": 5}',
        '{"body": "a", "bodyBase64": "YQ=="}',
        '{"bodyBase64": "?"}',
        '{"bodyBase64": 7}',
        '{"body": "a", "queue": -1}',
        '{"body": "a", "queue": "1"}',
        '{"body": "a", "tags": "a||b"}',
        '{"body": "a", "properties": {"KEYS": "x"}}',
        '{"body": "a", "properties": 3}',
        '{"body": "a", "keys": 3}',
        '{"body": "a", "flag": "x"}',
    ],
)
async def test_a_line_that_is_no_message_is_named(
    line: str, tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"body": "good"}\n' * 2 + line + "\n")
    async with shell() as sh:
        with pytest.raises(ConfigurationError, match="line 3 of"):
            await sh.run("import", "-t", "orders", str(file))
        # What stood before it is stored, and it is said how to go on.
        assert len(await sh.rows("printMsg", "-t", "orders")) == 2
        assert "--skip 2" in capsys.readouterr().err
        file.write_text('{"body": "good"}\n' * 3)
        [done] = await sh.rows("import", "-t", "orders", str(file), "--skip", "2")
        assert done["count"] == 1
        assert len(await sh.rows("printMsg", "-t", "orders")) == 3


async def test_a_torn_file_is_named(tmp_path: Path, autojump_clock: MockClock) -> None:
    file = tmp_path / "orders.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps({"body": "x" * 5000}).encode())[:-9])
    async with shell() as sh:
        with pytest.raises(ConfigurationError, match="cannot be read on"):
            await sh.run("import", "-t", "orders", str(file))
