"""A program that uses credentials in every way Spark is told about them, while Spark logs all it can: `python -m support.spark_secrets ORDER`."""

import json
import sys
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException


def main() -> None:
    """Write, read, fail and stream; print what a user would look at."""
    from rocketmq_sdk.spark import local_session

    order: dict[str, Any] = json.loads(sys.argv[1])
    options, topic = {"namesrvAddr": order["namesrv"], **order["secrets"]}, order["topic"]
    spark = local_session(
        2, spark__eventLog__enabled="true", spark__eventLog__dir=order["directory"], spark__eventLog__compress="false", spark__driver__memory="768m",
        spark__sql__shuffle__partitions=1,
    )  # fmt: skip
    spark.sparkContext.setLogLevel("DEBUG")
    rows = spark.range(100).selectExpr("cast(id as string) as body")
    rows.write.format("rocketmq").options(topic=topic, **options).mode("append").save()
    read = spark.read.format("rocketmq").options(subscribe=topic, **options)
    frame = read.load()
    frame.explain(mode="extended")
    print(frame.count(), "rows")
    with suppress(PySparkException):
        rows.write.format("rocketmq").options(topic=topic + "-missing", retryTimeout="1s", autoCreateTopics="no", **options).mode("append").save()
    with suppress(PySparkException):
        print(read.option("subExpression", "a = ").option("filterType", "SQL92").load().count())
    stream = spark.readStream.format("rocketmq").options(subscribe=topic, startingOffsets="earliest", **options).load().select("body")
    writer = stream.writeStream.format("rocketmq").options(topic=topic + "-copy", **options)
    query = writer.option("checkpointLocation", order["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(extended=True)
    print(query.lastProgress, query.status)
    # Spark logs statements themselves at DEBUG, so this one names the variables with the keys.
    spark.sql(f"CREATE TEMPORARY VIEW v USING rocketmq OPTIONS (namesrvAddr '{order['namesrv']}', subscribe '{topic}', credentialsEnv 'KEYS')")
    print(spark.sql("SELECT count(*) FROM v").collect())
    spark.stop()


if __name__ == "__main__":
    main()
