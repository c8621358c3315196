"""The offset ids of a batch, as its answer has them.

The id of a stored message is its broker's address and its position, in hex. An answer
joins those of a batch with commas.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.columns import rising_columns
from rocketmq_sdk.protocol.message_id import DIGITS_OF_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACE_SIZE: Final = 8


def offset_ids(host: str, positions: Sequence[int]) -> str:
    """The ids of the messages at some positions; `host` is their beginning.

    Positions at equal distances, those of messages that are alike, come as a range.
    """
    if isinstance(positions, range):
        return _of_range(host, positions)
    places = array("q", positions)
    if sys.byteorder == "little":
        places.byteswap()
    return host + places.tobytes().hex(",", _PLACE_SIZE).upper().replace(",", f",{host}")


def _of_range(host: str, positions: range) -> str:
    """`offset_ids` by columns of digits."""
    first = f"{host}{positions[0]:016X},".encode()
    size, text = len(first), bytearray(first * len(positions))
    for place, column in rising_columns(positions):
        for at, digits in enumerate(DIGITS_OF_BYTES, len(host) + 2 * place):
            text[at::size] = column.translate(digits)
    return text[:-1].decode()
