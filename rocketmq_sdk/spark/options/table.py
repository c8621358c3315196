"""The options of the format as one table.

Parsing, checks, error texts and the page of the options all come from it.

Spark hands names over in any case and all values as text. Neither Spark nor trio is
needed here, and nothing is asked of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Flag, auto
from typing import Any, Final

import attrs

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.names import TOOLS_GROUP
from rocketmq_sdk.spark.options import values
from rocketmq_sdk.spark.plan.offsets import EARLIEST, LATEST

_MOST_TASKS: Final = 10_000
"""A task costs tens of milliseconds whatever it reads."""
_MOST_MESSAGES: Final = 65_536
"""Of one request; a message takes at least 91 bytes of it."""
_MOST_BYTES: Final = 16 * 1024 * 1024 - 64 * 1024
"""Limit of one request in bytes: a little below the brokers' frame limit.

They take frames of 16 MiB (`NettyDecoder.FRAME_MAX_LENGTH`), with headers and
properties.
"""


class OptionError(ConfigurationError):
    """An option that is unknown, invalid, or contradicts another one."""


class Use(Flag):
    """Where an option means something."""

    BATCH = auto()
    STREAM = auto()
    SINK = auto()
    SOURCE = BATCH | STREAM
    ALL = BATCH | STREAM | SINK


@attrs.frozen
class Option:
    """One option of the format.

    Its name, what it means, its default as users would write it (None: no default),
    where it counts, and how its text is parsed.
    """

    name: str
    meaning: str
    default: str | None
    use: Use
    parse: Callable[[str], Any]
    secret: bool = False

    @property
    def attribute(self) -> str:
        """The name in Python."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)

    def default_value(self) -> Any:
        """The default as a value; None: no default."""
        return None if self.default is None else self.parse(self.default)


