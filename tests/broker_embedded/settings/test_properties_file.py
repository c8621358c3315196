"""Java properties texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties, write_properties
from rocketmq_sdk.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("a = = b", {"a": "= b"}),
        ("a\t:\tb", {"a": "b"}),
        ("# comment\n! another\n\n  # third\na=b#no comment", {"a": "b#no comment"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one \\\n   two", {"a": "one two"}),
        ("a=ends\\\\\nb=2", {"a": "ends\\", "b": "2"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=c=d\\:e", {"a b=c": "d:e"}),
        ("a=\\t\\n\\x\\u0041\\u4e2d", {"a": "\t\nxA中"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("\\u0074=\\u006e\\u0072\\\\u0041", {"t": "nr\\u0041"}),
        ("\\ud800=\\udc00x\\", {"\ufffd": "\ufffdx"}),
        ("a=1\na=2", {"a": "2"}),
        ("path=C:\\\\store", {"path": "C:\\store"}),
        ("", {}),
    ],
)
def test_reading(text: str, settings: dict[str, str]) -> None:
    assert read_properties(text) == settings


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "a=\\u"])
def test_half_an_escape(text: str) -> None:
    with pytest.raises(ConfigurationError, match="hexadecimal"):
        read_properties(text)


def test_writing() -> None:
    assert write_properties({"a": "1", "b": "x y"}) == "a=1\nb=x y\n"


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        settings = read_properties(text)
    except ConfigurationError:
        assert "\\u" in text
    else:
        assert all(isinstance(value, str) for value in settings.values())


_WORDS = st.text(st.characters(whitelist_categories=("L", "N")), min_size=1)


@given(st.dictionaries(_WORDS, _WORDS))
def test_what_is_written_is_read(settings: dict[str, str]) -> None:
    assert read_properties(write_properties(settings)) == settings
