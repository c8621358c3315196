"""Hashes that are made for many keys at once are those of each text by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.append.batch_units import tags_codes
from rocketmq_sdk.broker_embedded.store.index.hash_lanes import (
    HALF,
    LANE,
    MOST,
    hashes_of_ends,
    hashes_of_words,
)
from rocketmq_sdk.broker_embedded.store.index.keys import (
    KeyHasher,
    alike,
    key_hash,
    query_text,
)
from rocketmq_sdk.model.properties import TAGS, property_in_text
from rocketmq_sdk.protocol.subscription import tags_code

FARTHEST = {HALF: 255 * (31**4 - 1) // 30, LANE: 255 * (31**8 - 1) // 30}
"""The most that so many last characters add to a hash."""
EDGES = [
    edge - far
    for edge in (1 << 31, 1 << 32)
    for far in (0, *[far % edge for far in FARTHEST.values()])
]
STEMS = st.sampled_from(EDGES).flatmap(
    lambda edge: st.integers(max(0, edge - 9), min(edge + 9, (1 << 32) - 1))
) | st.integers(0, (1 << 32) - 1)


def of_java(value: int) -> int:
    """Java's number of 32 bits, and its absolute value, 0 for the smallest one."""
    value = (value + 2**31) % 2**32 - 2**31
    return 0 if value == -(2**31) else abs(value)


def sum_of(text: bytes) -> int:
    value = 0
    for character in text:
        value = value * 31 + character
    return value


@given(
    STEMS,
    st.sampled_from([HALF, LANE]).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9)
    ),
    st.integers(0, LANE),
)
def test_those_of_texts_that_differ_at_their_end(stem: int, ends: list[bytes], same: int) -> None:
    """Where they lie on both sides of 2^31 and 2^32 as well."""
    ends = [ends[0][:same] + end[same:] for end in ends]
    assert list(hashes_of_ends(stem, b"".join(ends), len(ends))) == [
        of_java(stem + sum_of(end)) for end in ends
    ]


