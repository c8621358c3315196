"""Signatures against `AclUtils` and `AclClientRPCHook`."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol import signing
from rocketmq_sdk.protocol.signing import content_to_sign, sign, sign_in_place, verify
from support.paths import CODEC_VECTORS

ENTRIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "names_and_rules.json").read_text())
SIGNATURES = [entry for entry in ENTRIES if entry["kind"] == "acl_signature"]
HOOKS = [entry for entry in ENTRIES if entry["kind"] == "acl_hook"]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_there_are_vectors() -> None:
    assert (len(SIGNATURES), len(HOOKS)) == (5, 2)


@pytest.mark.parametrize(
    "entry",
    SIGNATURES,
    ids=lambda entry: entry["signature"] if isinstance(entry["signature"], str) else "error",
)
def test_signs_as_apache_does(entry: dict[str, Any]) -> None:
    body = _bytes(entry["body"])
    assert content_to_sign(entry["ext"], body).hex() == entry["content"]
    if "error" in entry["signature"]:
        with pytest.raises(ConfigurationError, match="secret key is empty"):
            sign(entry["ext"], body, entry["secret"])
        return
    assert sign(entry["ext"], body, entry["secret"]) == entry["signature"]
    assert verify({**entry["ext"], "Signature": entry["signature"]}, body, entry["secret"])


@pytest.mark.parametrize("entry", HOOKS, ids=lambda entry: str(entry["token"]))
def test_hook(entry: dict[str, Any]) -> None:
    fields = {
        name: value
        for name, value in entry["ext_after"].items()
        if name not in ("AccessKey", "SecurityToken", "Signature")
    }
    sign_in_place(
        fields, _bytes(entry["body"]), entry["accessKey"], entry["secret"], entry["token"]
    )
    assert fields == entry["ext_after"]
    again = dict(fields)
    sign_in_place(again, _bytes(entry["body"]), entry["accessKey"], entry["secret"], entry["token"])
    assert again == fields


def test_names_are_ordered_by_utf16_units() -> None:
    # U+1F600 is written with surrogates, which are smaller than U+FF5E in UTF-16 and
    # larger as code points.
    assert content_to_sign({"\uff5e": "second", "\U0001f600": "first"}, b"!") == b"firstsecond!"


def test_lone_surrogates_become_question_marks() -> None:
    assert content_to_sign({"a": "x\ud800y"}, None) == b"x?y"


def test_no_signature_is_no_fit() -> None:
    assert not verify({"AccessKey": "ak"}, b"", "sk")
    assert not verify({"AccessKey": "ak", "Signature": "é"}, b"", "sk")


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5).filter("Signature".__ne__), st.text(max_size=10), min_size=1
    ),
    st.binary(max_size=50),
    st.data(),
)
def test_any_change_breaks_the_signature(
    fields: dict[str, str], body: bytes, data: st.DataObject
) -> None:
    sign_in_place(fields, body, "ak", "sk")
    assert verify(fields, body, "sk")
    assert not verify(fields, body, "other")
    assert not verify(fields, body + b"x", "sk")
    name = data.draw(st.sampled_from(sorted(set(fields) - {"Signature"})))
    assert not verify({**fields, name: fields[name] + "x"}, body, "sk")


@given(st.text(min_size=1, max_size=200), st.text(), st.binary(max_size=300))
def test_signatures_are_those_of_the_standard_library(secret: str, value: str, body: bytes) -> None:
    content = value.encode("utf-8", "replace") + body
    wanted = b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()
    for _ in range(2):
        assert sign({"a": value, "Signature": "x"}, body, secret) == wanted


def test_names_that_anybody_may_send_are_not_remembered() -> None:
    """Their order counts all the same."""
    before = signing._values.cache_info().currsize
    names = [f"{'n' * 600}{number}" for number in (2, 1)]
    fields = dict(zip(names, "ab", strict=True)) | {signing.SIGNATURE: "x"}
    assert content_to_sign(fields, b"!") == b"ba!"
    assert content_to_sign({"only": "1"}, None) == b"1"
    assert content_to_sign({}, b"") == b""
    assert signing._values.cache_info().currsize <= before + 2
