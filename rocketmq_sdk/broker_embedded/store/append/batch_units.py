"""The queue units of a client's batch, and the tags codes that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.columns import rising_columns, set_columns
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import UNIT
from rocketmq_sdk.model.properties import TAGS, UNIQ_KEY, value_in_bytes
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes
    from rocketmq_sdk.broker_embedded.store.index.keys import Alike

_UNIQ_KEY: Final = f"{UNIQ_KEY}\x01".encode()
_UNIQ_KEY_SIZE: Final = len(_UNIQ_KEY)
_TAGS: Final = f"\x02{TAGS}\x01".encode()
_END: Final = b"\x02"
_pack = UNIT.pack


def tags_codes(properties: Sequence[bytes], same: Alike | None) -> list[int]:
    """The tags codes of the messages of a batch; `same` says in how far they are alike.

    Messages of a batch often differ only in their unique keys; equal rests are parsed
    once, and equal tags are hashed once.
    """
    if same is not None:
        properties, times = properties[:1], len(properties)
    else:
        times = 1
    known: dict[bytes, int] = {}
    of_tags: dict[bytes, int] = {}
    codes: list[int] = []
    for raw in properties:
        # When the key has no end this is the last byte, which holds no tag either.
        rest = raw[raw.find(_END, _UNIQ_KEY_SIZE) :] if raw.startswith(_UNIQ_KEY) else raw
        code = known.get(rest)
        if code is None:
            tags = value_in_bytes(_END + rest, _TAGS)
            code = of_tags.get(tags)
            if code is None:
                code = of_tags[tags] = tags_code(tags.decode("utf-8", "replace"))
            known[rest] = code
        codes.append(code)
    return codes * times


def queue_units(positions: Sequence[int], sizes: Sequence[int], codes: Sequence[int]) -> Bytes:
    """The units of records, joined.

    Records of one size lie at positions that come as a range.
    """
    if not isinstance(positions, range) or codes.count(codes[0]) != len(codes):
        return b"".join(map(_pack, positions, sizes, codes))
    units = bytearray(_pack(positions[0], sizes[0], codes[0]) * len(positions))
    set_columns(units, UNIT.size, 0, rising_columns(positions))
    return units
