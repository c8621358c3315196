"""The files of `examples/deploy` against the real command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.cli import parser
from rocketmq_sdk.cli.broker import single_settings
from rocketmq_sdk.cli.option_file import with_option_file
from support.paths import ROOT

if TYPE_CHECKING:
    import argparse

DEPLOY = ROOT / "examples" / "deploy"
SERVICE = (DEPLOY / "rocketmq.service").read_text("utf-8")
CONTAINER = (DEPLOY / "Containerfile").read_text("utf-8")
MADE_UP = "/etc/rocketmq/"


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line of a file, whose paths stand in /etc."""
    program, *arguments = (word.replace(MADE_UP, f"{DEPLOY}/") for word in words)
    assert program.endswith("/bin/rocketmq")
    return with_option_file(parser(), arguments)


def test_the_option_file_is_one_of_this_command_line() -> None:
    options = with_option_file(parser(), ["broker", "--options", str(DEPLOY / "broker.toml")])
    assert (options.store, options.require_tls) == ("/var/lib/rocketmq", True)
    config, warnings = BrokerConfig.from_properties(single_settings(options.set))
    assert warnings == []
    assert config.broker_name == "edge-1"
    # Each setting of the table says in a comment what it is for, or has its unit there.
    assert {"set", "listen"} <= tomllib.loads((DEPLOY / "broker.toml").read_text("utf-8")).keys()


def test_the_settings_are_acceptable() -> None:
    text = (DEPLOY / "broker.conf").read_text("utf-8")
    config, warnings = BrokerConfig.from_properties(text)
    assert warnings == []
    assert config.checks_access


def test_the_unit_starts_what_there_is() -> None:
    [start] = re.findall(r"^ExecStart=(.*)$", SERVICE, re.M)
    options = parsed(shlex.split(start))
    assert options.command == "broker"
    assert options.store == "/var/lib/rocketmq"
    assert "Type=notify" in SERVICE


def test_the_container_starts_what_there_is() -> None:
    [entry] = re.findall(r"^ENTRYPOINT (\[.*\])$", CONTAINER, re.M)
    options = parsed(json.loads(entry))
    assert (options.command, options.log_format) == ("broker", "json")
    assert options.listen == "0.0.0.0:10911"
    shown = re.search(r"rocketmq-trio \\\n#\s+(--options .*)$", CONTAINER, re.M)
    assert shown
    more = parsed([*json.loads(entry), *shlex.split(shown[1])])
    assert more.set[-1] == "brokerIP1=192.0.2.10"
    for port in ("9876", "10911"):
        assert port in re.findall(r"^EXPOSE (.*)$", CONTAINER, re.M)[0].split()


@pytest.mark.real_time
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze on this machine")
    unit = tmp_path / "rocketmq.service"
    # It checks that the program and the user are there.
    text = re.sub(r"^(User|Group)=.*$", r"\1=daemon", SERVICE, flags=re.M)
    unit.write_text(text.replace("/opt/rocketmq/bin/rocketmq", "/bin/true"))
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    exposed = subprocess.run(
        [program, "security", "--offline=true", "--threshold=30", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert exposed.returncode == 0, exposed.stdout[-500:]


@pytest.mark.real_time
def test_a_linter_finds_nothing_wrong_with_the_container_files() -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    if linter is None:
        pytest.skip("hadolint has no wheel for this machine")
    files = [DEPLOY / "Containerfile", ROOT / "examples" / "testing" / "Dockerfile"]
    done = subprocess.run(
        [linter, "--no-color", *map(str, files)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
