"""Classes that mypyc may have compiled (`docs/compiled.md`), looked at from outside."""

from __future__ import annotations

import sys
from inspect import isdatadescriptor


def is_compiled(kind: type) -> bool:
    """Whether its module is an extension."""
    file = sys.modules[kind.__module__].__file__
    return file is not None and not file.endswith(".py")


def fields_of(kind: type) -> list[str]:
    """The names of all that its objects hold, and of its properties."""
    return [
        name
        for name, value in vars(kind).items()
        if isdatadescriptor(value) and not name.startswith("__")
    ]
