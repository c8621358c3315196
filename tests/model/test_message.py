"""What users send and receive."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any, get_type_hints

import pytest

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.message_arguments import epoch_milliseconds
from rocketmq_sdk.model.properties import RESERVED_NAMES, decode_properties, encode_properties
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.model.route import pack_host
from rocketmq_sdk.protocol.message_codec import decode_message
from support.compiled import is_compiled
from support.consuming import stored

NO_SETTER, NO_DELETER = "has no setter|is not writable", "has no deleter|is not writable"
"""What interpreted classes say, and compiled ones."""


def test_all_arguments_are_kept_and_written() -> None:
    message = Message(
        "T",
        b"body",
        tags="tag",
        keys=("k1", "k2"),
        properties={"a": "b"},
        sharding_key="s",
        delay_level=3,
        flag=-5,
        wait_store_ok=False,
    )
    assert (message.topic, message.body, message.tags, message.keys, message.sharding_key) == (
        "T",
        b"body",
        "tag",
        ("k1", "k2"),
        "s",
    )
    assert (message.delay_level, message.deliver_at_ms, message.flag, message.wait_store_ok) == (
        3,
        None,
        -5,
        False,
    )
    assert message.properties == {"a": "b"}
    assert decode_properties(message.property_text()) == {
        "a": "b",
        "KEYS": "k1 k2",
        "WAIT": "false",
        "TAGS": "tag",
        "__SHARDINGKEY": "s",
        "DELAY": "3",
    }
    assert message.property_text() is message.property_text()
    assert repr(message) == "Message(topic='T', body=4 bytes, tags='tag', keys=('k1', 'k2'))"


def test_defaults() -> None:
    message = Message("T", b"")
    assert message.property_text() == "WAIT\x01true\x02"
    assert message.properties == {}
    assert message.keys == ()
    assert repr(message) == "Message(topic='T', body=0 bytes)"


class _Tag(str, Enum):  # noqa: UP042 - as many programs have it
    RED = "red"


def test_members_of_enumerations_are_the_texts_that_they_are() -> None:
    red = _Tag.RED
    message = Message("T", b"x", tags=red, keys=[red], properties={red: red}, sharding_key=red)
    assert decode_properties(message.property_text()) == {
        **dict.fromkeys(["red", "KEYS", "TAGS", "__SHARDINGKEY"], "red"),
        "WAIT": "true",
    }
    texts = (message.tags, message.sharding_key, *message.keys, *message.properties)
    assert {type(text) for text in (*texts, *message.properties.values())} == {str}


def test_one_key_as_text() -> None:
    assert Message("T", b"x", keys="k").keys == ("k",)
    assert Message("T", b"x", keys=(name for name in "ab")).keys == ("a", "b")


@pytest.mark.parametrize("name", ["topic", "body", "tags", "keys", "properties", "is_plain"])
def test_messages_do_not_change(name: str) -> None:
    message = Message("T", b"x", properties={"a": "b"})
    with pytest.raises(AttributeError, match=f"{name!r} of .*({NO_SETTER})"):
        setattr(message, name, "y")
    with pytest.raises(AttributeError, match=f"{name!r} of .*({NO_DELETER})"):
        delattr(message, name)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        message.colour = "red"  # type: ignore[attr-defined]


def test_properties_are_a_copy_that_does_not_change() -> None:
    given = {"a": "b"}
    message = Message("T", b"x", properties=given)
    given["c"] = "d"
    assert message.properties == {"a": "b"}
    with pytest.raises(TypeError):
        message.properties["e"] = "f"  # type: ignore[index]


def test_bodies_are_copied_bytes() -> None:
    body = bytearray(b"abc")
    message = Message("T", body)  # type: ignore[arg-type]
    body[0] = 0
    assert message.body == b"abc"
    assert Message("T", memoryview(b"abc")[1:]).body == b"bc"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"body": "text"}, "the body is str, not bytes"),
        ({"body": 5}, "the body is int, not bytes"),
        ({"properties": {"": "v"}}, "blank name or value"),
        ({"properties": {" ": "v"}}, "blank name or value"),
        ({"properties": {"n": ""}}, "blank name or value"),
        ({"properties": {"n": "\t"}}, "blank name or value"),
        ({"properties": {"n": "a\x01b"}}, "separate properties"),
        ({"properties": {"n\x02": "b"}}, "separate properties"),
        ({"properties": {"n": 5}}, "'n', 5 is not a text"),
        ({"tags": "a\x02b"}, "the tag 'a"),
        ({"keys": ["a", "b\x01"]}, "the key 'b"),
        ({"keys": [1]}, "the key 1 is not a text"),
        ({"sharding_key": "\x02"}, "the sharding key"),
        ({"delay_level": 1, "deliver_at": 1_900_000_000_000}, "exclude each other"),
        ({"delay_level": -1}, "delay_level is -1"),
        ({"delay_level": 2**31}, "delay_level is 2147483648"),
        ({"flag": 2**31}, "does not fit 32 bits"),
        ({"flag": -(2**31) - 1}, "does not fit 32 bits"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),
        ({"deliver_at": 1.5}, "no point in time"),
        ({"deliver_at": True}, "no point in time"),
    ],
)
def test_what_is_not_acceptable_is_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Message("T", **({"body": b"x"} | arguments))


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_reserved_properties(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is reserved"):
        Message("T", b"x", properties={name: "v"})


def test_delivery_time() -> None:
    moment = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    message = Message("T", b"x", deliver_at=moment)
    assert message.deliver_at_ms == 1893492000000
    assert "TIMER_DELIVER_MS\x011893492000000\x02" in message.property_text()
    assert epoch_milliseconds(5) == 5
    assert epoch_milliseconds(datetime(1970, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)) == 2


def test_delay_level_0_is_no_delay() -> None:
    assert "DELAY" not in Message("T", b"x", delay_level=0).property_text()


def test_subclasses_work() -> None:
    class Order(Message):
        pass

    assert Order("T", b"x", tags="t").tags == "t"


class _Order(Message):
    topic = "orders"

    def __new__(cls, _number: int) -> _Order:
        return super().__new__(cls)

    def __init__(self, number: int) -> None:
        super().__init__(self.topic, b"%d" % number, properties={"a": "b"})
        self.number = number


class _Slotted(Message):
    __slots__ = ("__number", "unset")

    def __init__(self, number: int) -> None:
        super().__init__("orders", b"%d" % number, tags="t")
        self.__number = number

    @property
    def number(self) -> int:
        return self.__number


@pytest.mark.parametrize("kind", [_Order, _Slotted])
def test_copies_for_producers_have_what_a_subclass_adds(kind: type[_Order | _Slotted]) -> None:
    order = kind(5)
    more = order.with_more("x\x01y\x02")
    assert type(more) is kind
    assert (more.topic, more.body, more.number) == ("orders", b"5", 5)
    assert more.property_text() == f"{order.property_text()}x\x01y\x02"
    assert "x" not in decode_properties(order.property_text())


@pytest.mark.parametrize("name", ["topic", "body", "tags", "keys", "is_plain", "property_text"])
def test_a_subclass_that_would_not_be_heard_is_refused(name: str) -> None:
    mixin = type("Mixin", (), {name: property(lambda _self: b"x")})
    for bases, members in (((Message,), dict(vars(mixin))), ((mixin, Message), {})):
        members.pop("__dict__", None), members.pop("__weakref__", None)
        with pytest.raises(WrongTypeError, match=f"Other replaces '{name}' of Message"):
            type("Other", bases, members)


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x"),
        Message("T", b"x", tags="t", keys=("a", "b")),
        Message("T", b"x", properties={"a": "b"}, priority=3, delay=2.5, flag=7),
        _Slotted(5),
    ],
)
def test_messages_are_copied_and_pickled(message: Message) -> None:
    text = message.property_text()
    for again in (copy(message), deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert type(again) is type(message)
        assert (again.topic, again.body, again.tags) == (message.topic, message.body, message.tags)
        assert (again.keys, again.property_text()) == (message.keys, text)
        assert again._rare == message._rare
        assert again.is_plain == message.is_plain
        with pytest.raises(TypeError):
            again.properties["e"] = "f"  # type: ignore[index]


class _Coloured(Message):
    """It has a `__dict__`."""

    def __init__(self, number: int) -> None:
        super().__init__("orders", b"%d" % number, tags="t")
        self.number = number


class _Both(_Slotted):
    """It has a `__dict__` too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.colours = ["red"]


