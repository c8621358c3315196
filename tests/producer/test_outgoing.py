"""Bodies of batches, byte for byte as from the codec of single messages."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_sdk.producer.outgoing import Forms, encode_batch
from rocketmq_sdk.protocol import batch_codec
from rocketmq_sdk.protocol.message_id import IdRange, encoded_ids_of, ids_of

STEM_DIGITS = 30


@st.composite
def ranges(draw: st.DrawFn) -> list[IdRange]:
    """Ids as a generator makes them: in one block of 256, then from the next one on."""
    stems = draw(st.lists(st.integers(0, 16**6), min_size=1, max_size=4, unique=True))
    found = []
    for stem in stems:
        low = draw(st.integers(0, 255))
        found.append((f"{stem:0{STEM_DIGITS}X}", low, draw(st.integers(low + 1, 256))))
    return found


@given(ranges(), st.data())
@example([("0" * STEM_DIGITS, 250, 256), ("0" * 29 + "1", 0, 256), ("F" * 30, 7, 8)], None)
def test_a_batch_is_as_its_messages_one_by_one(
    ids: list[IdRange], data: st.DataObject | None
) -> None:
    keys = ids_of(ids)
    assert [key.encode() for key in keys] == list(encoded_ids_of(ids))
    count = len(keys)
    alike = data is None or data.draw(st.booleans())
    forms = Forms(STEM_DIGITS + 2)
    if data is None or alike:
        bodies = [b"%04d" % number for number in range(count)]
        texts, flags = ["TAGS\x01a\x02"] * count, [0] * count
    else:
        bodies = data.draw(st.lists(st.binary(min_size=1), min_size=count, max_size=count))
        one = st.sampled_from(["", "TAGS\x01a\x02", "KEYS\x01k l\x02"])
        texts = data.draw(
            st.one_of(st.just([""] * count), st.lists(one, min_size=count, max_size=count))
        )
        flags = data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
    body = encode_batch(flags, bodies, [forms[text] for text in texts], ids)
    wanted = [
        (flag, payload, f"UNIQ_KEY\x01{key}\x02{text}".encode())
        for flag, payload, key, text in zip(flags, bodies, keys, texts, strict=True)
    ]
    assert batch_codec.decode_batch(body) == wanted
    assert body == batch_codec.encode_batch(wanted)
