"""Completion in shells: what bash offers, and that zsh and fish read their scripts."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest

from rocketmq_sdk.cli import parser
from rocketmq_sdk.cli.completion import SHELLS, completion
from rocketmq_sdk.cli.operate import COMMANDS

pytestmark = pytest.mark.real_time

PROGRAM = """
source /dev/stdin
while IFS= read -r line <&3; do
    IFS=$'\\t' read -ra COMP_WORDS <<< "$line"
    [ "${line: -1}" = $'\\t' ] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _rocketmq
    echo "${COMPREPLY[*]}"
done 3<<< "$1"
"""


@cache
def script(shell: str) -> str:
    return completion(parser(), shell)


def offered(*lines: list[str]) -> list[set[str]]:
    """What bash offers for the last word of each line; `rocketmq` stands in front."""
    wanted = "\n".join("\t".join(("rocketmq", *line)) for line in lines)
    done = subprocess.run(
        ["bash", "--norc", "-c", PROGRAM, "bash", wanted],
        input=script("bash"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_bash_offers_what_the_parser_knows() -> None:
    commands, some, actions, options, choice, value, inner, top, level, shell = offered(
        [""],
        ["queryMsg"],
        ["dlq", ""],
        ["topicRoute", "--"],
        ["tail", "--body", ""],
        ["updateSubGroup", "-s", "t"],
        ["dlq", "resend", "g", "--dr"],
        ["-"],
        ["--log-level", "info", "topicLi"],
        ["completion", ""],
    )
    assert {*COMMANDS, "broker", "demo", "store"} <= commands
    assert not any(word.startswith("-") for word in commands)
    assert some == {
        "queryMsgById",
        "queryMsgByKey",
        "queryMsgByOffset",
        "queryMsgByUniqueKey",
    }
    assert actions == {"list", "show", "resend", "purge"}
    assert {"--namesrv", "--json", "--topic", "--profile"} <= options
    assert choice == {"auto", "text", "json", "hex", "base64", "none"}
    assert value == {"true"}
    assert inner == {"--dry-run"}
    assert {"--log-level", "--log-file", "--version", "-h"} <= top
    assert level == {"topicList"}
    assert shell == {*SHELLS}


def test_bash_offers_files_where_an_option_takes_one() -> None:
    config, nothing = offered(
        ["broker", "--config", "/etc/host"], ["broker", "--listen", "/etc/host"]
    )
    assert "/etc/hosts" in config
    assert nothing == set()


def test_every_command_and_option_is_in_each_script() -> None:
    top = parser()
    assert top.commands is not None
    for shell in SHELLS:
        text = script(shell)
        for name, command in top.commands.choices.items():
            assert name in text, (shell, name)
            for option in command.options():
                assert option.lstrip("-") in text, (shell, name, option)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_can_be_read(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    done = subprocess.run(
        [program, "-n"],
        input=script(shell),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_offers_what_the_parser_knows() -> None:
    program = shutil.which("fish")
    if program is None:
        pytest.skip("no fish on this machine")
    lines = ("rocketmq topicLi", "rocketmq dlq pu", "rocketmq tail --body he", "rocketmq dlq --js")
    asked = "\n".join(f"complete -C {line!r}; echo -" for line in lines)
    done = subprocess.run(
        [program, "--no-config", "-c", f"source -; {asked}"],
        input=script("fish"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    found = [part.split() for part in done.stdout.split("-\n")]
    assert [words[0] for words in found[:3]] == ["topicList", "purge", "hex"]
