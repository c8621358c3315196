"""The page about metrics, the alerts and the board name what is exported."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from rocketmq_sdk import EmbeddedBroker
from rocketmq_sdk.broker_embedded.metrics import apache_rows, own_rows
from rocketmq_sdk.broker_embedded.metrics.page import Kind
from support.paths import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.metrics.page import Row

PLACE = ROOT / "examples/monitoring"
OF_PROMETHEUS = {"up"}
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PLACE / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PAGE = (DOCS / "metrics.md").read_text()


@pytest.fixture
async def rows() -> list[Row]:
    async with EmbeddedBroker(metrics=0) as broker:
        exporter = broker._exporter
        assert exporter is not None
        source = exporter._source
        assert source is not None
        return [*apache_rows.rows(source), *own_rows.rows(source, int)]


def exported(rows: list[Row]) -> set[str]:
    """The names of all samples."""
    return {
        f"{row.name}{ending}"
        for row in rows
        for ending in (("_bucket", "_sum", "_count") if row.kind is Kind.HISTOGRAM else ("",))
    }


def selectors(expression: Any) -> Iterator[tuple[str, list[str]]]:
    """The metrics that an expression asks for, with the labels that it chooses by."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name, [matcher.name for matcher in expression.matchers.matchers]
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs"):
        part = getattr(expression, name, None)
        if part is not None and not isinstance(part, str):
            yield from selectors(part)
    for part in getattr(expression, "args", None) or ():
        yield from selectors(part)


def check(expression: str, rows: list[Row]) -> None:
    """An expression parses, and its metrics and labels are exported."""
    found = list(selectors(promql_parser.parse(expression)))
    assert found, expression
    labels = {name: {*row.labels, *row.fixed[::2]} for row in rows for name in exported([row])}
    for name, chosen in found:
        assert name in labels or name in OF_PROMETHEUS, expression
        known = labels.get(name, set()) | {"cluster", "node_id", "node_type", "job", "le"}
        assert set(chosen) <= known, expression


async def test_alerts_parse_and_ask_for_what_is_exported(rows: list[Row]) -> None:
    for rule in ALERTS:
        check(rule["expr"], rows)
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)


async def test_the_page_has_every_alert_and_every_metric(rows: list[Row]) -> None:
    assert [rule["alert"] for rule in ALERTS if f"`{rule['alert']}`" not in PAGE] == []
    assert [rule["expr"] for rule in ALERTS if f"`{rule['expr']}`" not in PAGE] == []
    for row in rows:
        labels = ", ".join([*row.labels, *row.fixed[::2]]) or "-"
        line = f"| `{row.name}` | {row.kind.value} | {labels} | {row.text.rstrip('.')} |"
        assert line in PAGE
    named = set(re.findall(r"^\| `(\w+)` \| (?:gauge|counter|histogram)", PAGE, re.MULTILINE))
    assert named == {row.name for row in rows}


@pytest.mark.skipif(not (PLACE / "dashboard.json").exists(), reason="there is no board")
async def test_the_board_asks_for_what_is_exported(rows: list[Row]) -> None:
    board = json.loads((PLACE / "dashboard.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert len(panels) > 10
    for panel in panels:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m")
            check(re.sub(r'=~"\$\w+"', '=~".+"', expression), rows)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\b", json.dumps(board["panels"])))
    assert used <= variables


def lost(given: Any, kept: Any, place: str = "") -> list[str]:
    """What of a board Grafana's own model does not know, or reads as something else."""
    if isinstance(given, dict):
        assert isinstance(kept, dict), place
        return [
            each
            for name, part in given.items()
            for each in (
                lost(part, kept[name], f"{place}/{name}") if name in kept else [f"{place}/{name}"]
            )
        ]
    if isinstance(given, list):
        assert len(given) == len(kept), place
        pairs = enumerate(zip(given, kept, strict=True))
        return [each for number, pair in pairs for each in lost(*pair, f"{place}/{number}")]
    return [] if given == kept else [place]


def read_by_grafana(board: dict[str, Any]) -> list[str]:
    plugins.register_default_plugins()
    kept = JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(board)))
    return lost(board, json.loads(kept))


def test_grafanas_own_model_knows_all_of_the_board() -> None:
    board = json.loads((PLACE / "dashboard.json").read_text())
    assert read_by_grafana(board) == []
    panel = board["panels"][6]
    panel["fieldConfig"]["defaults"]["units"] = "s"
    panel["targets"][0]["expression"] = "up"
    board["refreshes"] = "10s"
    assert read_by_grafana(board) == [
        "/panels/6/fieldConfig/defaults/units",
        "/panels/6/targets/0/expression",
        "/refreshes",
    ]
