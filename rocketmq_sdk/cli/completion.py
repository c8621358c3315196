"""`rocketmq completion bash|zsh|fish`: a script that completes commands and options.

It is made from the parser, so that it knows what the parser knows. Values that are one
of a few are completed too, and files where an option takes one.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.cli.spelling import Parser

SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = ("FILE", "DIR")


@attrs.frozen
class _Word:
    """What may be written at one place: a command or an option."""

    name: str
    help: str


@attrs.frozen
class _Option:
    """An option: its spellings, and what follows it."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    files: bool


@attrs.frozen
class _Place:
    """What may follow some commands, such as `()`, `("dlq",)` and `("dlq", "show")`."""

    path: tuple[str, ...]
    commands: tuple[_Word, ...]
    options: tuple[_Option, ...]
    values: tuple[str, ...]
    """What may be written without an option in front."""
    files: bool


def add_completion(commands: argparse._SubParsersAction[Parser]) -> None:
    """Describe the command."""
    command = commands.add_parser(
        "completion", help="print a script that completes commands and options in a shell"
    )
    command.add_argument(
        "shell",
        choices=SHELLS,
        metavar="SHELL",
        help='bash: eval "$(rocketmq completion bash)"; zsh, fish: see docs/cli.md',
    )


def completion(parser: Parser, shell: str) -> str:
    """The script for one of the `SHELLS`."""
    places = list(_places(parser, ()))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](places)


def _plain(text: str | None) -> str:
    """A help text for a list: one line without what shells take for theirs."""
    first = re.split(r"[;(:]", (text or "").replace("%%", "%"))[0].strip()
    return re.sub(r"[^\w ,./=%-]", "", first)[:60]


def _places(parser: Parser, path: tuple[str, ...]) -> Iterator[_Place]:
    options: list[_Option] = []
    values: list[str] = []
    files = False
    for action in parser.arguments():
        if isinstance(action, argparse._SubParsersAction):
            continue
        choices = tuple(map(str, action.choices or ()))
        if not action.option_strings:
            values += choices
            files |= action.metavar in _FILES
            continue
        options.append(
            _Option(
                tuple(action.option_strings),
                _plain(action.help),
                action.nargs != 0,
                choices or (("true", "false") if action.metavar == "true|false" else ()),
                action.metavar in _FILES,
            )
        )
    commands: tuple[_Word, ...] = ()
    if parser.commands is not None:
        helps = {each.dest: each.help for each in parser.commands._get_subactions()}
        commands = tuple(_Word(name, _plain(helps[name])) for name in parser.commands.choices)
    yield _Place(path, commands, tuple(options), tuple(values), files)
    if parser.commands is not None:
        for name, inner in parser.commands.choices.items():
            yield from _places(inner, (*path, name))


def _bash_cases(places: list[_Place]) -> tuple[list[str], list[str]]:
    """What may follow each place, and each option, as arms of `case`."""
    words, values = [], []
    for place in places:
        key = "/".join(place.path)
        offered = [each.name for each in place.commands] + list(place.values)
        for option in place.options:
            offered += option.names
            if option.takes_value:
                says = " ".join(option.choices) or ("FILES" if option.files else "")
                keys = "|".join(f"'{key}:{name}'" for name in option.names)
                values.append(f'            {keys}) echo "{says}" ;;')
        files = " FILES" if place.files else ""
        words.append(f"            '{key}') echo \"{' '.join(offered)}{files}\" ;;")
    return words, values


