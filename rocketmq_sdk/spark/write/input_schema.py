"""The columns that the sink takes, and the check of a DataFrame against them.

Neither Spark nor trio is needed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.spark import schema
from rocketmq_sdk.spark.schema import SchemaError
from rocketmq_sdk.spelling import meant

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen
class SinkColumn:
    """One column of the sink: its name, its allowed DDL types, and what it means."""

    name: str
    types: tuple[str, ...]
    meaning: str


SINK_COLUMNS: Final[tuple[SinkColumn, ...]] = (
    SinkColumn(
        "body",
        ("BINARY", "STRING"),
        "content; the only required column. Text is written as UTF-8",
    ),
    SinkColumn("topic", ("STRING",), "topic; the option `topic` wins; one of the two is needed"),
    SinkColumn("tags", ("STRING",), "tag"),
    SinkColumn(
        "keys",
        ("ARRAY<STRING>", "STRING"),
        "keys under which the message can be found; text is one key",
    ),
    SinkColumn(
        "properties",
        ("MAP<STRING,STRING>",),
        "properties; names that RocketMQ reserves are refused",
    ),
    SinkColumn(
        "shardingKey",
        ("STRING",),
        "rows of one key go to one queue, in their order within the task",
    ),
    SinkColumn(
        "delayLevel",
        ("INT",),
        (
            "delivered after the delay of this level, 1 to 18 (higher ones count as the last); 0 "
            "and "
            "null: at once"
        ),
    ),
    SinkColumn("deliverAt", ("TIMESTAMP",), "delivered at this moment; excludes `delayLevel`"),
    SinkColumn("flag", ("INT",), "a number for your own use"),
    SinkColumn(
        "dedupKey", ("STRING",), "dedup id of your own instead of the one that the sink makes"
    ),
)
_KNOWN: Final = {column.name: column for column in SINK_COLUMNS}
SINK_NAMES: Final = frozenset(_KNOWN)
_IGNORED: Final = frozenset(schema.BY_NAME) - frozenset(_KNOWN)
"""Columns of the source that the sink ignores.

So a topic can be copied without naming columns.
"""


def check_columns(given: Sequence[tuple[str, str]], *, topic_is_given: bool) -> tuple[str, ...]:
    """The columns that will be used; `given` are names and types as DDL writes them.

    Raises `SchemaError` for a column that neither the sink nor the source knows, a
    wrong type, and a missing body or topic.
    """
    used: list[str] = []
    for name, kind in given:
        column = _KNOWN.get(name)
        if column is None:
            if name in _IGNORED:
                continue
            hint = meant(name, known=_KNOWN, most=1)
            raise SchemaError(
                f"the sink has no column {name!r}{hint or '.'} It takes {', '.join(_KNOWN)}"
            )
        if kind.upper().replace(" ", "") not in column.types:
            raise SchemaError(
                f"the column {name} must be {' or '.join(column.types)} for the sink, not {kind}"
            )
        if name in used:
            raise SchemaError(f"the column {name} is there twice")
        used.append(name)
    if "body" not in used:
        raise SchemaError("the sink needs a column body (BINARY or STRING)")
    if "topic" not in used and not topic_is_given:
        raise SchemaError("say where to write to: with the option topic, or with a column topic")
    return tuple(used)


def page() -> str:
    """The table of the documentation."""
    lines = ["| column | type | meaning |", "|---|---|---|"]
    lines += [
        (
            f"| `{column.name}` | {' or '.join(f'`{kind}`' for kind in column.types)} | "
            f"{column.meaning} |"
        )
        for column in SINK_COLUMNS
    ]
    return "\n".join(lines) + "\n"
