"""Compressed bodies: what Apache's compressors write is read, damage and bombs are
refused, a missing library is named.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import CodecMissingError, ConfigurationError, RemoteProtocolError
from rocketmq_sdk.protocol import compression
from rocketmq_sdk.protocol.compression import CompressionType, compress, decompress
from support.paths import CODEC_VECTORS

ENTRIES: list[dict[str, Any]] = json.loads(
    gzip.decompress((CODEC_VECTORS / "compression.json.gz").read_bytes())
)
OUTPUTS = [entry for entry in ENTRIES if "level" in entry and isinstance(entry["output"], str)]
REFUSED_LEVELS = [
    entry for entry in ENTRIES if "level" in entry and not isinstance(entry["output"], str)
]
DECOMPRESS = [entry for entry in ENTRIES if entry.get("kind") == "decompress"]
NAMES = [entry for entry in ENTRIES if entry.get("kind") == "CompressionType.of"]


def _input(entry: dict[str, Any]) -> bytes:
    return (
        bytes(entry["input_len"])
        if entry["input_name"] == "zeros"
        else bytes.fromhex(entry["input"])
    )


def test_the_vectors_are_all_used() -> None:
    assert (len(OUTPUTS), len(REFUSED_LEVELS), len(DECOMPRESS), len(NAMES)) == (140, 7, 21, 6)
    assert sum(map(len, (OUTPUTS, REFUSED_LEVELS, DECOMPRESS, NAMES))) == len(ENTRIES)


@pytest.mark.parametrize(
    "entry", OUTPUTS, ids=lambda entry: f"{entry['type']} {entry['input_name']} {entry['level']}"
)
def test_reads_what_apache_writes_and_our_own(entry: dict[str, Any]) -> None:
    original = _input(entry)
    compression_type = CompressionType[entry["type"]]
    assert compression_type == entry["type_value"]
    assert compression_type.sys_flag_bits == entry["sysflag_bits"]
    assert (
        decompress(bytes.fromhex(entry["output"]), compression_type.sys_flag_bits | 1) == original
    )
    assert (
        decompress(
            compress(original, compression_type, entry["level"]), compression_type.sys_flag_bits | 1
        )
        == original
    )


@pytest.mark.parametrize(
    "entry",
    REFUSED_LEVELS,
    ids=lambda entry: f"{entry['type']} {entry['input_name']} {entry['level']}",
)
def test_levels_that_apache_refuses(entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="levels"):
        compress(_input(entry), CompressionType[entry["type"]], entry["level"])


@pytest.mark.parametrize("entry", DECOMPRESS, ids=lambda entry: f"{entry['type']} {entry['input']}")
def test_broken_inputs_are_refused_like_at_apache(entry: dict[str, Any]) -> None:
    bits = CompressionType[entry["type"]].sys_flag_bits
    data = bytes.fromhex(entry["input"])
    if isinstance(entry["result"], str):
        assert decompress(data, bits) == bytes.fromhex(entry["result"])
    else:
        with pytest.raises(RemoteProtocolError, match=r"damaged|cut off"):
            decompress(data, bits)


@pytest.mark.parametrize("entry", NAMES, ids=lambda entry: repr(entry["name"]))
def test_names(entry: dict[str, Any]) -> None:
    if isinstance(entry["result"], str):
        assert CompressionType.of(entry["name"]).name == entry["result"]
    else:
        with pytest.raises(ConfigurationError, match="not a compression type"):
            CompressionType.of(entry["name"])


def test_no_type_bits_mean_zlib() -> None:
    assert decompress(zlib.compress(b"old client"), 1) == b"old client"


BODIES = st.one_of(
    st.binary(max_size=500),
    st.builds(
        lambda part, times: part * times, st.binary(min_size=1, max_size=20), st.integers(1, 2000)
    ),
)


@settings(deadline=None, max_examples=80)
@given(BODIES, st.sampled_from(list(CompressionType)), st.data())
def test_round_trip_truncated_and_bounded(
    body: bytes, compression_type: CompressionType, data: st.DataObject
) -> None:
    packed = compress(body, compression_type)
    bits = compression_type.sys_flag_bits
    assert decompress(packed, bits) == body
    assert decompress(packed, bits, limit=len(body)) == body
    if body:
        with pytest.raises(RemoteProtocolError, match=f"more than {len(body) - 1} bytes"):
            decompress(packed, bits, limit=len(body) - 1)
    cut = data.draw(st.integers(1, len(packed)))
    if cut < len(packed) or compression_type is CompressionType.LZ4:
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:-cut], bits)


@settings(deadline=None, max_examples=200)
@given(
    BODIES,
    st.sampled_from(list(CompressionType)),
    st.integers(0, 10_000),
    st.binary(min_size=1, max_size=8),
)
def test_damage_raises_nothing_else(
    body: bytes, compression_type: CompressionType, position: int, patch: bytes
) -> None:
    broken = bytearray(compress(body, compression_type))
    start = position % len(broken)
    broken[start : start + len(patch)] = patch
    try:
        assert (
            len(decompress(bytes(broken), compression_type.sys_flag_bits, limit=100_000)) <= 100_000
        )
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize("compression_type", [CompressionType.LZ4, CompressionType.ZSTD])
def test_frames_in_a_row_are_one_body(compression_type: CompressionType) -> None:
    packed = compress(b"one", compression_type) + compress(b"two", compression_type)
    assert decompress(packed, compression_type.sys_flag_bits) == b"onetwo"
    with pytest.raises(RemoteProtocolError):
        decompress(packed + b"tail", compression_type.sys_flag_bits)


def test_bytes_behind_a_zlib_stream_are_ignored() -> None:
    assert decompress(zlib.compress(b"one") + b"tail", 1) == b"one"


@pytest.mark.parametrize("compression_type", list(CompressionType))
def test_a_bomb_is_stopped_early(compression_type: CompressionType) -> None:
    bomb = compress(bytes(64 << 20), compression_type)
    assert len(bomb) < 1 << 20
    with pytest.raises(RemoteProtocolError, match="more than 1048576 bytes"):
        decompress(bomb, compression_type.sys_flag_bits, limit=1 << 20)


@pytest.mark.parametrize("value", [4, 5, 6, 7])
def test_unknown_type_bits(value: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"unknown compression type {value}"):
        decompress(b"", value << 8 | 1)


@pytest.mark.parametrize(
    ("compression_type", "extra", "module"),
    [(CompressionType.LZ4, "lz4", "lz4.frame"), (CompressionType.ZSTD, "zstd", "zstandard")],
)
def test_a_missing_library_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, compression_type: CompressionType, extra: str, module: str
) -> None:
    packed = compress(b"body", compression_type)
    compression._library.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    try:
        with pytest.raises(CodecMissingError, match=rf"rocketmq-trio\[{extra}\]"):
            decompress(packed, compression_type.sys_flag_bits)
        with pytest.raises(CodecMissingError, match=rf"rocketmq-trio\[{extra}\]"):
            compress(b"body", compression_type)
        assert decompress(compress(b"body"), 0x300) == b"body"
    finally:
        monkeypatch.undo()
        compression._library.cache_clear()
    assert decompress(packed, compression_type.sys_flag_bits) == b"body"


def test_a_huge_zstd_claim_allocates_nothing() -> None:
    # A frame header that claims 2**62 bytes of content and holds one block of one byte.
    frame = (
        b"\x28\xb5\x2f\xfd" + bytes([0xC0, 0x00]) + struct.pack("<Q", 1 << 62) + b"\x09\x00\x00x"
    )
    with pytest.raises(RemoteProtocolError):
        decompress(frame, 0x200)
