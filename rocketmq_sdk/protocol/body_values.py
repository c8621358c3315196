"""Values inside JSON bodies: how each type is written, and how leniently it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import BrokerData, QueueData
from rocketmq_sdk.protocol.header import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, Long
from rocketmq_sdk.protocol.header_json import text_of
from rocketmq_sdk.protocol.json.dialect import decode_json
from rocketmq_sdk.protocol.subscription import SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Callable


class Converter(NamedTuple):
    """How values of one type are written and read.

    `read` raises `ValueError`, `missing` makes the value of a missing member, `dialect`
    tells whether the type needs Apache's dialect.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    missing: Callable[[], object]
    dialect: bool


def _same(value: Any) -> Any:
    return value


def nothing() -> None:
    """What a missing member is when nothing else fits."""


def read_text(value: object) -> str:
    """A text; numbers and booleans become texts.

    Raises `ValueError` for objects and arrays.
    """
    if isinstance(value, dict | list):
        raise ValueError("not a text")
    return text_of(value)


def read_long(value: object) -> int:
    """A whole number of 64 bits, also as a text.

    Raises `ValueError` for anything else.
    """
    if isinstance(value, str) and len(value) > 40:
        raise ValueError("not a number")
    if not isinstance(value, int | float | str) or (
        isinstance(value, float) and not value.is_integer()
    ):
        raise ValueError("not a whole number")
    number = int(value)
    if not LONG_MIN <= number <= LONG_MAX:
        raise ValueError("not a 64-bit number")
    return number


def read_int(value: object) -> int:
    """A whole number of 32 bits, also as a text.

    Raises `ValueError` for anything else.
    """
    number = read_long(value)
    if not INT_MIN <= number <= INT_MAX:
        raise ValueError("not a 32-bit number")
    return number


def read_bool(value: object) -> bool:
    """A boolean, also as a number or a text. Raises `ValueError` for anything else."""
    if isinstance(value, str):
        return value.lower() in ("true", "1")
    if isinstance(value, int):
        return value != 0
    raise ValueError("not a boolean")


def read_float(value: object) -> float:
    """A finite number, also as a text. Raises `ValueError` for anything else."""
    if not isinstance(value, int | float | str):
        raise ValueError("not a number")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("not a number") from None
    if number - number != 0.0:
        raise ValueError("not a finite number")
    return number


