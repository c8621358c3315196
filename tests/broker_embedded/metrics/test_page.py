"""Prometheus' text format, as its own parser reads it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rocketmq_sdk.broker_embedded.metrics.page import STEP, Kind, Page, Row, escaped, number
from rocketmq_sdk.broker_embedded.tables.figures import Distribution
from support.turns import counted_turns

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.metrics.page import Samples


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_may_be_a_label(text: str) -> None:
    (family,) = text_string_to_metric_families(f'a{{b="{escaped(text)}"}} 1\n')
    assert family.samples[0].labels == {"b": text}


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (1 << 60, str(1 << 60)), (0.5, "0.5"), (math.inf, "+Inf"), (-math.inf, "-Inf")],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text
    assert number(math.nan) == "NaN"


async def written(*rows: Row) -> str:
    page = Page({"cluster": "c"})
    for row in rows:
        await page.write(row)
    page.finish()
    return b"".join(page.parts).decode()


async def test_histograms_add_up() -> None:
    times = Distribution((1, 5))
    for value in (0.5, 1, 3, 7, 7):
        times.add(value)
    row = Row("took", Kind.HISTOGRAM, "How long.", ("who",), lambda: [(("me",), times)])
    (family,) = text_string_to_metric_families(await written(row))
    assert family.type == "histogram"
    assert family.documentation == "How long."
    assert {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples} == {
        ("took_bucket", "1.0"): 2,
        ("took_bucket", "5.0"): 3,
        ("took_bucket", "+Inf"): 5,
        ("took_sum", None): 18.5,
        ("took_count", None): 5,
    }
    assert all(sample.labels["who"] == "me" for sample in family.samples)


async def test_a_metric_without_samples_is_left_out_and_an_overflow_is_marked() -> None:
    none = Row("none", Kind.GAUGE, "Nothing.", (), lambda: ())
    some = Row(
        "some_total",
        Kind.COUNTER,
        "Some.",
        ("a", "b"),
        lambda: [(("x", ""), 1), (None, 2)],
        ("fixed", "yes"),
    )
    (family,) = text_string_to_metric_families(await written(none, some))
    assert [sample.labels for sample in family.samples] == [
        {"cluster": "c", "fixed": "yes", "a": "x"},
        {"cluster": "c", "fixed": "yes", "otel_metric_overflow": "true"},
    ]


async def test_writing_many_samples_gives_the_loop_back(autojump_clock: MockClock) -> None:
    def samples() -> Samples:
        for index in range(1000):
            autojump_clock.jump(STEP / 10)
            yield (str(index),), index

    row = Row("many", Kind.GAUGE, "Many.", ("n",), samples)
    page = Page({"cluster": "c"})
    async with counted_turns() as turns:
        await page.write(row)
    page.finish()
    assert turns() > 50
    assert len(page.parts) > 50
    (family,) = text_string_to_metric_families(b"".join(page.parts).decode())
    assert len(family.samples) == 1000
