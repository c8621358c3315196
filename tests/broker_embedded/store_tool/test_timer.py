"""`verify` on timers: nothing at sound directories, every flipped bit under a check
named by file and record.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from broker_embedded.timers.test_apache_timers import NAMES, records_of, with_timer_files
from rocketmq_sdk.broker_embedded.store_tool.log import LogRecordReader
from rocketmq_sdk.broker_embedded.store_tool.report import (
    DirectoryReader,
    Finding,
    StoreReport,
    chain_of,
)
from rocketmq_sdk.broker_embedded.store_tool.timer import TimerWalk
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.broker_embedded.timers.checkpoint import PATH as CHECKPOINT
from rocketmq_sdk.broker_embedded.timers.log import DIRECTORY
from rocketmq_sdk.broker_embedded.timers.wheel import PATH as WHEEL
from rocketmq_sdk.broker_embedded.timers.wheel import SLOT, SLOT_SIZE
from support.store import unpack

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time
LOG_FILE = 32_768


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_timer_files("kitchen-sink", tmp_path_factory.mktemp("timers"))


def look(directory: Path, *, running: bool = False) -> list[Finding]:
    """The timers' part of `verify` alone."""
    reader, report = DirectoryReader(directory), StoreReport()
    report.running = running
    TimerWalk(
        reader,
        report,
        LogRecordReader(reader, chain_of(reader, "commitlog", LOG_FILE, report), LOG_FILE),
    ).run()
    return report.findings


@pytest.mark.parametrize("name", NAMES)
def test_apaches_directories_are_sound(name: str, tmp_path: Path) -> None:
    assert verify_directory(with_timer_files(name, tmp_path)).findings == []


def test_every_flipped_bit_of_the_log_is_named(tmp_path: Path) -> None:
    """But the time of a timer that is more than a window ahead: the wheel would name
    it, which is too big to be read each time.
    """
    generator, directory = random.Random(7), unpack("kitchen-sink", tmp_path)
    for position, record in records_of(directory):
        path = directory / DIRECTORY / f"{position // 520 * 520:020d}"
        sound = path.read_bytes()
        for byte in range(52):
            damaged = bytearray(sound)
            damaged[position % 520 + byte] ^= 1 << generator.randrange(8)
            path.write_bytes(damaged)
            found = look(directory)
            path.write_bytes(sound)
            named = [
                finding
                for finding in found
                if finding.path == f"{DIRECTORY}/{path.name}"
                and finding.offset // 52 == position % 520 // 52
            ]
            assert named or (record.rolls and 16 <= byte < 28), (
                f"byte {byte} of the record at {position}: {found}"
            )


def test_every_flipped_bit_of_a_waiting_slot_but_its_count_is_named(directory: Path) -> None:
    generator = random.Random(8)
    wheel = directory / WHEEL
    with wheel.open("r+b") as file:
        for place in (192_795, 365_261):
            file.seek(place * SLOT_SIZE)
            sound = file.read(SLOT_SIZE)
            assert SLOT.unpack(sound)[0]
            for byte in (0, 7, 8, 14, 15, 16, 22, 23, 28, 31):
                damaged = bytearray(sound)
                damaged[byte] ^= 1 << generator.randrange(8)
                file.seek(place * SLOT_SIZE)
                file.write(damaged)
                file.flush()
                found = look(directory)
                file.seek(place * SLOT_SIZE)
                file.write(sound)
                file.flush()
                assert any(
                    finding.path == WHEEL and finding.offset // SLOT_SIZE == place
                    for finding in found
                ), (place, byte, found)


def test_wrong_lengths_and_leftovers_are_named(tmp_path: Path) -> None:
    directory = with_timer_files("kitchen-sink", tmp_path)
    last = directory / DIRECTORY / "00000000000000000520"
    sound = last.read_bytes()
    last.write_bytes(sound[:500] + b"x" + sound[501:])
    assert [(finding.path, finding.offset) for finding in look(directory)] == [
        (f"{DIRECTORY}/{last.name}", 500)
    ]
    assert look(directory, running=True) == []
    last.write_bytes(sound[:519])
    assert {finding.kind for finding in look(directory)} >= {"size"}
    last.write_bytes(sound)
    with (directory / WHEEL).open("ab") as file:
        file.write(b"\0")
    assert [(finding.path, finding.kind) for finding in look(directory)] == [(WHEEL, "size")]
    (directory / WHEEL).unlink()
    assert look(directory) == []
    (directory / CHECKPOINT).write_bytes(bytes(20))
    assert [(finding.path, finding.kind) for finding in look(directory)] == [(CHECKPOINT, "size")]


def test_a_log_that_ends_in_front_of_its_checkpoint_is_named(tmp_path: Path) -> None:
    directory = with_timer_files("kitchen-sink", tmp_path)
    (directory / DIRECTORY / "00000000000000000520").unlink()
    assert (CHECKPOINT, "timer") in [(finding.path, finding.kind) for finding in look(directory)]
