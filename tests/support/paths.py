"""Where things lie in this repository, wherever a test that wants them lies."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rocketmq_sdk"
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
VECTORS = TESTS / "vectors"
"""Recorded bytes and answers of Apache's software."""
CODEC_VECTORS = VECTORS / "codec"
STORE_VECTORS = VECTORS / "store"
WIRE_VECTORS = VECTORS / "wire"
