"""A pipeline on real data, from flights to a dashboard of mean delays.

flights -> topic -> streaming mean of delays -> topic -> dashboard
                 -> rows that are no flights -> topic of dead letters -> dashboard

    python examples/spark_pipeline.py                      # starts a broker of its own
    python examples/spark_pipeline.py --namesrv host:9876  # uses a cluster

Needs `pip install 'rocketmq-trio[examples]'`. Every flight becomes a message (sink), a
stream computes the mean arrival delay by carrier and hour in complete mode and writes
all means after each batch to a result topic (sink), which is read back: the last row of
each key counts. Some messages in between are no flights: a second stream sets them
aside in a topic of their own, with the reason and the place where they were read. What
comes out must equal what a plain loop over the file computes.
"""

import argparse
import csv
import gzip
import io
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as f

from rocketmq_sdk.spark import lag, local_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BROKEN = ["no JSON", '{"carrier":"UA"', "{}", '{"carrier":null,"time_hour":"2013-01-01T10:00:00Z"}']
"""What a producer with a defect sends between the flights."""
FLIGHT = "carrier STRING, time_hour STRING, arr_delay STRING"
NOT_READ = "not_read"
"""The field in which Spark puts a text that is no JSON; the others are null then."""
Key = tuple[str, str]
Means = dict[Key, tuple[int, float]]
"""By carrier and hour (UTC): flights that arrived, and their mean delay in minutes."""


@contextmanager
def broker() -> Iterator[str]:
    """A name server and a broker in a child process, in memory.

    Yields the address of the name server.
    """
    command = [
        sys.executable,
        "-m",
        "rocketmq_sdk",
        "broker",
        "--namesrv-listen",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
        "--store",
        ":memory:",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = re.match(r"ready: name server (\S+),", line)
            if ready is None:
                raise RuntimeError(f"the broker did not start: {line!r}")
            yield ready[1]
        finally:
            process.terminate()


def flights_file() -> Path:
    """The flights that come with the package."""
    return Path(str(resources.files("rocketmq_sdk.cli") / "data" / "flights-2013-01.csv.gz"))


def direct(path: Path) -> Means:
    """The means by a plain loop over the file."""
    sums: dict[Key, list[int]] = {}
    with io.TextIOWrapper(gzip.open(path), newline="") as text:
        for row in csv.DictReader(text):
            if row["arr_delay"] != "NA":
                entry = sums.setdefault((row["carrier"], row["time_hour"]), [0, 0])
                entry[0] += 1
                entry[1] += int(row["arr_delay"])
    return {key: (count, total / count) for key, (count, total) in sums.items()}


def publish(spark: "SparkSession", path: Path, target: dict[str, str]) -> int:
    """Every flight becomes a message, and so does every broken row."""
    broken = spark.range(len(BROKEN)).select(
        f.element_at(f.array(*map(f.lit, BROKEN)), (f.col("id") + 1).cast("int")).alias("body")
    )
    broken.write.format("rocketmq").options(**target).mode("append").save()
    flights = spark.read.csv(str(path), header=True).repartition(2)
    flights.select(
        f.to_json(f.struct("carrier", "time_hour", "arr_delay")).alias("body"),
        f.col("carrier").alias("tags"),
        f.array(f.coalesce("tailnum", f.lit("unknown"))).alias("keys"),
    ).write.format("rocketmq").options(**target).mode("append").save()
    return flights.count()


def is_flight() -> "Column":
    """Whether a message holds what the means need."""
    found = f.col("flight.carrier").isNotNull() & f.col("flight.time_hour").isNotNull()
    return f.coalesce(found, f.lit(False))


def compute(
    spark: "SparkSession", source: dict[str, str], target: dict[str, str], checkpoint: str
) -> None:
    """The stream from topic to topic.

    Returns when everything that is there was read.
    """
    stream = (
        spark.readStream.format("rocketmq")
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="9000", **source)
        .load()
    )
    delay = f.when(f.col("arr_delay") != "NA", f.col("arr_delay").cast("int"))
    flights = with_flights(stream).where(is_flight()).select("flight.*")
    means = (
        flights.groupBy("carrier", "time_hour")
        .agg(f.count(delay).alias("flights"), f.avg(delay).alias("mean"))
        .where("flights > 0")
    )
    rows = means.select(
        f.to_json(f.struct("carrier", "time_hour", "flights", "mean")).alias("body"),
        f.col("carrier").alias(
            "shardingKey"
        ),  # one queue for a carrier, so that the last row of a key is the newest
    )
    writer = rows.writeStream.format("rocketmq").options(**target).outputMode("complete")
    finish(writer, checkpoint)


