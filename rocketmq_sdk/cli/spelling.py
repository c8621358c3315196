"""A parser that says what a misspelt command or option was probably meant to be."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rocketmq_sdk.spelling import meant

if TYPE_CHECKING:
    from collections.abc import Sequence


_LISTED: Final = 12
"""So many choices are told in an error; more are left to the help."""


def _parts_of(word: str, names: Sequence[str]) -> str:
    """`; did you mean a, b?` with names that begin with a word."""
    longer = [name for name in names if name.lower().startswith(word.lower())][:3]
    return f"; did you mean {', '.join(longer)}?" if longer and len(word) > 2 else ""


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations: an option that is not known is an error."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})
        self.commands: argparse._SubParsersAction[Parser] | None = None
        self._given: Sequence[str] = ()

    def add_subparsers(self, **settings: Any) -> argparse._SubParsersAction[Any]:
        """Begin to describe commands."""
        self.commands = super().add_subparsers(**settings)
        return self.commands

    def options(self) -> dict[str, argparse.Action]:
        """What can be said here, by how it is said (`-t`, `--topic`)."""
        return dict(self._option_string_actions)

    def arguments(self) -> list[argparse.Action]:
        """All arguments, those without a name too."""
        return list(self._actions)

    def chosen(self, options: argparse.Namespace) -> Parser:
        """The parser of the command, or of its action, that was chosen."""
        if self.commands is None:
            return self
        command = self.commands.choices.get(getattr(options, self.commands.dest, None) or "")
        return self if command is None else command.chosen(options)

    def parse_all(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse a command line; ends the program with exit code 2 if it cannot be."""
        self._given = sys.argv[1:] if arguments is None else arguments
        options, unknown = self.parse_known_args(self._given)
        if unknown:
            chosen = self.chosen(options)
            if unknown[0].startswith("-"):
                chosen.error(chosen._no_option(unknown[0]))
            chosen.error(chosen._one_dash(self._given) or f"{unknown[0]!r} is too much")
        return options

    def _one_dash(self, given: Sequence[str]) -> str | None:
        """What to say of `-topic`, which is `-t opic`, if there is such a thing."""
        for word in given:
            name = f"-{word.partition('=')[0]}"
            if not word.startswith("--") and name in self.options():
                return f"there is no option {name[1:]}; did you mean {name}?"
        return None

    def _no_option(self, given: str) -> str:
        name = given.partition("=")[0]
        return f"there is no option {name}{meant(name, known=self.options())}"

    def _misspelt_before(self, word: str) -> str | None:
        """An option that nobody knows, whose value was taken for a command."""
        for given in self._given:
            if given == word:
                break
            if given.startswith("--") and given.partition("=")[0] not in self.options():
                return given
        return None

    def error(self, message: str) -> NoReturn:
        """End the program with exit code 2."""
        if found := re.search(r"^(.*?)invalid choice: '(.*?)' \(choose from (.*)\)", message):
            where = "" if "COMMAND" in found[1] or "ACTION" in found[1] else found[1]
            if misspelt := self._misspelt_before(found[2]):
                message = self._no_option(misspelt)
            else:
                names = re.findall(r"[^\s',]+", found[3])
                hint = meant(found[2], known=names) or _parts_of(found[2], names)
                if not hint and len(names) > _LISTED:
                    hint = f"; `{self.prog} --help` lists what there is"
                if hint:
                    message = f"{where}there is no {found[2]!r}{hint}"
        super().error(message)
