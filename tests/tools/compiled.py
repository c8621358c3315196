"""`python -m tools.compiled ...`: `python ...` where some modules are compiled.

They are built first, and laid into a copy of the tree (`docs/compiled.md`): `-m pytest
tests/model`, `-m benchmarks transactions`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from support.compiled import build_compiled, lay_out
from support.environments import clean


def main(arguments: list[str]) -> int:
    """Returns what the program returned."""
    with TemporaryDirectory(prefix="rocketmq-compiled-") as home:
        tree = lay_out(*build_compiled(Path(home)), Path(home))
        variables = clean(PYTHONPATH=str(tree), PYTEST_ADDOPTS="-p no:cacheprovider")
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tree, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
