"""Virtual environments with nothing but what is installed there, as users have them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def clean(**more: str) -> dict[str, str]:
    """The environment's variables, without what leads Python to the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    return kept | more


def run(*command: str | Path, at: Path, **variables: str) -> str:
    """What a program says that ends well; nothing leads it to the checkout.

    `variables` are for its environment.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=at,
        env=clean(**variables),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def unpack(sdist: Path, home: Path) -> Path:
    """Unpack an sdist; returns its tree."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(home, filter="data")
        else:  # Python 3.11.3 and before, which some distributions have
            archive.extractall(home)
    return home / sdist.name.removesuffix(".tar.gz")


class Environment:
    """A virtual environment, and an empty directory beside it."""

    def __init__(self, home: Path) -> None:
        venv.create(home / "env", with_pip=False)
        self.python = home / "env" / "bin" / "python"
        self.empty = home / "empty"
        self.empty.mkdir()

    def install(self, *what: str) -> None:
        """Install it with what it needs, with pip of the tests' own environment."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        run(*pip, "install", "--quiet", "--no-compile", "--use-pep517", *what, at=self.empty)

    def distributions(self) -> set[str]:
        """The names of all that is installed."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        listed = run(*pip, "list", "--format", "freeze", at=self.empty)
        return {line.split("==")[0].split(" @ ")[0].lower() for line in listed.splitlines()}

    def run(self, *arguments: str) -> str:
        """Run its interpreter where no file of ours lies."""
        return run(self.python, *arguments, at=self.empty)

    def start(self, *arguments: str, said: Path) -> subprocess.Popen[bytes]:
        """Start its interpreter; what it says goes to a file."""
        home = clean(HOME=str(self.empty))
        with said.open("wb") as file:
            return subprocess.Popen(
                [self.python, *arguments], cwd=self.empty, env=home, stdout=file, stderr=file
            )
