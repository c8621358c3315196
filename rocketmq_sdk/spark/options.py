"""The options of the format: one table, from which parsing, checks, the texts of errors
and the page of the options come.

Spark hands names over in any case and all values as text. Neither Spark nor trio is
needed here, and nothing is asked of a cluster.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from enum import Flag, auto
from typing import Any, Final

import attrs

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark import option_values as values
from rocketmq_sdk.spark.offsets import EARLIEST, LATEST, QueueKey
from rocketmq_sdk.spark.option_values import Edge

NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
_MOST_TASKS: Final = 10_000
"""A task costs tens of milliseconds whatever it reads."""
_MOST_MESSAGES: Final = 65_536
"""Of one request; a message takes at least 91 bytes of it."""
_MOST_BYTES: Final = 16 * 1024 * 1024 - 64 * 1024
"""Brokers take frames of 16 MiB (`NettyDecoder.FRAME_MAX_LENGTH`), with headers and
properties.
"""


class OptionError(ConfigurationError):
    """An option that does not exist, cannot be what it says, or does not go with
    another one.
    """


class Use(Flag):
    """Where an option means something."""

    BATCH = auto()
    STREAM = auto()
    SINK = auto()
    SOURCE = BATCH | STREAM
    ALL = BATCH | STREAM | SINK


@attrs.frozen
class Option:
    """One option: its name, what it means, its default as users would write it (None:
    no default), where it counts, how its text is read.
    """

    name: str
    meaning: str
    default: str | None
    use: Use
    parse: Callable[[str], Any]
    secret: bool = False
    alias: str | None = None

    @property
    def attribute(self) -> str:
        """The name in Python."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)


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
            "regular expression that names of topics match as a whole; topics of the system, of "
            "retries and of dead letters are left out"
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
        "begin at the first message stored at or after this time; wins over the two below",
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
        "end before the first message stored at or after this time; wins over the two below",
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
        "when no message is that late: `error`, or `latest` to begin at the end",
        "error",
        Use.SOURCE,
        values.one_of("error", "latest"),
    ),
    Option(
        "subExpression",
        "which messages the broker sends: tags like `a || b`, or an expression of SQL92",
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
        "most offsets of one batch, shared among the queues by what waits in them",
        None,
        Use.STREAM,
        values.whole(1),
    ),
    Option(
        "minOffsetsPerTrigger",
        "begin no batch before so many offsets wait or `maxTriggerDelay` is over",
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
        (
            "number of tasks to aim at; unset: the parallelism of the session, or fewer for small "
            "reads"
        ),
        None,
        Use.SOURCE,
        values.whole(1, _MOST_TASKS),
        alias="minPartitions",
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
        "fail when messages to be read are gone; false: log it, go on with what is there",
        "true",
        Use.SOURCE,
        values.boolean,
    ),
    Option(
        "retryTimeout",
        "how long a request to the cluster is tried again",
        "120s",
        Use.ALL,
        values.duration,
    ),
    Option(
        "offsetRefreshInterval",
        "how old the ends of queues may be that a stream plans with",
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
    Option("consumerGroup", "group for `commitOffsetsToBroker`", None, Use.STREAM, values.text),
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
        "producerGroup", "group under which messages are sent", "SPARK_SINK", Use.SINK, values.text
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
        "a row that cannot be a message: `fail` the task, or `skip` and count it",
        "fail",
        Use.SINK,
        values.one_of("fail", "skip"),
    ),
    Option(
        "dedupScope",
        "first part of the rows' dedup ids, for two writes in one `foreachBatch`",
        None,
        Use.SINK,
        values.text,
    ),
    Option("accessKey", "access key of the cluster's access control", None, Use.ALL, values.text),
    Option("secretKey", "secret key to the access key", None, Use.ALL, values.text, secret=True),
    Option(
        "securityToken", "security token to the access key", None, Use.ALL, values.text, secret=True
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
    Option("tls", "speak TLS", "false", Use.ALL, values.boolean),
    Option(
        "tlsCaFile",
        "certificates to trust, on every machine; unset: those of the system",
        None,
        Use.ALL,
        values.text,
    ),
    Option(
        "tlsCertFile", "certificate of the client, on every machine", None, Use.ALL, values.text
    ),
    Option(
        "tlsKeyFile",
        "key of the client's certificate, on every machine",
        None,
        Use.ALL,
        values.text,
    ),
    Option(
        "tlsCheckHostname",
        "whether the broker's certificate must carry the name that it is asked under",
        "true",
        Use.ALL,
        values.boolean,
    ),
    Option("namespace", "namespace of topics and groups", None, Use.ALL, values.text),
)
BY_NAME: Final[Mapping[str, Option]] = {option.name.lower(): option for option in OPTIONS}
_ALIASES: Final[Mapping[str, Option]] = {
    option.alias.lower(): option for option in OPTIONS if option.alias is not None
}
_SPARKS_OWN: Final = frozenset(
    {"path", "checkpointlocation", "outputmode", "queryname", "triggerinterval", "mergeschema"}
)
_ELSEWHERE: Final[Mapping[str, str]] = {
    "nameserver": "namesrvAddr",
    "nameserveraddr": "namesrvAddr",
    "namesrv": "namesrvAddr",
    "bootstrap.servers": "namesrvAddr",
    "kafka.bootstrap.servers": "namesrvAddr",
    "kafka.group.id": "consumerGroup",
    "groupidprefix": "consumerGroup",
    "group": "consumerGroup",
    "includeheaders": "includeProperties",
    "maxrowspertrigger": "maxOffsetsPerTrigger",
    "topics": "subscribe",
    "tag": "subExpression",
    "tags": "subExpression",
    "pulltimeoutms": "retryTimeout",
    "kafkaconsumer.polltimeoutms": "retryTimeout",
    "fetchoffset.numretries": "retryTimeout",
    "fetchoffset.retryintervalms": "retryTimeout",
}