def _bash(places: list[_Place]) -> str:
    """A function that finds the place among the words and offers what belongs there."""
    words, values = _bash_cases(places)
    commands = [place.path[0] for place in places if len(place.path) == 1]
    actions = ["/".join(place.path) for place in places if len(place.path) == 2]
    lines = "\n".join
    return f"""# bash completion of rocketmq
_rocketmq_words() {{
    case "$1" in
{lines(words)}
    esac
}}
_rocketmq_values() {{
    case "$1" in
{lines(values)}
            *) return 1 ;;
    esac
}}
_rocketmq() {{
    local word place="" previous="" skip="" offered
    local current="${{COMP_WORDS[COMP_CWORD]}}"
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        previous=""
        if [ -n "$skip" ]; then skip=""; continue; fi
        case "$word" in
            -*) if _rocketmq_values "$place:$word" > /dev/null; then skip=1; previous="$word"; fi ;;
            {"|".join(commands)}) if [ -z "$place" ]; then place="$word"; fi ;;
        esac
        case "$place/$word" in {"|".join(actions) or "/"}) place="$place/$word" ;; esac
    done
    if [ -n "$skip" ]; then
        offered="$(_rocketmq_values "$place:$previous")"
    else
        offered="$(_rocketmq_words "$place")"
        case "$current" in
            -*) ;;
            *) offered="$(printf '%s\\n' $offered | grep -v '^-' | tr '\\n' ' ')" ;;
        esac
    fi
    COMPREPLY=()
    case " $offered " in
        *" FILES "*) compopt -o filenames 2> /dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    esac
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY \\
        < <(compgen -W "${{offered//FILES/}}" -- "$current")
}}
complete -F _rocketmq rocketmq
"""


def _zsh_option(option: _Option) -> Iterator[str]:
    value = ""
    if option.takes_value:
        what = " ".join(option.choices)
        value = f":value:({what})" if what else ":file:_files" if option.files else ":value:"
    for name in option.names:
        yield f"'{name}[{option.help}]{value}'"


def _zsh(places: list[_Place]) -> str:
    """A function for each place, as `_arguments` wants it."""
    found = ["#compdef rocketmq"]
    for place in places:
        name = "_".join(("_rocketmq", *place.path)).replace("-", "_")
        said = [text for option in place.options for text in _zsh_option(option)]
        if place.commands:
            listed = " ".join(f"'{word.name}:{word.help}'" for word in place.commands)
            said += ["'1: :->command'", "'*:: :->rest'"]
            cases = "\n".join(
                f"        {word.name}) {name}_{word.name.replace('-', '_')} ;;"
                for word in place.commands
            )
            then = f"""
    case $state in
    command) local -a known=({listed}); _describe command known ;;
    rest) case $words[1] in
{cases}
        esac ;;
    esac"""
        else:
            then = ""
            if place.values:
                said.append(f"'*:value:({' '.join(place.values)})'")
            elif place.files:
                said.append("'*:file:_files'")
        lines = " \\\n        ".join(said)
        found.append(f"{name}() {{\n    local state line\n    _arguments -C {lines}{then}\n}}")
    found.append('_rocketmq "$@"')
    return "\n".join(found) + "\n"


def _fish(places: list[_Place]) -> str:
    """A line for each thing that may be offered, with the condition when it may."""
    found = ["# fish completion of rocketmq", "complete -c rocketmq -f"]
    for place in places:
        if not place.path:
            names = " ".join(word.name for word in place.commands)
            when = f"not __fish_seen_subcommand_from {names}"
        else:
            when = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in place.path)
            if place.commands:
                inner = " ".join(word.name for word in place.commands)
                when += f"; and not __fish_seen_subcommand_from {inner}"
        begin = f"complete -c rocketmq -n '{when}'"
        found += [f"{begin} -a {word.name} -d '{word.help}'" for word in place.commands]
        found += [f"{begin} -a {value}" for value in place.values]
        if place.files:
            found.append(f"{begin} -F")
        for option in place.options:
            line = begin
            for name in option.names:
                kind = "l" if name.startswith("--") else "s" if len(name) == 2 else "o"
                line += f" -{kind} {name.lstrip('-')}"
            if option.takes_value:
                line += " -r"
                line += f" -a '{' '.join(option.choices)}'" if option.choices else ""
                line += " -F" if option.files else ""
            found.append(f"{line} -d '{option.help}'")
    return "\n".join(found) + "\n"