@pytest.mark.parametrize("kind", [_Coloured, _Slotted, _Both])
def test_what_a_subclass_adds_is_copied_and_pickled(kind: type[Any]) -> None:
    order = kind(5)
    for again in (copy(order), deepcopy(order), pickle.loads(pickle.dumps(order))):
        assert type(again) is kind
        assert (again.topic, again.body, again.number) == ("orders", b"5", 5)
        if kind is _Both:
            assert again.colours == ["red"]


def received(properties: bytes = b"", **changes: Any) -> ReceivedMessage:
    message = object.__new__(ReceivedMessage)
    fields: dict[str, Any] = {
        "topic": "T",
        "broker_name": "broker-a",
        "queue_id": 1,
        "offset": 2,
        "commit_log_offset": 0x1234,
        "body": b"x",
        "body_crc": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1700000000000,
        "born_host": pack_host("10.0.0.1", 1),
        "store_timestamp": 1700000000123,
        "store_host": pack_host("127.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "store_size": 100,
        "_properties_raw": properties,
        "_properties": None,
    }
    for name, value in (fields | changes).items():
        setattr(message, name, value)
    return message


def test_received_properties_are_decoded_once() -> None:
    message = received(
        encode_properties(
            {"TAGS": "t", "KEYS": "k1 k2  k3", "UNIQ_KEY": "U", "__SHARDINGKEY": "s", "own": "é"}
        ).encode()
    )
    assert (message.tags, message.keys, message.message_id, message.sharding_key) == (
        "t",
        ("k1", "k2", "k3"),
        "U",
        "s",
    )
    assert message.properties["own"] == "é"
    assert message.properties is message.properties


def test_received_without_properties() -> None:
    message = received()
    assert (message.tags, message.keys, message.sharding_key) == (None, (), None)
    assert message.message_id == message.offset_message_id == "7F00000100002A9F0000000000001234"


def test_received_properties_that_are_not_utf8() -> None:
    message = received(b"a\x01\xff\x02")
    assert message.properties == {"a": "\ufffd"}
    assert message.properties_bytes == b"a\x01\xff\x02"


def test_received_times_and_text() -> None:
    message = received()
    assert message.born_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert message.store_time == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert repr(message) == (
        "ReceivedMessage(topic='T', broker_name='broker-a', queue_id=1, offset=2, body=1 bytes, "
        "message_id='7F00000100002A9F0000000000001234', reconsume_times=0)"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"topic": 5}, "topic"),
        ({"keys": 5}, "keys"),
        ({"keys": ["a", 5]}, "key"),
        ({"keys": "a b"}, "space"),
        ({"tags": 5}, "tag"),
        ({"sharding_key": 5}, "sharding key"),
        ({"delay_level": "3"}, "delay_level"),
        ({"properties": {"a": 5}}, "'a'"),
        ({"properties": {5: "a"}}, "property"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Message(**{"topic": "t", "body": b"x", **arguments})  # type: ignore[arg-type]


def test_a_received_message_can_be_made_for_a_unit_test() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    message = ReceivedMessage(
        "orders",
        b"42",
        tags="fruit",
        keys=["a", "b"],
        sharding_key="s",
        properties={"colour": "blue", "RETRY_TOPIC": "other"},
        message_id="ID",
        queue_id=3,
        offset=7,
        reconsume_times=2,
        born_time=moment,
        store_time=1000,
    )
    assert (message.topic, message.body, message.tags, message.keys) == (
        "orders",
        b"42",
        "fruit",
        ("a", "b"),
    )
    assert message.properties["RETRY_TOPIC"] == "other"
    assert decode_properties(message.properties_bytes.decode()) == message.properties
    assert (message.message_id, message.sharding_key, message.priority) == ("ID", "s", None)
    assert (message.queue_id, message.offset, message.reconsume_times) == (3, 7, 2)
    assert message.born_time == moment
    assert message.store_timestamp == 1000
    assert "orders" in repr(message)


def test_made_messages_are_distinct_and_have_every_field() -> None:
    one, other = ReceivedMessage("t", b"x", offset=1), ReceivedMessage("t", b"x", offset=2)
    assert one.message_id != other.message_id
    assert len({ReceivedMessage("t", b"x").message_id for _ in range(10)}) == 10
    assert ReceivedMessage("t", b"x", properties={"UNIQ_KEY": "ID"}).message_id == "ID"
    decoded = decode_message(stored(1, b"x"))
    for name in ReceivedMessage.__slots__:
        assert isinstance(getattr(one, name), type(getattr(decoded, name)) | dict)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((5, b"x"), "topic is 5"),
        (("t", "text"), "body"),
        (("t", b"x", {"tags": "a\x01b"}), "separate properties"),
        (("t", b"x", {"born_time": 1.5}), "no point in time"),
    ],
)
def test_what_no_message_can_have_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    topic, body, *more = arguments
    with pytest.raises(ConfigurationError, match=text):
        ReceivedMessage(topic, body, **(more[0] if more else {}))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tags": "TagA"},
        {"keys": ("k1", "k2")},
        {"tags": "TagA", "keys": "k1"},
        {"properties": {}},
        {"properties": {"name": "value"}},
        {"sharding_key": ""},
        {"sharding_key": "s"},
        {"delay_level": 0},
        {"delay_level": 3},
        {"delay": 0},
        {"delay": 2.5},
        {"deliver_at": 1_800_000_000_000},
        {"priority": 0},
        {"flag": -1},
        {"wait_store_ok": False},
    ],
)
def test_a_plain_message_tells_of_itself_what_every_other_does(options: dict[str, Any]) -> None:
    made = Message("orders", b"body", **options)
    assert made.is_plain == (set(options) <= {"tags", "keys"} or options == {"properties": {}})
    assert made.properties == options.get("properties", {})
    assert made.sharding_key == options.get("sharding_key")
    assert made.delay_level == options.get("delay_level")
    assert made.delay_ms == (int(options["delay"] * 1000) if "delay" in options else None)
    assert made.deliver_at_ms == options.get("deliver_at")
    assert made.priority == options.get("priority")
    assert made.flag == options.get("flag", 0)
    assert made.wait_store_ok == options.get("wait_store_ok", True)
    assert made.is_delayed == bool(
        options.get("delay_level") or options.get("delay") or "deliver_at" in options
    )
    # With a property that does not matter it is not plain, and has the same text.
    other = Message("orders", b"body", **{"properties": {"x": "y"}, **options})
    if made.is_plain and "properties" not in options:
        assert other.property_text() == f"x\x01y\x02{made.property_text()}"
    for name in ("flag", "wait_store_ok", "delay_ms"):
        with pytest.raises(AttributeError, match=NO_SETTER):
            setattr(made, name, 1)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        getattr(made, "colour")  # noqa: B009


def test_the_types_of_arguments_can_be_asked_for() -> None:
    """As libraries do that make objects from settings; compiled functions tell none."""
    hints = get_type_hints(Message.__init__)
    assert is_compiled(Message) or {"topic", "body", "keys", "delay"} <= set(hints)
