"""Bytes of a frame that is not complete yet."""

from __future__ import annotations


class ReceiveBuffer:
    """Keeps the beginning of one frame until the rest is there.

    `needed` is the number of bytes that make looking again worth while. Appending costs
    the length of what is appended and nothing else: the frame is copied once when it is
    complete, however small the pieces are.
    """

    __slots__ = ("kept", "needed")

    def __init__(self) -> None:
        self.kept = bytearray()
        """What is kept; for reading."""
        self.needed = 0

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def allocated(self) -> int:
        """Bytes of memory that the kept bytes take; it grows ahead of them."""
        return self.kept.__alloc__()

    def keep(self, data: bytes | memoryview, needed: int) -> None:
        """Keep the beginning of a frame until `needed` bytes are there."""
        self.kept += data
        self.needed = needed

    def complete(self, data: bytes, start: int) -> tuple[bytes | None, int]:
        """The kept bytes up to `needed`, of which the last come from `data`.

        None while there are too few; then the rest of `data` is kept too. Also where
        `data` goes on behind them. Nothing else of `data` is copied.
        """
        kept = self.kept
        stop = start + self.needed - len(kept)
        if stop > len(data):
            kept += memoryview(data)[start:]
            return None, len(data)
        whole = b"".join((kept, memoryview(data)[start:stop]))
        self.kept = bytearray()
        return whole, stop

    def clear(self) -> None:
        """Drop all kept bytes."""
        self.kept = bytearray()
        self.needed = 0
