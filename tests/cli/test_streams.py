"""Standard streams that lack letters, or are not there."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from rocketmq_sdk.cli import main
from support.in_process import own_logging


def said(encoding: str, *arguments: str) -> str:
    """What a command that is not acceptable says where the locale has this encoding."""
    out, err = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    with own_logging(), redirect_stdout(out), redirect_stderr(err):
        assert main(arguments) == 2
        err.flush()
        return err.buffer.getvalue().decode(err.encoding)  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_a_locale_lacks_are_escapes_and_json_is_utf_8(encoding: str) -> None:
    shown = "你Ä:x" if encoding == "utf-8" else "\\u4f60"
    assert shown in said(encoding, "topicList", "-n", "你Ä:x")
    assert "你Ä:x" in json.loads(said(encoding, "topicList", "--json", "-n", "你Ä:x"))["message"]


def test_a_stream_that_was_closed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with own_logging():
        assert main(["completion", "bash"]) == 0
        assert main(["topicList", "-n", "x:y"]) == 2
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
