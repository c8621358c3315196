"""The pages about Spark hold the tables that the code is made of."""

from __future__ import annotations

from rocketmq_sdk.spark import schema
from rocketmq_sdk.spark.options import table
from rocketmq_sdk.spark.write import input_schema
from support.paths import DOCS


def test_every_option_and_column_is_in_the_page_as_the_code_says() -> None:
    page = (DOCS / "spark.md").read_text("utf-8")
    assert table.page() in page
    assert input_schema.page() in page
    for column in schema.COLUMNS:
        assert f"| `{column.name}` | `{column.type}` | {column.meaning} |\n" in page


def test_every_option_of_the_old_connectors_page_exists() -> None:
    for name in ("spark_from_kafka.md", "spark_from_old_connector.md"):
        assert "`namesrvAddr`" in (DOCS / name).read_text("utf-8")