class Settings:
    """The values of all options, under their Python names; pickles, and shows no
    secret.
    """

    def __init__(self, use: Use, given: Mapping[str, Any]) -> None:
        self.use = use
        self._values = {
            option.attribute: given.get(option.name, _default(option)) for option in OPTIONS
        }

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        shown = {
            option.name: "***" if option.secret else self._values[option.attribute]
            for option in OPTIONS
            if self._values[option.attribute] != _default(option) and option.use & self.use
        }
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and (self.use, self._values) == (
            other.use,
            other._values,
        )

    def __hash__(self) -> int:
        return hash((self.use, repr(sorted(self._values.items(), key=lambda item: item[0]))))


def _default(option: Option) -> Any:
    return None if option.default is None else option.parse(option.default)


def parse(
    options: Mapping[str, str], use: Use, *, environment: Mapping[str, str] | None = None
) -> Settings:
    """The values of a reader's or writer's options.

    Raises `OptionError` for a name that does not exist, with the nearest one that does;
    for one that means nothing there; for a value that cannot be read; for values that
    contradict each other.
    """
    given: dict[str, Any] = {}
    for name, text in options.items():
        option = _find(name, use)
        if option is None:
            continue
        if option.name in given:
            raise OptionError(
                f"{option.name} and {option.alias} are the same option; give one of them"
            )
        try:
            given[option.name] = option.parse(str(text))
        except ValueError as error:
            shown = "" if option.secret else f" {_short(str(text))}"
            raise OptionError(f"the option {option.name}{shown} cannot be used: {error}") from None
    if "namesrvAddr" not in given:
        address = (os.environ if environment is None else environment).get(NAMESRV_VARIABLE, "")
        if not address.strip():
            raise OptionError(
                f"give the option namesrvAddr, or set {NAMESRV_VARIABLE} in the driver's "
                "environment"
            )
        given["namesrvAddr"] = address.strip()
    _check(given, use)
    return Settings(use, given)


def _find(name: str, use: Use) -> Option | None:
    """The option of a name; None for what Spark adds on its own."""
    lowered = name.lower()
    option = BY_NAME.get(lowered) or _ALIASES.get(lowered)
    if option is None:
        if lowered in _SPARKS_OWN:
            return None
        raise OptionError(f"there is no option {name!r}{_hint(lowered, use)}")
    if not option.use & use:
        raise OptionError(
            f"the option {option.name} means nothing {_WHERE[use]}; it counts {_wheres(option.use)}"
        )
    return option


_WHERE: Final[Mapping[Use, str]] = {
    Use.BATCH: "for batch reads",
    Use.STREAM: "for streaming reads",
    Use.SINK: "for writes",
}


