"""Places in queues as text."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.spark.plan.offsets import (
    EARLIEST,
    LATEST,
    OffsetFormatError,
    QueueKey,
    from_json,
    from_text,
    from_user,
    to_json,
    to_text,
)

NAMES = st.text(string.ascii_letters + string.digits + "_%-äß", min_size=1, max_size=8)
PLACES = st.dictionaries(
    st.builds(QueueKey, NAMES, NAMES, st.integers(0, 70_000)),
    st.integers(0, (1 << 63) - 1),
    max_size=30,
)
ONE = QueueKey("T", "broker-a", 0)


@given(PLACES, st.randoms())
@settings(deadline=None)
def test_equal_places_have_equal_texts(places: dict[QueueKey, int], random: object) -> None:
    items = list(places.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    shuffled = dict(items)
    assert to_text(places) == to_text(shuffled)
    assert json.dumps(to_json(places)) == json.dumps(to_json(shuffled))
    assert from_text(to_text(places)) == places
    assert from_json(json.loads(json.dumps(to_json(places)))) == places


def test_names_are_in_order_of_text_and_ids_in_order_of_numbers() -> None:
    places = {QueueKey("b", "x", 10): 1, QueueKey("b", "x", 9): 2, QueueKey("a", "y", 0): 3}
    assert to_text(places) == '{"t":{"a":{"y":{"0":3}},"b":{"x":{"9":2,"10":1}}},"v":1}'


def test_no_places() -> None:
    assert to_text({}) == '{"t":{},"v":1}'
    assert from_text('{"t":{},"v":1}') == {}


def test_users_may_write_the_inner_map_and_the_ends_of_queues() -> None:
    inner = '{"T":{"broker-a":{"0":-2}}}'
    assert from_user(inner, source="startingOffsets") == {ONE: EARLIEST}
    assert from_user(f'{{"t":{inner},"v":1}}', source="startingOffsets") == {ONE: EARLIEST}
    assert from_user('{"T":{"broker-a":{"0":-1}}}', source="endingOffsets", least=LATEST) == {
        ONE: LATEST
    }
    assert from_user('{"t":{"b":{"0":3}},"v":{"b":{"1":4}}}', source="startingOffsets") == {
        QueueKey("t", "b", 0): 3,
        QueueKey("v", "b", 1): 4,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("[1]", "must have a map of topics"),
        ("7", "must have a map of topics"),
        ('{"T":5}', "a map of brokers at 'T'"),
        ('{"T":{"b":[]}}', "a map of queue ids at 'T', 'b'"),
        ('{"T":{"b":{"x":1}}}', "queue id 'x'"),
        ('{"T":{"b":{"-1":1}}}', "queue id '-1'"),
        ('{"T":{"b":{"01":1}}}', "queue id '01'"),
        ('{"T":{"b":{"99999999999":1}}}', "queue id"),
        ('{"T":{"b":{"0":1.5}}}', "1.5 for T/b/0"),
        ('{"T":{"b":{"0":true}}}', "True for T/b/0"),
        ('{"T":{"b":{"0":-3}}}', "-3 for T/b/0"),
        ('{"T":{"b":{"0":"5"}}}', "'5' for T/b/0"),
        ('{"T":{"b":{"0":9223372036854775808}}}', "9223372036854775808"),
        ('{"":{"b":{"0":1}}}', "the name ''"),
        ('{"t":{},"v":2}', "version 2"),
        ("[" * 100_000, "nested|JSON"),
    ],
)
def test_what_users_write_wrongly_is_named(text: str, says: str) -> None:
    with pytest.raises(OffsetFormatError, match=says) as caught:
        from_user(text, source="startingOffsets")
    assert str(caught.value).startswith("startingOffsets")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "must look like"),
        ('{"t":{},"v":2}', "version 2; this release reads version 1"),
        ('{"t":{},"v":true}', "version True"),
        ('{"t":{},"v":1,"w":2}', "unknown member 'w'"),
        ('{"t":{"T":{"b":{"0":-1}}},"v":1}', "-1 for T/b/0"),
    ],
)
def test_checkpoints_that_are_none_are_refused(text: str, says: str) -> None:
    with pytest.raises(OffsetFormatError, match=says):
        from_text(text)