_STARTS = "`earliest`, `latest` or offsets by queue, where -2 is earliest and -1 latest"
OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "namesrvAddr",
        "name servers, `host:port;host:port`; unset: `NAMESRV_ADDR` of the driver's environment",
        None,
        Use.ALL,
        values.addresses,
    ),
    Option("subscribe", "topics to read, separated by commas", None, Use.SOURCE, values.topics),
    Option(
        "subscribePattern",
        (
            "regular expression that matches whole topic names; system, retry and dead letter "
            "topics are left out"
        ),
        None,
        Use.SOURCE,
        values.pattern,
    ),
    Option(
        "assign", 'queues to read, `{"topic":{"broker":[0,1]}}`', None, Use.SOURCE, values.queues
    ),
    Option(
        "startingOffsets",
        f"where a new query begins: {_STARTS}; unset: latest for streams, earliest for batches",
        None,
        Use.SOURCE,
        values.places(EARLIEST),
    ),
    Option(
        "endingOffsets",
        "where a batch ends: `latest` or offsets by queue, where -1 is latest",
        "latest",
        Use.BATCH,
        values.places(LATEST),
    ),
    Option(
        "startingTimestamp",
        (
            "begin at the first message stored at or after this time; wins over "
            "`startingOffsetsByTimestamp` and `startingOffsets`"
        ),
        None,
        Use.SOURCE,
        values.moment,
    ),
    Option(
        "startingOffsetsByTimestamp",
        "the same by queue, in epoch milliseconds; wins over `startingOffsets`",
        None,
        Use.SOURCE,
        values.times,
    ),
    Option(
        "endingTimestamp",
        (
            "end before the first message stored at or after this time; wins over "
            "`endingOffsetsByTimestamp` and `endingOffsets`"
        ),
        None,
        Use.BATCH,
        values.moment,
    ),
    Option(
        "endingOffsetsByTimestamp",
        "the same by queue, in epoch milliseconds; wins over `endingOffsets`",
        None,
        Use.BATCH,
        values.times,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "what to do when no message is that late: `error`, or `latest` to begin at the end",
        "error",
        Use.SOURCE,
        values.one_of("error", "latest"),
    ),
    Option(
        "subExpression",
        "which messages the broker sends: tags like `a || b`, or a SQL92 expression",
        "*",
        Use.SOURCE,
        values.text,
    ),
    Option(
        "filterType",
        "what `subExpression` is: `TAG` or `SQL92`",
        "TAG",
        Use.SOURCE,
        values.one_of("TAG", "SQL92"),
    ),
    Option(
        "maxOffsetsPerTrigger",
        "most offsets of one batch, divided in proportion to what waits in the queues",
        None,
        Use.STREAM,
        values.whole(1),
    ),
    Option(
        "minOffsetsPerTrigger",
        "begin no batch before this many offsets wait, or `maxTriggerDelay` is over",
        None,
        Use.STREAM,
        values.whole(1),
    ),
    Option(
        "maxTriggerDelay",
        "longest wait for `minOffsetsPerTrigger`",
        "15m",
        Use.STREAM,
        values.duration,
    ),
    Option(
        "numPartitions",
        "number of tasks; unset: the parallelism of the session, or fewer for small reads",
        None,
        Use.SOURCE,
        values.whole(1, _MOST_TASKS),
    ),
    Option(
        "minPartitions",
        "least number of tasks, where the default would be fewer; excludes `numPartitions`",
        None,
        Use.SOURCE,
        values.whole(1, _MOST_TASKS),
    ),
    Option(
        "maxRecordsPerPartition",
        "most offsets of one task; there are as many tasks as that takes",
        None,
        Use.SOURCE,
        values.whole(1),
    ),
    Option(
        "includeProperties",
        "whether the column `properties` is there",
        "true",
        Use.SOURCE,
        values.boolean,
    ),
    Option(
        "failOnDataLoss",
        "fail when messages to be read are gone; false: log it and continue with what is there",
        "true",
        Use.SOURCE,
        values.boolean,
    ),
    Option(
        "onBrokerAway",
        (
            "what a stream does while a broker is away or does not answer: `wait` for it within "
            "`retryTimeout`, or `skip` it: its queues stand still and the others continue"
        ),
        "wait",
        Use.STREAM,
        values.one_of("wait", "skip"),
    ),
    Option(
        "maxBrokerAway",
        "how long `onBrokerAway=skip` bears a broker that is away; unset: for ever",
        None,
        Use.STREAM,
        values.duration,
    ),
    Option(
        "retryTimeout",
        "how long a failed request to the cluster is repeated",
        "120s",
        Use.ALL,
        values.duration,
    ),
    Option(
        "offsetRefreshInterval",
        "maximum age of the queue ends with which a stream plans",
        "50ms",
        Use.STREAM,
        values.duration,
    ),
    Option(
        "pullBatchSize",
        "most messages of one pull; brokers have limits of their own",
        "1024",
        Use.SOURCE,
        values.whole(1, _MOST_MESSAGES),
    ),
    Option(
        "readGroup",
        (
            "group that pulls name, for the cluster's access control; where brokers do not make "
            "groups by themselves it must exist"
        ),
        TOOLS_GROUP,
        Use.SOURCE,
        values.group,
    ),
    Option("consumerGroup", "group for `commitOffsetsToBroker`", None, Use.STREAM, values.group),
    Option(
        "commitOffsetsToBroker",
        (
            "write completed offsets to the broker for tools to look at; never read back, needs "
            "`consumerGroup`"
        ),
        "false",
        Use.STREAM,
        values.boolean,
    ),
    Option(
        "topic",
        "topic to write to; wins over the column `topic`",
        None,
        Use.SINK,
        values.topic_to_send_to,
    ),
    Option(
        "producerGroup", "group under which messages are sent", "SPARK_SINK", Use.SINK, values.group
    ),
    Option(
        "batchSize",
        "most messages of one request; 1 sends each alone",
        "256",
        Use.SINK,
        values.whole(1, _MOST_MESSAGES),
    ),
    Option(
        "batchBytes",
        "most bytes of bodies and properties of one request",
        "512k",
        Use.SINK,
        values.size(_MOST_BYTES),
    ),
    Option(
        "maxMessageSize",
        (
            "largest body, before it is compressed; may be raised to the brokers' `maxMessageSize` "
            "less 64k, which are for properties"
        ),
        "4032k",
        Use.SINK,
        values.size(_MOST_BYTES),
    ),
    Option(
        "linger", "how long rows wait for others of their queue", "10ms", Use.SINK, values.duration
    ),
    Option(
        "onBadRow",
        "what to do with a row that cannot be a message: `fail` the task, or `skip` and count it",
        "fail",
        Use.SINK,
        values.one_of("fail", "skip"),
    ),
    Option(
        "dedupScope",
        (
            "part of the rows' dedup ids, for two writes in one `foreachBatch`; outside of a "
            "streaming query it needs `dedupBatch`"
        ),
        None,
        Use.SINK,
        values.text,
    ),
    Option(
        "dedupBatch",
        "which batch of `dedupScope` this is, for example the number that `foreachBatch` gives",
        None,
        Use.SINK,
        values.text,
    ),
    Option("accessKey", "access key of the cluster's access control", None, Use.ALL, values.text),
    Option(
        "secretKey",
        "secret key that belongs to the access key",
        None,
        Use.ALL,
        values.text,
        secret=True,
    ),
    Option(
        "securityToken",
        "security token that belongs to the access key",
        None,
        Use.ALL,
        values.text,
        secret=True,
    ),
    Option(
        "credentialsFile",
        "properties file with accessKey, secretKey and securityToken, on every machine",
        None,
        Use.ALL,
        values.text,
    ),
    Option(
        "credentialsEnv",
        (
            "prefix of environment variables `…_ACCESS_KEY`, `…_SECRET_KEY` and "
            "`…_SECURITY_TOKEN`, "
            "on every machine"
        ),
        None,
        Use.ALL,
        values.text,
    ),
    Option("tls", "use TLS", "false", Use.ALL, values.boolean),
    Option(
        "tlsCaFile",
        "file of certificates to trust, on every machine; unset: those of the system",
        None,
        Use.ALL,
        values.text,
    ),
    Option(
        "tlsCertFile",
        "file with the client's certificate, on every machine",
        None,
        Use.ALL,
        values.text,
    ),
    Option(
        "tlsKeyFile",
        "file with the key of the client's certificate, on every machine",
        None,
        Use.ALL,
        values.text,
    ),
    Option(
        "tlsCheckHostname",
        "whether the broker's certificate must match the host name used to reach it",
        "true",
        Use.ALL,
        values.boolean,
    ),
    Option("namespace", "namespace of topics and groups", None, Use.ALL, values.text),
)
BY_NAME: Final[Mapping[str, Option]] = {option.name.lower(): option for option in OPTIONS}


def page() -> str:
    """The table of the documentation."""
    lines = ["| option | default | where | meaning |", "|---|---|---|---|"]
    where = {Use.BATCH: "batch", Use.STREAM: "stream", Use.SINK: "sink"}
    for option in OPTIONS:
        places = (
            "all"
            if option.use == Use.ALL
            else ", ".join(text for single, text in where.items() if single & option.use)
        )
        default = "-" if option.default is None else f"`{option.default}`"
        meaning = option.meaning.replace("|", chr(92) + "|")
        lines.append(f"| `{option.name}` | {default} | {places} | {meaning} |")
    return "\n".join(lines) + "\n"