def set_aside(
    spark: "SparkSession", source: dict[str, str], target: dict[str, str], checkpoint: str
) -> None:
    """What is no flight goes to a topic of dead letters, with reason and place."""
    stream = (
        spark.readStream.format("rocketmq").options(startingOffsets="earliest", **source).load()
    )
    is_json = f.col(f"flight.{NOT_READ}").isNull()
    reason = f.when(is_json, "no carrier or time").otherwise("no JSON")
    place = {"queue": "queueId", "offset": "queueOffset", "broker": "brokerName"}
    named = [f.lit("reason"), reason]
    for name, column in place.items():
        named += [f.lit(name), f.col(column).cast("string")]
    letters = (
        with_flights(stream)
        .where(~is_flight())
        .select("body", f.lit("dead").alias("tags"), f.create_map(*named).alias("properties"))
    )
    finish(letters.writeStream.format("rocketmq").options(**target), checkpoint)


def with_flights(stream: "DataFrame") -> "DataFrame":
    """Messages with the flight that is in them."""
    text, fields = f.col("body").cast("string"), f"{FLIGHT}, {NOT_READ} STRING"
    return stream.withColumn(
        "flight", f.from_json(text, fields, {"columnNameOfCorruptRecord": NOT_READ})
    )


def finish(writer: Any, checkpoint: str) -> None:
    """Run a stream until it has read everything that is there."""
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    told = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != told:
            told = progress["batchId"]
            print(
                f"  batch {told}: {progress['numInputRows']} messages, {lag(progress).total} left",
                flush=True,
            )
        time.sleep(0.2)
    query.awaitTermination()


def read_back(spark: "SparkSession", source: dict[str, str]) -> "DataFrame":
    """The newest row of each key."""
    result = spark.read.format("rocketmq").options(**source).load()
    row = f.from_json(
        f.col("body").cast("string"), "carrier STRING, time_hour STRING, flights INT, mean DOUBLE"
    )
    rows = result.select(row.alias("row"), "queueOffset").select("row.*", "queueOffset")
    newest = Window.partitionBy("carrier", "time_hour").orderBy(f.col("queueOffset").desc())
    return (
        rows.withColumn("age", f.row_number().over(newest))
        .where("age = 1")
        .drop("age", "queueOffset")
    )


def dead_letters(spark: "SparkSession", source: dict[str, str]) -> dict[str, int]:
    """How many rows were set aside, by reason."""
    letters = spark.read.format("rocketmq").options(**source).load()
    counted = letters.groupBy(f.col("properties")["reason"].alias("reason")).count()
    return {row.reason: row["count"] for row in counted.collect()}


