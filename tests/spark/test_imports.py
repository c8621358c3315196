"""What the parts of the package need: options, schemas, offsets and plans neither Spark
nor trio, its front door nothing at all.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PURE = [
    "plan.offsets",
    "plan.ranges",
    "plan.limits",
    "plan.loss",
    "options.values",
    "options.table",
    "options.parsing",
    "schema",
    "write.input_schema",
]
BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
{code}
"""


def run(code: str, blocked: set[str]) -> subprocess.CompletedProcess[str]:
    program = BLOCK.format(blocked=blocked, code=code)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.real_time
def test_planning_needs_neither_spark_nor_trio() -> None:
    code = "\n".join(f"import rocketmq_sdk.spark.{name}" for name in PURE)
    done = run(code + "\nimport rocketmq_sdk.spark", {"pyspark", "trio", "pyarrow"})
    assert done.returncode == 0, done.stderr


@pytest.mark.real_time
def test_a_batch_of_a_stream_is_committed_without_what_only_tasks_need() -> None:
    """Spark starts a process for it, again and again."""
    done = run("import rocketmq_sdk.spark.write.writer", {"pyarrow", "trio"})
    assert done.returncode == 0, done.stderr


@pytest.mark.real_time
@pytest.mark.parametrize("missing", ["pyarrow", "trio"])
def test_what_a_worker_lacks_is_told_with_the_remedy(missing: str) -> None:
    code = (
        "from rocketmq_sdk.spark.source import RocketMQDataSource as S; S({'namesrvaddr': 'h:1', "
        "'subscribe': 'T'}).reader(None)"
    )
    done = run(code, {missing})
    assert done.returncode == 1
    assert f"the format rocketmq needs {missing}, which this Python lacks" in done.stderr
    assert "install rocketmq-trio[spark]" in done.stderr


@pytest.mark.real_time
def test_the_module_that_spark_finds_by_itself_imports_without_us() -> None:
    code = "import pyspark_rocketmq as m\nassert m.DefaultSource.name() == 'rocketmq'\n"
    code += "try: m.DefaultSource({}).schema()\nexcept ImportError as error: print(error)"
    done = run(code, {"rocketmq_sdk"})
    assert done.returncode == 0, done.stderr
    assert "cannot be loaded" in done.stdout
    assert "install rocketmq-trio[spark]" in done.stdout
