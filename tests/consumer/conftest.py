"""What the tests of the consumer share."""

from __future__ import annotations

import pytest

from support.consuming import Collector


@pytest.fixture
def collector() -> Collector:
    """A listener that keeps what it gets."""
    return Collector()
