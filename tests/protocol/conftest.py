"""Both JSON implementations, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.protocol.json import backend as json_backend

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["orjson", "stdlib"])
def json_mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test once with each JSON library."""
    if request.param == "orjson":
        pytest.importorskip("orjson")
    with json_backend.forced(request.param):
        yield request.param
