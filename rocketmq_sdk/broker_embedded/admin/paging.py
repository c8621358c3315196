"""Tables that peers fetch in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.protocol.bodies.topics import DataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

_Value = TypeVar("_Value")


def page(
    table: Mapping[str, _Value],
    version: DataVersion,
    *,
    start: int | None,
    asked_version: str | None,
    limit: int | None,
    most: int,
) -> dict[str, _Value]:
    """One page of a table for peers that fetch it in parts.

    Peers that name no start get the whole table. A peer that names another version than
    the current one begins anew, because its earlier parts are of no use.
    """
    if start is None:
        return dict(table)
    if asked_version:
        try:
            start = start if DataVersion.decode(asked_version.encode()) == version else 0
        except RemoteProtocolError as error:
            raise FieldError(
                f"the field dataVersion is {asked_version[:60]!r}, no version"
            ) from error
    count = most if limit is None or limit <= 0 else min(limit, most)
    names = list(table)[max(0, start) : max(0, start) + count]
    return {name: table[name] for name in names}
