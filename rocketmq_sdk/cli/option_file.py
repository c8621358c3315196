"""`--options FILE`: the options of a command in a TOML file.

Its keys are the names of the long options without the dashes in front. What the command
line says wins; `set` is a table of settings by Apache's names.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spelling import meant

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rocketmq_sdk.cli.spelling import Parser

_NOT_IN_FILES: Final = ("help", "options")


def option_file_argument(parser: argparse.ArgumentParser) -> None:
    """`--options FILE`."""
    parser.add_argument(
        "--options",
        metavar="FILE",
        help="more options, from a TOML file: listen = '0.0.0.0:10911'; these here win",
    )


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--options {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"--options {path} is not TOML: {error}") from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(action: argparse.Action, given: object, where: str) -> object:
    """What an option gets; strings go through the option's own check afterwards."""
    if action.nargs == 0:
        if not isinstance(given, bool):
            raise ConfigurationError(f"{where} is {given!r}; give true or false")
        return given
    if isinstance(action.default, list):
        if isinstance(given, dict):
            return [f"{name}={_text(value)}" for name, value in given.items()]
        if isinstance(given, list) and all(isinstance(each, str) for each in given):
            return given
        raise ConfigurationError(f"{where} is {given!r}; give a table, name = value")
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ConfigurationError(f"{where} is {given!r}; give a text or a number")
    text = str(given)
    if action.choices is not None and text not in action.choices:
        known = ", ".join(action.choices)
        raise ConfigurationError(f"{where} is {text!r}; it may be {known}")
    return text


def with_option_file(parser: Parser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line whose command may name a file of options.

    Raises `ConfigurationError` for a file, a name or a value that cannot be used.
    """
    options = parser.parse_all(arguments)
    path = getattr(options, "options", None)
    if path is None:
        return options
    command = parser.chosen(options)
    known = {
        name.removeprefix("--"): action
        for name, action in command.options().items()
        if name.startswith("--") and action.dest not in _NOT_IN_FILES
    }
    outer = parser.options()
    for name, given in _read(path).items():
        action = known.get(name)
        if action is None:
            raise ConfigurationError(
                f"{path} has {name!r}, which is no option of {options.command}"
                f"{meant(name, known=known)}"
            )
        value = _value(action, given, f"{name} in {path}")
        above = outer.get(f"--{name}")
        # What stands in front of the command wins as well.
        if above is None or getattr(options, above.dest) == above.default:
            command.set_defaults(**{action.dest: value})
    return parser.parse_all(arguments)
