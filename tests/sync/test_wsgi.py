"""Web applications in threads.

The Flask program of `docs/sync.md` runs here where Flask is installed.
"""

from __future__ import annotations

import atexit
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.paths import DOCS

pytestmark = pytest.mark.real_time


def test_the_program_for_flask(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flask")
    at_the_end: list[tuple[Any, ...]] = []
    monkeypatch.setattr(atexit, "register", lambda *call: at_the_end.append(call))
    [program] = [
        block
        for block in re.findall(r"```python\n(.*?)```", (DOCS / "sync.md").read_text("utf-8"), re.S)
        if "Flask(" in block
    ]
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, "docs/sync.md", "exec"), names)
    try:

        def post(number: int) -> str:
            with names["app"].test_client() as client:
                found: str = json.loads(client.post(f"/orders/{number}").data)["message_id"]
                return found

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(post, range(20)))) == 20
    finally:
        own = [call for call in at_the_end if "__exit__" in repr(call[0])]
        for function, *arguments in reversed(own):
            function(*arguments)