def write_queue(queue: MessageQueue) -> dict[str, object]:
    """A queue as the value of a member."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def write_queue_key(queue: MessageQueue) -> tuple[tuple[str, object], ...]:
    """A queue as a key."""
    return ("brokerName", queue.broker_name), ("queueId", queue.queue_id), ("topic", queue.topic)


def read_queue(value: object) -> MessageQueue:
    """A queue out of a member or a key.

    A key is an object, or a text that holds the object's JSON (releases up to 5.3).

    Raises `ValueError` for anything else.
    """
    if isinstance(value, tuple):
        value = dict(value)
    elif isinstance(value, str):
        try:
            value = decode_json(value.encode("utf-8", "surrogatepass"))
        except RemoteProtocolError as error:
            raise ValueError(f"not a queue: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("not a queue")
    topic, broker_name, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
    return MessageQueue(
        "" if topic is None else read_text(topic),
        "" if broker_name is None else read_text(broker_name),
        0 if queue_id is None else read_int(queue_id),
    )


def write_queue_data(data: QueueData) -> dict[str, object]:
    """What one broker offers of a topic, as JSON."""
    return {
        "brokerName": data.broker_name,
        "perm": data.perm,
        "readQueueNums": data.read_queue_nums,
        "topicSysFlag": data.topic_sys_flag,
        "writeQueueNums": data.write_queue_nums,
    }


def read_queue_data(value: object) -> QueueData:
    """What one broker offers of a topic.

    Raises `ValueError` when a value is not of its type.
    """
    if not isinstance(value, dict):
        raise ValueError("not an object")
    numbers = [
        read_int(value.get(name) or 0)
        for name in ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    ]
    return QueueData(read_text(value.get("brokerName") or ""), *numbers)


def write_broker_data(data: BrokerData) -> dict[str, object]:
    """The addresses of a broker group, as JSON with integer keys."""
    members: dict[str, object] = {
        "brokerAddrs": data.broker_addrs,
        "brokerName": data.broker_name,
        "cluster": data.cluster,
        "enableActingMaster": data.enable_acting_master,
    }
    if data.zone_name is not None:
        members["zoneName"] = data.zone_name
    return members


def read_broker_data(value: object) -> BrokerData:
    """The addresses of a broker group.

    Raises `ValueError` when a value is not of its type.
    """
    addresses = value.get("brokerAddrs") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(addresses, dict | None):
        raise ValueError("not an object")
    zone_name = value.get("zoneName")
    return BrokerData(
        read_text(value.get("cluster") or ""),
        read_text(value.get("brokerName") or ""),
        {
            read_long(broker_id): read_text(address)
            for broker_id, address in (addresses or {}).items()
        },
        read_bool(value.get("enableActingMaster") or False),
        None if zone_name is None else read_text(zone_name),
    )


def read_subscription(value: object) -> SubscriptionData:
    """A subscription; the Go client writes the numbers of `codeSet` as texts.

    Raises `ValueError` when a value is not of its type.
    """
    if not isinstance(value, dict):
        raise ValueError("not an object")
    codes = value.get("codeSet")
    if isinstance(codes, list) and any(isinstance(code, str) for code in codes):
        value = {**value, "codeSet": [read_int(code) for code in codes]}
    try:
        return SubscriptionData.from_json(value)
    except FieldError as error:
        raise ValueError(str(error)) from None


def read_language(value: object) -> LanguageCode:
    """A language by name or number; an unknown one is OTHER."""
    if isinstance(value, str) and value in LanguageCode.__members__:
        return LanguageCode[value]
    if isinstance(value, int) and value in LanguageCode.__members__.values():
        return LanguageCode(value)
    return LanguageCode.OTHER


def _write_language(value: LanguageCode) -> str:
    return value.name


_LEAVES: Final[dict[object, Converter]] = {
    str: Converter(_same, read_text, str, False),
    int: Converter(_same, read_int, int, False),
    Long: Converter(_same, read_long, int, False),
    bool: Converter(_same, read_bool, bool, False),
    float: Converter(_same, read_float, float, False),
    object: Converter(_same, _same, nothing, True),
    LanguageCode: Converter(_write_language, read_language, nothing, False),
    MessageQueue: Converter(write_queue, read_queue, nothing, False),
    SubscriptionData: Converter(SubscriptionData.to_json, read_subscription, nothing, False),
    QueueData: Converter(write_queue_data, read_queue_data, nothing, False),
    BrokerData: Converter(write_broker_data, read_broker_data, nothing, True),
}


def leaf_converter(hint: object) -> Converter | None:
    """The converter of a simple type, or None."""
    return _LEAVES.get(hint)


def container_converter(origin: type, parts: list[Converter | None]) -> Converter:
    """The converter of `tuple[X, ...]`, `list[X]` or `dict[K, X]`."""
    if origin is dict:
        key, item = parts
        assert key is not None
        assert item is not None
        return _dict_converter(key, item)
    item = parts[0]
    assert item is not None
    write_item, read_item = item.write, item.read

    def write(values: Any) -> Any:
        return list(values) if write_item is _same else [write_item(value) for value in values]

    def read(values: object) -> object:
        if not isinstance(values, list):
            raise ValueError("not an array")
        return origin([read_item(value) for value in values if value is not None])

    return Converter(write, read, origin, item.dialect)


def _dict_converter(key: Converter, item: Converter) -> Converter:
    write_key = write_queue_key if key.write is write_queue else key.write
    read_key, write_item, read_item = key.read, item.write, item.read
    plain = write_key is _same and write_item is _same

    def write(values: Any) -> Any:
        return (
            values
            if plain
            else {write_key(name): write_item(value) for name, value in values.items()}
        )

    def read(values: object) -> object:
        if not isinstance(values, dict):
            raise ValueError("not an object")
        return {
            read_key(name): read_item(value) for name, value in values.items() if value is not None
        }

    return Converter(write, read, dict, key.read is not read_text or item.dialect)
