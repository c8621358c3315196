"""A declarative pipeline that reads and writes topics, for `tools.spark_modes`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """
name: topics
storage: file://{storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""
FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
WHERE = {{"namesrvAddr": "{namesrv}"}}


@dp.table
def raw():
    given = {{**WHERE, "subscribe": "declared", "startingOffsets": "earliest"}}
    return spark.readStream.format("rocketmq").options(**given).load()


@dp.materialized_view
def by_tag():
    return spark.read.table("raw").groupBy("tags").count()


dp.create_sink("copy", "rocketmq", {{**WHERE, "topic": "declared-copy"}})


@dp.append_flow(target="copy")
def to_copy():
    return spark.readStream.table("raw").select("body", "tags")
"""
PATIENCE = 400


def run_pipeline(directory: Path, namesrv: str) -> None:
    """Run the pipeline once, as `spark-pipelines run` does, on what is there.

    Its catalog is kept beside it: Spark's own forgets the tables at the end of a run,
    and the next one finds their files in its way (LOCATION_ALREADY_EXISTS).

    Raises `AssertionError` with what it said when it fails.
    """
    (directory / "transformations").mkdir(exist_ok=True)
    (directory / "spark-pipeline.yml").write_text(SPEC.format(storage=directory / "storage"))
    (directory / "transformations" / "flows.py").write_text(FLOWS.format(namesrv=namesrv))
    kept = (
        *("--conf", "spark.sql.catalogImplementation=hive"),
        *("--conf", f"spark.sql.warehouse.dir={directory / 'warehouse'}"),
    )
    done = subprocess.run(
        [f"{os.environ['SPARK_HOME']}/bin/spark-pipelines", "run", *kept],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
