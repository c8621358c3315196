"""The package with modules compiled by mypyc, see `docs/compiled.md`."""

from __future__ import annotations

import sys
import tomllib
import zipfile
from inspect import isdatadescriptor
from typing import TYPE_CHECKING

from support.environments import run, unpack
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
COMPILED: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"][
    "include"
]
"""The sources that are compiled."""


def build_compiled(home: Path) -> tuple[Path, Path]:
    """Wheel and sdist with compiled modules, built as for a release."""
    command: list[str | Path] = [sys.executable, "-m", "build", "--outdir", home, ROOT]
    run(*command, at=home, HATCH_BUILD_HOOK_ENABLE_MYPYC="1")
    [wheel], [sdist] = home.glob("*.whl"), home.glob("*.tar.gz")
    return wheel, sdist


def lay_out(wheel: Path, sdist: Path, home: Path) -> Path:
    """A tree as in the sdist, with the extensions of the wheel where they belong."""
    tree = unpack(sdist, home)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree, [name for name in archive.namelist() if is_extension(name)])
    return tree


def is_extension(name: str) -> bool:
    """Whether a file of a wheel is one that an interpreter loads as a module of C."""
    return name.endswith((".so", ".pyd"))


def is_compiled(kind: type) -> bool:
    """Whether the module of a class is an extension."""
    return is_extension(sys.modules[kind.__module__].__file__ or "")


def fields_of(kind: type) -> list[str]:
    """The names of all that the objects of a class hold, and of its properties."""
    return [
        name
        for name, value in vars(kind).items()
        if isdatadescriptor(value) and not name.startswith("__")
    ]
