"""`python failed_tests.py CACHE_DIRECTORY`: the tests that failed in the last run.

One a line, as pytest takes them; nothing when they are more than `MOST`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

MOST = 5
"""More failures than this come from a change, not from a busy machine."""


def failed_tests(cache: Path) -> list[str]:
    """Their node ids, without the group that xdist's `loadgroup` adds behind an `@`."""
    text = (cache / "v" / "cache" / "lastfailed").read_text()
    names = [re.sub(r"@[^]]*$", "", name) for name in json.loads(text)]
    return names if len(names) <= MOST else []


def main() -> None:
    for name in failed_tests(Path(sys.argv[1])):
        print(name)


if __name__ == "__main__":
    main()
