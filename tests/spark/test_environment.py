"""A session in an environment that is not activated, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk import Message
from support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.processes import BrokerProcess

SESSION = """
import sys
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from rocketmq_sdk.spark import register

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.warehouse.dir", sys.argv[3])
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
register(spark)
options = {"namesrvAddr": sys.argv[1], "subscribe": sys.argv[2]}
print("rows", spark.read.format("rocketmq").options(**options).load().count())
spark.sql("CREATE TABLE kept USING rocketmq")
try:
    spark.table("kept").count()
except AnalysisException as error:
    print("refused", "CREATE TEMPORARY VIEW" in str(error))
spark.stop()
"""


@pytest.mark.xdist_group("spark")
@pytest.mark.real_time
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_workers_run_with_the_python_that_registers(
    broker: BrokerProcess, fill: Callable[..., None], topic: str, tmp_path: Path
) -> None:
    """And a table, for which Spark keeps no options, is refused with the way out."""
    fill([Message(topic, b"%d" % number) for number in range(10)])
    here = Path(sys.executable).parent
    path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != here]
    dropped = ("PYSPARK_PYTHON", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        [sys.executable, "-c", SESSION, broker.namesrv, topic, str(tmp_path / "warehouse")],
        env={**environment, "PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows 10" in done.stdout
    assert "refused True" in done.stdout
