"""The timer wheel: for each second of two weeks the messages that are due then.

`TimerWheel` of Apache RocketMQ 5.4.0. 1,209,600 slots of 32 bytes: time divided by the
precision, positions of the first and the last record in the timer log, number of
messages, and a magic that is 0. The slot number is the time divided by the precision,
modulo the number of slots; a slot belongs to a time only if it holds it.

Only pages of slots that were used are kept in memory, and only pages that changed are
written.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded.timers.record import NO_POSITION
from rocketmq_sdk.errors import StoreCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem, StoreFile

PATH: Final = "timerwheel"
SLOT: Final = Struct(">qqqii")
SLOT_SIZE: Final = 32
SLOTS: Final = 2 * 7 * 86_400
WHEEL_SIZE: Final = SLOTS * SLOT_SIZE
_PAGE: Final = 4096
_PER_PAGE: Final = _PAGE // SLOT_SIZE
_READ: Final = 1024 * 1024
_unpack = SLOT.unpack_from
_pack_into = SLOT.pack_into


class Slot(NamedTuple):
    """One slot; `time` in epoch milliseconds."""

    time: int
    first: int
    last: int
    number: int


class TimerWheel:
    """The wheel; `precision_ms` is the width of a slot.

    No file is created until `write_pages`.
    """

    __slots__ = ("_dirty", "_files", "_pages", "precision_ms")

    def __init__(self, files: FileSystem, precision_ms: int) -> None:
        self.precision_ms = precision_ms
        self._files = files
        self._pages: dict[int, bytearray] = {}
        self._dirty: set[int] = set()

    def load(self) -> bool:
        """Read the file; False when there is none.

        Raises `StoreCorruptError` for an impossible length, and `StoreError`.
        """
        if not self._files.exists(PATH):
            return False
        file = self._files.open(PATH)
        size = file.size()
        if not size:
            return False
        if size != WHEEL_SIZE:
            raise StoreCorruptError(
                f"{PATH} has {size} bytes, a timer wheel has {WHEEL_SIZE}; "
                "remove it, and it is made again from the timer log"
            )
        for low, high in list(file.data_ranges(0, WHEEL_SIZE)):
            self._read(file, low - low % _PAGE, high)
        file.close()
        return True

    def _read(self, file: StoreFile, low: int, high: int) -> None:
        empty = bytes(_PAGE)
        for start in range(low, high, _READ):
            data = file.pread(min(_READ, WHEEL_SIZE - start), start)
            for at in range(0, len(data), _PAGE):
                page = data[at : at + _PAGE]
                if page != empty[: len(page)]:
                    self._pages[(start + at) // _PAGE] = bytearray(page.ljust(_PAGE, b"\0"))

    def _place(self, units: int) -> tuple[int, int]:
        index = units % SLOTS
        return index // _PER_PAGE, index % _PER_PAGE * SLOT_SIZE

    def get(self, time: int) -> Slot | None:
        """The slot of a time; None when it is empty."""
        units = time // self.precision_ms
        page, at = self._place(units)
        data = self._pages.get(page)
        if data is None:
            return None
        found, first, last, count, _magic = _unpack(data, at)
        if found != units or not units:
            return None
        return Slot(units * self.precision_ms, first, last, count)

    def occupant(self, time: int) -> Slot | None:
        """The slot in the place of a time, even if it belongs to another time."""
        page, at = self._place(time // self.precision_ms)
        data = self._pages.get(page)
        if data is None:
            return None
        units, first, last, count, _magic = _unpack(data, at)
        return Slot(units * self.precision_ms, first, last, count) if units else None

    def put(self, time: int, first: int, last: int, count: int) -> None:
        """Set the slot of a time, whatever was in its place."""
        units = time // self.precision_ms
        page, at = self._place(units)
        data = self._pages.get(page)
        if data is None:
            data = self._pages[page] = bytearray(_PAGE)
        _pack_into(data, at, units, first, last, max(-0x80000000, min(count, 0x7FFFFFFF)), 0)
        self._dirty.add(page)

    def clear(self, time: int) -> None:
        """Empty the place of a time."""
        page, at = self._place(time // self.precision_ms)
        data = self._pages.get(page)
        if data is not None:
            data[at : at + SLOT_SIZE] = bytes(SLOT_SIZE)
            self._dirty.add(page)

    def touch(self, time: int) -> None:
        """Have the page of a time written again."""
        page, _at = self._place(time // self.precision_ms)
        if page in self._pages:
            self._dirty.add(page)

    def reset(self) -> None:
        """Empty the whole wheel."""
        self._dirty.update(self._pages)
        for page in self._pages:
            self._pages[page] = bytearray(_PAGE)

    def slots(self, since: int) -> Iterator[Slot]:
        """The slots of times from `since` on, in no order."""
        least = since // self.precision_ms
        for page in self._pages.values():
            for units, first, last, count, _magic in SLOT.iter_unpack(page):
                if units >= least and units > 0 and last > NO_POSITION:
                    yield Slot(units * self.precision_ms, first, last, count)

    @property
    def dirty(self) -> bool:
        """Whether something was put since the last successful write."""
        return bool(self._dirty)

    def take_dirty(self) -> list[tuple[int, bytes]]:
        """Offsets and bytes of the changed pages, neighbours joined.

        They count as written until `give_back`.
        """
        runs: list[tuple[int, bytearray]] = []
        for page in sorted(self._dirty):
            data = self._pages[page]
            if runs and runs[-1][0] + len(runs[-1][1]) == page * _PAGE:
                runs[-1][1].extend(data)
            else:
                runs.append((page * _PAGE, bytearray(data)))
        self._dirty.clear()
        return [(offset, bytes(data[: WHEEL_SIZE - offset])) for offset, data in runs]

    def give_back(self, taken: list[tuple[int, bytes]]) -> None:
        """Have pages written again that could not be made durable."""
        for offset, data in taken:
            self._dirty.update(range(offset // _PAGE, (offset + len(data) + _PAGE - 1) // _PAGE))

    def write_pages(self, taken: list[tuple[int, bytes]]) -> StoreFile:
        """Write pages from `take_dirty`; returns the file to sync.

        Raises `StoreError`.
        """
        file = (
            self._files.open(PATH)
            if self._files.exists(PATH)
            else self._files.create(PATH, WHEEL_SIZE)
        )
        if file.size() < WHEEL_SIZE:
            file.truncate(WHEEL_SIZE)
        for offset, data in taken:
            file.pwrite(data, offset)
        return file