@pytest.mark.parametrize("size", [HALF, LANE])
@pytest.mark.parametrize("wanted", [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
def test_the_numbers_around_the_smallest_and_the_largest(wanted: int, size: int) -> None:
    ends = [b"\0" * size, b"0" * size, b"0" * (size - 1) + b"1", b"F" * size]
    for end in ends:
        stem = (wanted - sum_of(end)) % 2**32
        found = hashes_of_ends(stem, b"".join(ends), len(ends))
        assert list(found) == [of_java(stem + sum_of(one)) for one in ends]
        assert found[ends.index(end)] == of_java(wanted)


@given(
    st.lists(st.tuples(st.integers(0, (1 << 32) - 1), st.binary(max_size=MOST)), min_size=1),
)
def test_those_of_words(words: list[tuple[int, bytes]]) -> None:
    """Of any lengths; one may be the beginning of another."""
    assert list(hashes_of_words([word for _stem, word in words], [stem for stem, _ in words])) == [
        of_java(stem + sum_of(word)) for stem, word in words
    ]


def entries_of(topic: str, properties: bytes) -> list[int]:
    """The hashes of the entries of one message, each taken of its whole text."""
    text = properties.decode("utf-8", "replace")
    found: list[int] = []
    if unique := property_in_text(text, "UNIQ_KEY"):
        found.append(key_hash(query_text(topic, unique, None)))
    keys = property_in_text(text, "KEYS") or ""
    found += [key_hash(query_text(topic, key, None)) for key in keys.split(" ") if key]
    if tags := property_in_text(text, "TAGS"):
        found.append(key_hash(query_text(topic, tags, "T")))
    return found


STARTS = ["", "7F0000014E2B35D9417D", "7f0000014e2b35d9417d", "x" * 40, "x" * 300, "é" * 9, "-"]
ENDS = (
    st.integers(0, (1 << 32) - 1).map("{:08X}".format)
    | st.integers(0, 1 << 16).map("{:08x}".format)
    | st.sampled_from(["", "1", "12", "ü", "12345678é", "-" * 9, "\U00010000", "a b"])
)
KEY = st.builds(str.__add__, st.sampled_from(STARTS), ENDS)
UNIQUE = KEY.map("UNIQ_KEY\x01{}".format)
OTHER = st.one_of(
    st.lists(KEY, max_size=3).map(lambda keys: f"KEYS\x01{' '.join(keys)}"),
    st.sampled_from(["a", "b", "", "é", "c" * 70, "a\x01b"]).map("TAGS\x01{}".format),
    st.integers(0, 9).map("order\x01{}".format),
    st.sampled_from(
        ["WAIT\x01true", "XTAGS\x01a", "KEYS", "UNIQ_KEY", "", "\x01", "x\x01KEYS\x01a"]
    ),
    st.integers(0, 9).map(lambda n: f"traceparent\x0100-{n:032x}-{n:016x}-01"),
    UNIQUE,
)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Properties of messages: alike, alike but for a few, or of all sorts."""
    front, behind = draw(st.lists(OTHER, max_size=2)), draw(st.lists(OTHER, max_size=3))
    start = draw(st.sampled_from(STARTS))
    numbers = draw(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=20))
    shift = draw(st.sampled_from([0, 16, 28]))
    texts = [
        "\x02".join([*front, f"UNIQ_KEY\x01{start}{number >> shift:08X}", *behind]) + "\x02"
        for number in numbers
    ]
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(texts) - 1))
        text = "\x02".join(draw(st.lists(UNIQUE | OTHER, max_size=5)))
        texts[place] = text + draw(st.sampled_from(["", "\x02"]))
    raw = [text.encode() for text in texts]
    if draw(st.booleans()):
        raw[0] = (
            raw[0].replace(b"a", b"\xff").replace(b"\x01", draw(st.sampled_from([b"\x01", b""])))
        )
    return raw


@settings(deadline=None, max_examples=400)
@given(batches(), st.sampled_from(["T", "topic" * 20, "%RETRY%группа"]))
def test_those_of_the_messages_of_a_batch(raw: list[bytes], topic: str) -> None:
    hasher, positions = KeyHasher(), [place * 100 for place in range(len(raw))]
    wanted = [
        (value, position)
        for text, position in zip(raw, positions, strict=True)
        for value in entries_of(topic, text)
    ]
    for known in (None, alike(raw)):
        hashes, at, others = hasher.hashes_of_batch(topic, raw, positions, known)
        found = zip(hashes, at, strict=True)
        assert [(one, place) for key, place in found for one in (key, *others)] == wanted
        assert tags_codes(raw, known) == [
            tags_code(property_in_text(text.decode("utf-8", "replace"), TAGS)) for text in raw
        ]


@pytest.mark.parametrize("front", [b"", b"app\x01shop\x02"])
@pytest.mark.parametrize(
    ("apart", "size"), [(1, HALF), (1 << 12, HALF), (1 << 16, LANE), (1 << 28, LANE), (1 << 32, 0)]
)
def test_keys_that_differ_in_time_and_counter_are_alike(
    apart: int, size: int, front: bytes
) -> None:
    """Java's client writes milliseconds and a counter: within a minute, 8 digits."""
    raw = [
        front + b"UNIQ_KEY\x017F0000014E2B35D9417D%012X\x02WAIT\x01true\x02" % (number * apart)
        for number in range(10)
    ]
    same = alike(raw)
    assert (0 if same is None else len(same[1]) // len(raw)) == size
    hashes, at, others = KeyHasher().hashes_of_batch("T", raw, range(10), same)
    assert (list(at), list(others)) == (list(range(10)), [])
    assert [[value] for value in hashes] == [entries_of("T", text) for text in raw]


def test_a_key_that_ends_otherwise_than_the_ones_before() -> None:
    """Behind the same beginning: with letters that take two bytes, or sooner."""
    ends = ["00000001", "0000000é", "é", "", "00000002"]
    raw = [f"UNIQ_KEY\x01{'x' * 20}{end}\x02WAIT\x01true\x02".encode() for end in ends * 2]
    hashes, at, _others = KeyHasher().hashes_of_batch("T", raw, range(10), None)
    assert [[value] for value in hashes] == [entries_of("T", text) for text in raw]
    assert list(at) == list(range(10))


def test_many_words_are_hashed_in_parts() -> None:
    keys = [f"{number}" for number in range(3000)]
    raw = [f"KEYS\x01{' '.join(keys)}\x02TAGS\x01t{place}\x02".encode() for place in range(9)]
    hashes, at, _others = KeyHasher().hashes_of_batch("T", raw, range(9), None)
    assert list(hashes) == [value for text in raw for value in entries_of("T", text)]
    assert list(at) == [place for place in range(9) for _ in range(3001)]


@pytest.mark.parametrize(
    "odd", ["0000\x02002", "00000\x02\x012", "000000é", "0000\x02é2", "\x02KEYS\x0112"]
)
def test_a_key_that_ends_sooner_among_those_that_are_alike(odd: str) -> None:
    """Or that ends with letters that take two bytes."""
    ends = [*(f"0000000{number}" for number in range(9)), odd, "00000009"]
    raw = [f"UNIQ_KEY\x01{'x' * 20}{end}\x02WAIT\x01true\x02".encode() for end in ends]
    assert len({*map(len, raw)}) == 1
    hashes, at, others = KeyHasher().hashes_of_batch("T", raw, range(11), alike(raw))
    wanted = [entries_of("T", text) for text in raw]
    assert not others
    assert list(hashes) == [value for values in wanted for value in values]
    assert list(at) == [place for place, values in enumerate(wanted) for _ in values]
