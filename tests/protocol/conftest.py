"""Both JSON implementations, one after the other."""

from collections.abc import Iterator

import pytest

from rocketmq_sdk.protocol import json_backend


@pytest.fixture(params=["orjson", "stdlib"])
def json_mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test once with each JSON library."""
    if request.param == "orjson":
        pytest.importorskip("orjson")
    with json_backend.forced(request.param):
        yield request.param
