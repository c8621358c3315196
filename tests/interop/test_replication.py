"""Replication between brokers of both kinds.
`python -m tools.replication_exchange --messages 100000` does the same with more
messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.replication_exchange import apache_behind_ours, ours_behind_apache

if TYPE_CHECKING:
    from pathlib import Path

    from support import java

pytestmark = pytest.mark.both_releases


async def test_our_slave_copies_apaches_master_byte_by_byte(
    apache: java.ApacheCluster, tmp_path: Path
) -> None:
    assert await ours_behind_apache(apache, tmp_path / "slave", 1000) > 100_000


async def test_apaches_slave_copies_our_master_byte_by_byte_and_is_waited_for(
    tmp_path: Path,
) -> None:
    assert await apache_behind_ours(tmp_path, 1000, restart=False) > 100_000
