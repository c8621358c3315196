"""The columns of the source, and the check of a user's schema.

All columns may be null to Spark, whether they ever are or not, and stand in this order
unless the user's schema says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spelling import meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEDUP_PROPERTY: Final = "SPARK_DEDUP_ID"
"""The message property under which the sink writes the dedup id of a row."""


class SchemaError(ConfigurationError):
    """A schema has columns that do not exist or have other types.

    The text shows the right ones.
    """


@attrs.frozen
class Column:
    """One column of the source: its name, its type as DDL writes it, what it holds."""

    name: str
    type: str
    meaning: str


COLUMNS: Final[tuple[Column, ...]] = (
    Column("topic", "STRING", "topic"),
    Column("brokerName", "STRING", "name of the broker group that stores the message"),
    Column("queueId", "INT", "queue of the topic at this broker"),
    Column("queueOffset", "BIGINT", "offset in the queue"),
    Column(
        "messageId",
        "STRING",
        "address and position in the log of the broker (`offsetMsgId` in Java)",
    ),
    Column("uniqueKey", "STRING", "id that the producer set (`msgId` in Java); null without one"),
    Column("tags", "STRING", "tag; null without one"),
    Column("keys", "ARRAY<STRING>", "keys; null without any"),
    Column("body", "BINARY", "content, decompressed"),
    Column(
        "properties",
        "MAP<STRING,STRING>",
        "properties that users set; names that RocketMQ reserves are left out",
    ),
    Column("flag", "INT", "number that the producer set"),
    Column("bornTimestamp", "TIMESTAMP", "when the producer made the message"),
    Column("storeTimestamp", "TIMESTAMP", "when the broker stored it"),
    Column("bornHost", "STRING", "`address:port` of the producer"),
    Column("storeHost", "STRING", "`address:port` of the broker"),
    Column("reconsumeTimes", "INT", "how often its consumption has failed"),
    Column("dedupId", "STRING", "dedup id that the sink gave; null without one"),
)
BY_NAME: Final = {column.name: column for column in COLUMNS}
PROPERTIES: Final = "properties"


def ddl(columns: Iterable[Column]) -> str:
    """The schema of columns as Spark's DDL writes it."""
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def default_columns(*, include_properties: bool) -> tuple[Column, ...]:
    """What a read gives when the user names no schema."""
    return tuple(column for column in COLUMNS if include_properties or column.name != PROPERTIES)


def columns_of(given: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    """The columns that a user's schema names, in its order.

    `given` are names and types as DDL writes them.

    Names are matched without case. Raises `SchemaError` for a name that does not exist
    or comes twice, and for another type.
    """
    known = {column.name.lower(): column for column in COLUMNS}
    found: list[Column] = []
    for name, kind in given:
        column = known.get(name.lower())
        if column is None:
            hint = meant(name, known=[column.name for column in COLUMNS], most=1)
            raise SchemaError(
                f"the source has no column {name!r}{hint} Any of these may be chosen: "
                f"{ddl(COLUMNS)}"
            )
        if column.name != name:
            raise SchemaError(f"the column {name!r} is written {column.name!r}")
        if kind.upper().replace(" ", "") != column.type:
            right = ddl(known[other.lower()] for other, _ in given if other.lower() in known)
            raise SchemaError(
                f"the column {name} is {column.type}, not {kind}; the right schema is: {right}"
            )
        if column in found:
            raise SchemaError(f"the column {name} is named twice")
        found.append(column)
    if not found:
        raise SchemaError(f"the schema has no column; choose among: {ddl(COLUMNS)}")
    return tuple(found)