def _wheres(use: Use) -> str:
    return " and ".join(text for single, text in _WHERE.items() if single & use)


def _hint(lowered: str, use: Use) -> str:
    known = _ELSEWHERE.get(lowered)
    if known is None:
        near = difflib.get_close_matches(
            lowered, [name for name, option in BY_NAME.items() if option.use & use], n=1, cutoff=0.6
        )
        known = BY_NAME[near[0]].name if near else None
    return "" if known is None else f"; did you mean {known}?"


def _check(given: Mapping[str, Any], use: Use) -> None:
    if use is not Use.SINK:
        chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
        if len(chosen) != 1:
            wrong = "none of them is there" if not chosen else f"there are {' and '.join(chosen)}"
            raise OptionError(
                f"give exactly one of subscribe, subscribePattern and assign; {wrong}"
            )
        if given.get("filterType") == "SQL92" and "subExpression" not in given:
            raise OptionError("filterType SQL92 needs subExpression with the expression")
        if use is Use.BATCH and given.get("startingOffsets") is Edge.LATEST:
            raise OptionError(
                "startingOffsets latest leaves nothing for a batch to read; use a stream, or "
                "earliest"
            )
        _check_assigned(given)
    if given.get("commitOffsetsToBroker") and "consumerGroup" not in given:
        raise OptionError(
            "commitOffsetsToBroker needs consumerGroup: a group of its own that nobody consumes "
            "with"
        )
    if "consumerGroup" in given and not given.get("commitOffsetsToBroker"):
        raise OptionError(
            "consumerGroup only says where commitOffsetsToBroker writes to; set that to true, or "
            "leave the group out"
        )
    if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
        raise OptionError("maxTriggerDelay only counts beside minOffsetsPerTrigger")
    least, most = given.get("minOffsetsPerTrigger"), given.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    if "batchBytes" in given and given["batchBytes"] > given.get(
        "maxMessageSize", _default(BY_NAME["maxmessagesize"])
    ):
        raise OptionError(
            "batchBytes is above maxMessageSize; brokers take no batch that is larger than the "
            "largest body"
        )
    _check_access(given)


def _check_assigned(given: Mapping[str, Any]) -> None:
    """Offsets by queue must be of queues that are read, where the options say which."""
    assigned: tuple[QueueKey, ...] | None = given.get("assign")
    topics: tuple[str, ...] | None = given.get("subscribe")
    for name in (
        "startingOffsets",
        "endingOffsets",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ):
        places = given.get(name)
        if isinstance(places, dict):
            foreign = [
                queue
                for queue in places
                if (assigned is not None and queue not in assigned)
                or (topics is not None and queue.topic not in topics)
            ]
            if foreign:
                raise OptionError(f"{name} has {min(foreign)}, which is not read")


def _check_access(given: Mapping[str, Any]) -> None:
    sources = [name for name in ("accessKey", "credentialsFile", "credentialsEnv") if name in given]
    if len(sources) > 1:
        raise OptionError(
            f"the access key is given in {len(sources)} ways, {' and '.join(sources)}; keep one"
        )
    if ("accessKey" in given) != ("secretKey" in given):
        raise OptionError("accessKey and secretKey go together")
    if "securityToken" in given and "accessKey" not in given:
        raise OptionError("securityToken needs accessKey and secretKey")
    if not given.get("tls"):
        for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsCheckHostname"):
            if name in given:
                raise OptionError(f"{name} needs tls set to true")
    if "tlsKeyFile" in given and "tlsCertFile" not in given:
        raise OptionError("tlsKeyFile needs tlsCertFile")


def overruled(settings: Settings) -> list[str]:
    """Warnings about options that another one wins over, as with Kafka's source."""
    told: list[str] = []
    for side in ("starting", "ending"):
        names = [f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"]
        present = [
            name
            for name in names
            if getattr(settings, BY_NAME[name.lower()].attribute)
            not in (None, _default(BY_NAME[name.lower()]))
        ]
        told += [f"{name} does not count beside {present[0]}" for name in present[1:]]
    return told


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
        names = f"`{option.name}`" + (f" (or `{option.alias}`)" if option.alias else "")
        default = "-" if option.default is None else f"`{option.default}`"
        lines.append(
            f"| {names} | {default} | {places} | {option.meaning.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
