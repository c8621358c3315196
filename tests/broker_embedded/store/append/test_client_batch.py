"""Records of a client's batch are those of its messages, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.append.client_batch import ClientBatch
from rocketmq_sdk.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_sdk.model.route import pack_host
from rocketmq_sdk.protocol.batch_codec import decode_batch, encode_batch
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.protocol.property_crc import fill_property_crc, reserve_property_crc

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS = st.sampled_from([pack_host("10.1.2.3", 4567), pack_host("2001:db8::1", 10911)])
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
SHARED = st.fixed_dictionaries(
    {
        "queue_id": INT,
        "sys_flag": INT,
        "born_timestamp": LONG,
        "born_host": HOSTS,
        "store_timestamp": LONG,
        "store_host": HOSTS,
        "reconsume_times": INT,
    }
)
ALIKE = st.tuples(INT, st.integers(1, 50), st.integers(0, 300)).flatmap(
    lambda kind: st.lists(
        st.tuples(
            st.just(kind[0]),
            st.binary(min_size=kind[1], max_size=kind[1]),
            st.binary(min_size=kind[2], max_size=kind[2]),
        ),
        max_size=4,
    )
)
ITEMS = ALIKE | st.lists(
    st.tuples(INT, st.binary(min_size=1, max_size=50), st.binary(max_size=50)), max_size=4
)
PLAIN: dict[str, Any] = {
    "queue_id": 1,
    "queue_offset": 0,
    "sys_flag": 0,
    "born_timestamp": 1,
    "born_host": pack_host("10.1.2.3", 4567),
    "store_timestamp": 1,
    "store_host": pack_host("10.1.2.3", 4567),
    "reconsume_times": 0,
}


@settings(deadline=None, max_examples=60)
@given(SHARED, ITEMS, st.binary(min_size=1, max_size=200), st.booleans())
def test_records_are_those_of_single_messages(
    shared: dict[str, Any], items: list[tuple[int, bytes, bytes]], topic: bytes, with_crc: bool
) -> None:
    wanted: list[bytes] = []
    for index, (flag, body, properties) in enumerate(items):
        text = reserve_property_crc(properties, from_batch=True) if with_crc else properties
        place = {"queue_offset": 7 + index, "physical_offset": 1000 + sum(map(len, wanted))}
        record = encode_record(topic, body, text, flag=flag, prepared_offset=0, **shared, **place)
        wanted.append(fill_property_crc(record) if with_crc else record)
    batch = ClientBatch(encode_batch(items), with_crc=with_crc)
    assert len(batch) == len(items)
    for _again in range(2):  # as where the records begin a new file
        assert batch.encode(topic, 1000, queue_offset=7, **shared) == b"".join(wanted)
    assert batch.sizes == list(map(len, wanted))
    assert list(batch.positions) == [1000 + sum(batch.sizes[:index]) for index in range(len(items))]
    assert with_crc or list(batch.properties) == [properties for _, _, properties in items]


MANY = st.builds(
    lambda count, first, rest: [
        (0, bytes([index % 256]) * 40, b"UNIQ_KEY\x01%032X\x02%b" % (first + index, rest))
        for index in range(count)
    ],
    st.sampled_from([1, 2, 15, 16, 100, 188, 1000]),
    st.integers(0, 2**100),
    st.sampled_from([b"", b"WAIT\x01true\x02"]),
)
ODD = st.sampled_from(
    [
        (1, b"b" * 40, b"p" * 42),
        (0, b"b" * 41, b"p" * 41),
        (0, b"b" * 39, b"p" * 42),
        (0, b"b" * 40, b""),
    ]
)


@settings(deadline=None, max_examples=60)
@given(MANY, st.none() | ODD, st.floats(0, 1), st.integers(0, 1 << 40), st.integers(0, 1 << 50))
def test_records_of_messages_that_are_nearly_alike(
    items: list[tuple[int, bytes, bytes]],
    odd: tuple[int, bytes, bytes] | None,
    where: float,
    offset: int,
    position: int,
) -> None:
    """All are alike but for the bytes of bodies and properties, or all but one are."""
    if odd is not None:
        items[int(where * (len(items) - 1))] = odd
    wanted, end = [], position
    for index, (flag, body, properties) in enumerate(items):
        place = {"queue_offset": offset + index, "physical_offset": end}
        fields: dict[str, Any] = {**PLAIN, **place}
        wanted.append(encode_record(b"t", body, properties, flag=flag, prepared_offset=0, **fields))
        end += len(wanted[-1])
    batch = ClientBatch(encode_batch(items))
    assert batch.alike is (len(items) >= 16 and odd is None)
    assert batch.encode(b"t", position, **{**PLAIN, "queue_offset": offset}) == b"".join(wanted)
    assert list(batch.properties) == [properties for _, _, properties in items]


@pytest.mark.parametrize("count", [4096, 4097])
def test_no_form_is_made_for_very_many_messages(count: int) -> None:
    items = [(0, b"b", b"p")] * count
    batch = ClientBatch(encode_batch(items))
    assert batch.alike is (count == 4096)
    size = len(
        encode_record(b"t", b"b", b"p", flag=0, physical_offset=0, prepared_offset=0, **PLAIN)
    )
    records = batch.encode(b"t", 7, **PLAIN)
    assert [len(records), batch.positions[-1]] == [size * count, 7 + size * (count - 1)]
    for index in (1, count - 1):
        fields: dict[str, Any] = {**PLAIN, "queue_offset": index}
        record = encode_record(
            b"t", b"b", b"p", flag=0, physical_offset=7 + index * size, prepared_offset=0, **fields
        )
        assert records[index * size : (index + 1) * size] == record


@settings(deadline=None, max_examples=150)
@given(ITEMS, st.data())
def test_a_broken_batch_is_refused_as_by_its_codec(
    items: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    broken = bytearray(encode_batch(items) + data.draw(st.binary(max_size=25)))
    for _ in range(data.draw(st.integers(0, 3)) if broken else 0):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(broken)

    def taken_apart() -> list[tuple[int, bytes, bytes]]:
        batch = ClientBatch(body)
        return list(zip(batch._flags, batch._bodies, batch.properties, strict=True))

    assert outcome(taken_apart) == outcome(lambda: decode_batch(body))


def outcome(read: Callable[[], list[tuple[int, bytes, bytes]]]) -> object:
    try:
        return read()
    except RemoteProtocolError as error:
        return str(error)


def test_what_does_not_fit_is_refused() -> None:
    batch = ClientBatch(encode_batch([(0, b"body", b"")]))
    for wrong in (
        {"queue_id": 2**31},
        {"queue_offset": 2**63},
        {"born_timestamp": 2**63},
        {"born_host": b"1234567"},
    ):
        with pytest.raises(LocalProtocolError):
            batch.encode(b"t", 0, **{**PLAIN, **wrong})
    with pytest.raises(LocalProtocolError, match="32769 bytes with their CRC"):
        ClientBatch(encode_batch([(0, b"body", b"p" * 32749)]), with_crc=True)