def plot(means: Means, aside: dict[str, int], path: Path) -> None:
    """A dashboard: delays by hour, flights by carrier, what was set aside."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    flights: dict[str, int] = {}
    hours: dict[tuple[str, int], list[float]] = {}
    for (carrier, hour), (count, mean) in means.items():
        flights[carrier] = flights.get(carrier, 0) + count
        at = datetime.fromisoformat(hour.replace("Z", "+00:00")).astimezone(UTC).hour
        entry = hours.setdefault((carrier, at), [0.0, 0.0])
        entry[0] += count
        entry[1] += count * mean
    figure, (axes, bars) = pyplot.subplots(1, 2, figsize=(14, 5), width_ratios=(2, 1))
    for carrier in sorted(flights, key=lambda name: -flights[name])[:6]:
        points = sorted(
            (at, total / count) for (name, at), (count, total) in hours.items() if name == carrier
        )
        axes.plot(
            *zip(*points, strict=True), marker="o", label=f"{carrier} ({flights[carrier]} flights)"
        )
    axes.set(title="Mean arrival delay by hour of departure", xlabel="hour (UTC)", ylabel="minutes")
    axes.legend()
    carriers = sorted(flights, key=lambda name: flights[name])
    bars.barh(carriers, [flights[name] for name in carriers])
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(aside.items()))
    bars.set(title="Flights by carrier", xlabel=f"set aside: {told or 'nothing'}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(namesrv: str, picture: Path, spark: "SparkSession") -> Means:
    """The whole pipeline.

    Raises `SystemExit` when its result is not that of the plain loop.
    """
    run_id = uuid.uuid4().hex[:8]
    flights, results, dead = f"flights-{run_id}", f"delays-{run_id}", f"flights-dead-{run_id}"
    path = flights_file()
    print("publishing the flights", flush=True)
    count = publish(spark, path, {"namesrvAddr": namesrv, "topic": flights})
    print(f"  {count} flights are in {flights}\ncomputing means", flush=True)
    with tempfile.TemporaryDirectory() as checkpoint:
        compute(
            spark,
            {"namesrvAddr": namesrv, "subscribe": flights},
            {"namesrvAddr": namesrv, "topic": results},
            f"{checkpoint}/means",
        )
        set_aside(
            spark,
            {"namesrvAddr": namesrv, "subscribe": flights},
            {"namesrvAddr": namesrv, "topic": dead},
            f"{checkpoint}/dead",
        )
    expected = direct(path)
    deadline = (
        time.monotonic() + 60
    )  # a broker of Apache shows readers what a stream wrote a moment after it has acknowledged it
    while True:
        rows: list[Any] = read_back(spark, {"namesrvAddr": namesrv, "subscribe": results}).collect()
        means = {(row.carrier, row.time_hour): (row.flights, row.mean) for row in rows}
        wrong = {
            key
            for key in expected.keys() | means.keys()
            if key not in means or key not in expected or not _equal(means[key], expected[key])
        }
        aside = dead_letters(spark, {"namesrvAddr": namesrv, "subscribe": dead})
        if (not wrong and sum(aside.values()) == len(BROKEN)) or time.monotonic() > deadline:
            break
        time.sleep(1)
    if wrong:
        raise SystemExit(
            f"{len(wrong)} of {len(expected)} means differ from the direct computation, for "
            f"example {min(wrong)}"
        )
    print(f"  {len(means)} means equal the direct computation", flush=True)
    if sum(aside.values()) != len(BROKEN):
        raise SystemExit(f"{len(BROKEN)} rows are no flights, but set aside are {aside}")
    print(f"  {len(BROKEN)} rows are set aside in {dead}: {aside}\nplotting", flush=True)
    plot(means, aside, picture)
    print(f"  {picture}", flush=True)
    return means


def _equal(one: tuple[int, float], other: tuple[int, float]) -> bool:
    return one[0] == other[0] and abs(one[1] - other[1]) < 1e-9


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description="flights through topics and a stream of Spark, compared with a direct "
        "computation"
    )
    parser.add_argument(
        "--namesrv", metavar="HOST:PORT", help="use this name server instead of an embedded broker"
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=Path,
        default=Path("delays.png"),
        help="where the plot goes (default: delays.png)",
    )
    arguments = parser.parse_args()
    spark = local_session()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        if arguments.namesrv:
            run(arguments.namesrv, arguments.plot, spark)
        else:
            with broker() as namesrv:
                run(namesrv, arguments.plot, spark)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
