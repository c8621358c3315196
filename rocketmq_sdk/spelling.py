"""What somebody probably meant who wrote a name that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEAR: Final = 0.65
"""How much of two names must agree (`difflib.SequenceMatcher.ratio`)."""


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that are nearest to a name, best first; none when all are far.

    Upper and lower case, `_` and `-` make no difference. Of two names that differ in
    nothing else, the one that is spelt as `name` is told.
    """
    from difflib import get_close_matches  # rarely wanted

    style = "_" in name
    names = {
        _letters(each): each for each in sorted(known, key=lambda each: ("_" in each) == style)
    }
    return [names[each] for each in get_close_matches(_letters(name), names, most, _NEAR)]


def meant(*names: str, known: Iterable[str], most: int = 3) -> str:
    """`; did you mean a, b?` with the known names nearest to some, or an empty text."""
    among = list(known)
    near = [each for name in names for each in nearest(name, among, most)]
    return f"; did you mean {', '.join(near)}?" if near else ""


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
