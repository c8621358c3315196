"""Operation of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.protocol.body import Body

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen
class KVTable(Body):
    """Names and texts."""

    table: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, object]) -> KVTable:
        """A table with each value as its text."""
        return cls({name: str(value) for name, value in table.items()})
