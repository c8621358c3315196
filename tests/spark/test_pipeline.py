"""The example pipeline: from the file through topics and streams to the dashboard."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.processes import BrokerProcess

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(400)]
PIPELINE = ROOT / "examples" / "spark_pipeline.py"


def test_the_result_equals_the_direct_computation(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="the plot needs the extra examples")
    spec = importlib.util.spec_from_file_location("spark_pipeline", PIPELINE)
    assert spec is not None
    assert spec.loader is not None
    pipeline = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pipeline)
    picture = tmp_path / "delays.png"
    means = pipeline.run(broker.namesrv, picture, spark)  # ends the process when a mean is wrong
    flights = sum(count for count, _ in means.values())
    assert flights == sum(count for count, _ in pipeline.direct(pipeline.flights_file()).values())
    assert picture.read_bytes().startswith(b"\x89PNG")
    told = capsys.readouterr().out
    assert f"{len(means)} means equal the direct computation" in told
    assert f"{len(pipeline.BROKEN)} rows are set aside in flights-dead-" in told
    assert "'no JSON': 2" in told
    assert "'no carrier or time': 2" in told
