"""`rocketmq bench`: what it sends, counts and tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.cli import parser
from rocketmq_sdk.cli.operate.bench import Times, message_maker, properties
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.interception import intercept
from support.command_line import shell
from support.in_process import rocketmq_here

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import Channel, Handler

APACHE = {
    "producer": "w s k t l m a ak sk q d e y",
    "consumer": "t w g p f e r m a",
}
"""The options of Apache's `Producer` and `Consumer` benchmarks; all have `-n` too."""


@pytest.mark.parametrize("action", APACHE)
def test_the_options_are_those_of_apaches_benchmark(action: str) -> None:
    top = parser()
    assert top.commands is not None
    bench = top.commands.choices["bench"].commands
    assert bench is not None
    known = bench.choices[action].options()
    assert {f"-{name}" for name in APACHE[action].split()} | {"-n"} <= known.keys()


def test_properties_are_as_long_as_apaches() -> None:
    assert properties(0, 7) == {}
    assert properties(20, 7) == {"prop0": "hello7", "prop1": "7"} | {
        "prop2": "hello9",
        "prop3": "9",
    }


def test_what_is_sent() -> None:
    options = parser().parse_all(
        "bench producer -s 20 -k true -p 5 -l 3 -d -e 2 -t bills".split()  # noqa: SIM905
    )
    message = message_maker(options)()
    assert (message.topic, len(message.body), message.delay_level) == ("bills", 20, 2)
    assert message.tags in ("tag0", "tag1", "tag2")
    assert len(message.keys) == 1
    assert "prop0" in message.properties
    plain = message_maker(parser().parse_all(["bench", "producer"]))()
    assert (plain.topic, len(plain.body), plain.tags, plain.keys) == (
        "BenchmarkTest",
        128,
        None,
        (),
    )
    assert plain.properties == {}


def test_percentiles_are_right_within_two_percent() -> None:
    times = Times()
    assert times.row("ms") == {"msMean": None, "msP50": None, "msP99": None, "msP999": None} | {
        "msMax": None
    }
    for number in range(1, 10_001):
        times.add(number / 100)
    row = times.row("ms")
    assert row["msMean"] == pytest.approx(50.0, rel=0.001)
    for name, value in (("msP50", 50), ("msP99", 99), ("msP999", 99.9), ("msMax", 100)):
        assert row[name] == pytest.approx(value, rel=0.02)


async def test_messages_are_sent_and_consumed(autojump_clock: MockClock) -> None:
    async with shell() as sh:
        rows = await sh.rows("bench", "producer", "-t", "orders", "-q", "500", "-w", "8", "-k")
        assert rows[-1]["kind"] == "total"
        assert (rows[-1]["messages"], rows[-1]["failed"]) == (500, 0)
        rows = await sh.rows("bench", "producer", "-t", "orders", "-q", "100", "-y")
        assert rows[-1]["messages"] == 100
        assert sum(row["maxOffset"] for row in await sh.rows("topicStatus", "-t", "orders")) == 600
        consumed = ("bench", "consumer", "-t", "orders", "-p", "false")
        rows = await sh.rows(*consumed, "--limit", "600")
        assert (rows[-1]["messages"], rows[-1]["failed"]) == (600, 0)
        assert min(rows[-1]["bornMax"], rows[-1]["storedMax"]) > 0
        nothing = await sh.run(*consumed, "--duration", "25", "--json")
        assert nothing.code == 1
        assert [row["kind"] for row in nothing.rows] == ["interval", "interval", "total"]
        assert [round(row["seconds"]) for row in nothing.rows] == [10, 10, 25]
        table = await sh.run(*consumed, "--duration", "15")
        assert table.lines[0].split()[:3] == ["0.0/s", "failed", "0"]


def no_permission(channel: Channel, command: Command, serve: Handler) -> Command:
    return Command.response(ResponseCode.NO_PERMISSION, remark="as the test wants it")


async def test_failures_are_counted_and_named(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell() as sh:
        with intercept(sh.broker, RequestCode.SEND_MESSAGE_V2, by=no_permission):
            done = await sh.run("bench", "producer", "-t", "orders", "-q", "3", "-w", "1", "--json")
        assert done.code == 1
        total = done.rows[-1]
        assert (total["messages"], total["failed"]) == (0, 3)
        assert list(total["failures"].values()) == ["3"]
        assert capsys.readouterr().err.count("as the test wants it") == 1
        with pytest.raises(ConfigurationError, match="no/topic"):
            await sh.run("bench", "producer", "-t", "no/topic")


def test_what_does_not_fit_is_refused() -> None:
    for arguments, said in (
        (["producer", "-ak", "x"], "go together"),
        (["producer", "-s", "0"], "at least 1"),
        (["consumer", "-r", "2"], "rate"),
        (["consumer", "-f", "TAG", "-e", "/no/such/file"], "cannot be read"),
    ):
        done = rocketmq_here("bench", *arguments, "-n", "127.0.0.1:1")
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
