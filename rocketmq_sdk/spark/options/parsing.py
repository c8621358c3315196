"""The options of one reader or writer: parsing, and checks across options.

Nothing is asked of a cluster.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.spark.options.settings import SparkOptions
from rocketmq_sdk.spark.options.table import BY_NAME, OPTIONS, Option, OptionError, Use
from rocketmq_sdk.spark.options.values import Edge
from rocketmq_sdk.spelling import meant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.spark.plan.offsets import QueueKey

NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
_SPARKS_OWN: Final = frozenset(
    {"path", "checkpointlocation", "outputmode", "queryname", "triggerinterval", "mergeschema"}
)
_ELSEWHERE: Final[Mapping[str, str]] = {
    "nameserver": "namesrvAddr",
    "nameserveraddr": "namesrvAddr",
    "namesrv": "namesrvAddr",
    "bootstrap.servers": "namesrvAddr",
    "kafka.bootstrap.servers": "namesrvAddr",
    "kafka.group.id": "readGroup",
    "groupidprefix": "readGroup",
    "group": "readGroup",
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


def parse(
    options: Mapping[str, str], use: Use, *, environment: Mapping[str, str] | None = None
) -> SparkOptions:
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
        try:
            given[option.name] = option.parse(str(text))
        except ValueError as error:
            shown = "" if option.secret else f" {_short(str(text))}"
            raise OptionError(f"the option {option.name}{shown} cannot be used: {error}") from None
    address = (os.environ if environment is None else environment).get(NAMESRV_VARIABLE, "").strip()
    if not given and (use is not Use.SINK or not address):
        raise OptionError(
            "no option came along. Spark keeps none for tables of Python sources, so that CREATE "
            "TABLE ... USING rocketmq can be neither read nor written to; use CREATE TEMPORARY "
            "VIEW ... USING rocketmq OPTIONS (...) instead. A write that has a column topic needs "
            f"none where {NAMESRV_VARIABLE} is set in the driver's environment"
        )
    if "namesrvAddr" not in given:
        if not address:
            raise OptionError(
                f"give the option namesrvAddr, or set {NAMESRV_VARIABLE} in the driver's "
                "environment"
            )
        given["namesrvAddr"] = address
    _check(given, use)
    values = {
        option.attribute: given.get(option.name, option.default_value()) for option in OPTIONS
    }
    return SparkOptions(use=use, **values)


def _find(name: str, use: Use) -> Option | None:
    """The option of a name; None for what Spark adds on its own."""
    lowered = name.lower()
    option = BY_NAME.get(lowered)
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
        usable = [option.name for option in BY_NAME.values() if option.use & use]
        return meant(lowered, known=usable, most=1)
    return f"; did you mean {known}?"


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
        begin, end = given.get("startingTimestamp", 0), given.get("endingTimestamp")
        if end is not None and end < begin:
            raise OptionError(f"endingTimestamp {end} is before startingTimestamp {begin}")
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
    if "numPartitions" in given and "minPartitions" in given:
        raise OptionError(
            "numPartitions says how many tasks there are and minPartitions how many at least; "
            "give one of them"
        )
    if "maxBrokerAway" in given and given.get("onBrokerAway") != "skip":
        raise OptionError("maxBrokerAway only counts beside onBrokerAway=skip")
    least, most = given.get("minOffsetsPerTrigger"), given.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    if "batchBytes" in given and given["batchBytes"] > given.get(
        "maxMessageSize", BY_NAME["maxmessagesize"].default_value()
    ):
        raise OptionError(
            "batchBytes is above maxMessageSize; brokers take no batch that is larger than the "
            "largest body"
        )
    if "dedupBatch" in given and "dedupScope" not in given:
        raise OptionError("dedupBatch only counts beside dedupScope")
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


def overruled(settings: SparkOptions) -> list[str]:
    """Warnings about options that another one wins over, as with Kafka's source."""
    told: list[str] = []
    for side in ("starting", "ending"):
        names = [f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"]
        present = [
            name
            for name in names
            if getattr(settings, BY_NAME[name.lower()].attribute)
            not in (None, BY_NAME[name.lower()].default_value())
        ]
        told += [f"{name} does not count beside {present[0]}" for name in present[1:]]
    return told


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
