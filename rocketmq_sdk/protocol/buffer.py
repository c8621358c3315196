"""Bytes of a frame that is not complete yet."""

from __future__ import annotations


class ReceiveBuffer:
    """Keeps the beginning of one frame until the rest is there.

    `needed` is the number of bytes that make looking again worth while. Appending costs
    the length of what is appended and nothing else: the frame is copied once when it is
    complete, however small the pieces are.
    """

    __slots__ = ("_kept", "needed")

    def __init__(self) -> None:
        self._kept = bytearray()
        self.needed = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def allocated(self) -> int:
        """Bytes of memory that the kept bytes take; it grows ahead of them."""
        return self._kept.__alloc__()

    def keep(self, data: bytes | memoryview, needed: int) -> None:
        """Keep the beginning of a frame until `needed` bytes are there."""
        self._kept += data
        self.needed = needed

    def take_with(self, data: bytes) -> bytes | None:
        """The kept bytes followed by `data`, or None while there are too few.

        Fewer than `needed` bytes are kept, `data` with them.
        """
        kept = self._kept
        if not kept:
            return data
        kept += data
        if len(kept) < self.needed:
            return None
        complete = bytes(kept)
        self._kept = bytearray()
        return complete

    def clear(self) -> None:
        """Drop all kept bytes."""
        self._kept = bytearray()
        self.needed = 0
