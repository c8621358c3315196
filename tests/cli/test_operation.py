"""A broker as a service: its log, its options in a file, what its manager is told."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import socket
import stat
import sys
from contextlib import redirect_stderr
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.cli import logs, main, parser
from rocketmq_sdk.cli.option_file import with_option_file
from rocketmq_sdk.cli.service_manager import ServiceManager
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.log_fields import about
from support.in_process import own_logging, rocketmq_here
from support.processes import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


def begin(*arguments: str) -> None:
    logs.begin_log(parser().parse_all([*arguments, "topicList"]))


def test_a_log_file_is_rotated(tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    with own_logging():
        begin("--log-file", str(file), "--log-file-size", "1k", "--log-files", "2")
        for number in range(60):
            logging.getLogger("x").warning("record %d is here", number)
        logging.getLogger("x").info("not this one")
        logging.getLogger().handlers[0].close()
    names = ["broker.log", "broker.log.1", "broker.log.2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all(path.stat().st_size <= 1024 for path in tmp_path.iterdir())
    assert file.read_text().splitlines()[-1].endswith("WARNING x: record 59 is here")
    assert "not this one" not in file.read_text()


def test_a_log_as_json(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with own_logging():
        begin("--log-file", str(file), "--log-format", "json", "--log-level", "debug")
        logging.getLogger("x").debug("here", extra=about(topic="orders", group="billing", queue=1))
        logging.getLogger().handlers[0].close()
    line = json.loads(file.read_text())
    assert {"topic": "orders", "group": "billing", "queue": 1}.items() <= line.items()


def test_what_a_log_of_json_goes_to_holds_nothing_else() -> None:
    err = io.StringIO()
    with own_logging(), redirect_stderr(err):
        assert main(["broker", "--log-format", "json", "--set", "brokerRole=QUEEN"]) == 2
        begin("--log-format", "json", "--log-level", "error")
        logs.tell("everybody may read")
        logs.tell("SIGTERM: closing", logging.INFO, before="")
    ended, warned, closes = [json.loads(line) for line in err.getvalue().splitlines()]
    assert "brokerRole" in ended["message"]
    assert (warned["level"], warned["message"]) == ("WARNING", "everybody may read")
    assert (closes["level"], closes["message"]) == ("INFO", "SIGTERM: closing")
    with own_logging(), redirect_stderr(io.StringIO()) as err:
        begin()
        logs.tell("everybody may read")
    assert err.getvalue() == "rocketmq: warning: everybody may read\n"


def test_a_full_disk_is_said_once_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "no space left")

    with own_logging():
        begin("--log-file", str(tmp_path / "log"))
        [handler] = logging.getLogger().handlers
        assert isinstance(handler, logging.FileHandler)
        handler.close()
        handler.stream = Full()  # type: ignore[assignment]
        for _ in range(3):
            logging.getLogger("x").warning("lost")
    said = capsys.readouterr().err
    assert said.count("lacks records") == 1
    assert "Traceback" not in said


def test_the_journal_gets_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (tmp_path / "journal").open("w+")
    told = os.fstat(file.fileno())
    monkeypatch.setattr(sys, "stderr", file)
    for stream, wanted in (
        (f"{told.st_dev}:{told.st_ino}", "<4>x: here"),
        ("1:2", "WARNING x: here"),
        ("", "WARNING x: here"),
    ):
        monkeypatch.setenv("JOURNAL_STREAM", stream)
        with own_logging():
            begin()
            logging.getLogger("x").warning("here")
        file.seek(0)
        assert file.read().splitlines()[-1].endswith(wanted)
    file.close()


def test_sizes() -> None:
    assert [logs.size(text) for text in ("1", "64k", "10M", "2g")] == [1, 65536, 10485760, 2 << 30]


def test_options_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        'listen = "0.0.0.0:1"\nstore = "/data"\nrequire-tls = true\nlog-level = "info"\n'
        'log-file-size = "64k"\n[set]\nbrokerName = "edge"\nfileReservedTime = 4\n'
        "autoCreateTopicEnable = false\n"
    )
    options = with_option_file(
        parser(),
        ["broker", "--options", str(file), "--listen", "1.2.3.4:5", "--set", "brokerName=other"],
    )
    assert (options.listen, options.store, options.require_tls) == ("1.2.3.4:5", "/data", True)
    assert (options.log_level, options.log_file_size) == ("info", 65536)
    assert options.set == [
        "brokerName=edge",
        "fileReservedTime=4",
        "autoCreateTopicEnable=false",
        "brokerName=other",
    ]
    before = with_option_file(parser(), ["--log-level", "error", "broker", "--options", str(file)])
    assert before.log_level == "error"
    behind = with_option_file(parser(), ["broker", "--options", str(file), "--log-level", "debug"])
    assert behind.log_level == "debug"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('lisen = "x"', "did you mean listen"),
        ("listen = true", "give a text or a number"),
        ('require-tls = "yes"', "give true or false"),
        ('log-level = "loud"', "it may be debug, info"),
        ("set = 1", "give a table"),
        ("[set]\nbrokerNam = 1", "did you mean brokerName"),
        ("listen", "not TOML"),
        ('options = "x"', "no option of broker"),
        ('log-file-size = "x"', "no size"),
    ],
)
def test_an_option_file_that_cannot_be_used_is_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    done = rocketmq_here("broker", "--options", str(file))
    assert done.returncode == 2
    assert said in done.stderr
    missing = rocketmq_here("broker", "--options", str(tmp_path / "nothing"))
    assert missing.returncode == 2


@pytest.mark.real_time
def test_a_service_manager_is_told_that_the_broker_is_ready_and_closes(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(path))
        told.settimeout(30)
        broker = BrokerProcess(
            arguments=("--json",),
            environment={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "300000"},
        )
        broker.start()
        try:
            ready = told.recv(1000).decode().splitlines()
            assert ready == [
                "READY=1",
                f"STATUS=name server {broker.namesrv}, broker {broker.address}",
            ]
            assert told.recv(1000) == b"WATCHDOG=1"
            assert told.recv(1000) == b"WATCHDOG=1"
        finally:
            assert broker.stop() == 0
        rest = []
        told.setblocking(False)
        while True:
            try:
                rest.append(told.recv(1000).decode())
            except BlockingIOError:
                break
        assert rest[-1].startswith("STOPPING=1\n")


async def test_signs_of_life_are_given_only_where_they_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    await ServiceManager().live()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.setenv("WATCHDOG_PID", "1")
        assert ServiceManager().watchdog is None
        await ServiceManager().live()
        ServiceManager().starting(5, 10)
        assert told.recv(1000) == b"STATUS=recovering the log: 50 %\nEXTEND_TIMEOUT_USEC=60000000"


def test_a_manager_that_is_gone_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "@rocketmq-nobody-is-here")
    ServiceManager().ready("x")
    assert "cannot be told" in caplog.text


def test_errors_are_json_where_that_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with own_logging():
        assert main(["topicList", "--json", "-n", "127.0.0.1:1"]) == 1
        assert json.loads(capsys.readouterr().err)["error"] == "ConnectError"
        assert main(["broker", "--json", "--set", "x=1"]) == 2
        told = json.loads(capsys.readouterr().err)
    assert told == {"error": "ConfigurationError", "message": "the broker has no setting x"}


def test_the_demo_as_json(tmp_path: Path) -> None:
    file = tmp_path / "few.csv"
    file.write_text("carrier,tailnum,arr_delay\nXX,N1,10\nXX,N2,NA\n")
    found = json.loads(rocketmq_here("demo", "--data", str(file), "--json").stdout)
    assert (found["flights"], found["lost"], found["equal"]) == (2, 0, True)
    assert found["carriers"]["XX"] == {"flights": 2, "meanArrivalDelay": 10.0, "withoutDelay": 1}


def test_an_error_of_the_system_ends_a_command_with_1(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("")
    file.chmod(stat.S_IRUSR)
    with pytest.raises(ConfigurationError):
        logs.begin_log(parser().parse_all(["--log-file", f"{file}/x", "topicList"]))
