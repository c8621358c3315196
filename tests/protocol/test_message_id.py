"""Message ids against Apache's, and the promise that no unique id comes twice."""

from __future__ import annotations

import itertools
import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.clock import SystemClock
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import pack_host
from rocketmq_sdk.protocol.message_id import (
    UniqueIdGenerator,
    create_offset_id,
    parse_offset_id,
    unique_id_ip,
    unique_id_pid,
    unique_id_time,
)
from support.paths import CODEC_VECTORS

if TYPE_CHECKING:
    from types import FrameType

ENTRIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "message_ids.json").read_text())
LOCALHOST = bytes([127, 0, 0, 1])
NOVEMBER = 1795236887117


class HandClock:
    """A clock whose hands are set by the test."""

    def __init__(self, now_ms: int = NOVEMBER) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


@pytest.mark.parametrize(
    "entry",
    [entry for entry in ENTRIES if entry["kind"] == "offset_id"],
    ids=lambda entry: entry["id"],
)
def test_offset_ids(entry: dict[str, Any]) -> None:
    assert create_offset_id(pack_host(entry["host"], entry["port"]), entry["offset"]) == entry["id"]
    host, port, offset = parse_offset_id(entry["id"])
    assert pack_host(host, port) == pack_host(entry["host"], entry["port"])
    assert offset == entry["decoded_offset"] == entry["offset"]


@pytest.mark.parametrize(
    "entry",
    [entry for entry in ENTRIES if entry["kind"] == "offset_id_decode"],
    ids=lambda entry: entry["id"],
)
def test_offset_id_texts(entry: dict[str, Any]) -> None:
    legal = all(character in "0123456789abcdefABCDEF" for character in entry["id"])
    if (
        "error" in entry["result"] or not legal
    ):  # Java reads other characters than hexadecimal ones as if they were
        with pytest.raises(ConfigurationError, match="message id"):
            parse_offset_id(entry["id"])
    else:
        host, port, offset = parse_offset_id(entry["id"])
        assert offset == entry["result"]["offset"]
        assert entry["result"]["address"].endswith(f":{port}")
        assert host in ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    "text",
    [
        "7F 00 00 01 00 00 2A 9F 00 00 00 00 00 00 12",
        "7F00000100002A9F00000000000012 4",
        "é" * 32,
        "0" * 34,
    ],
)
def test_texts_that_are_no_ids(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_offset_id(text)


@pytest.mark.parametrize(
    "entry",
    [entry for entry in ENTRIES if entry["kind"] == "unique_id"],
    ids=lambda entry: entry["id"],
)
def test_unique_ids_taken_apart(entry: dict[str, Any]) -> None:
    assert entry["timezone"] == "UTC"
    assert unique_id_time(entry["id"], entry["now_ms"], zone=UTC) == entry["nearly_time_ms"]
    assert unique_id_pid(entry["id"]) == entry["pid"]
    ip = unique_id_ip(entry["id"])
    expected = entry["ip"]
    assert (
        ".".join(map(str, ip))
        if "." in expected
        else ":".join(ip[i : i + 2].hex() for i in range(0, 16, 2))
    ) == expected


@settings(deadline=None, max_examples=60)
@given(
    st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)),
    st.integers(-(2**63), 2**63 - 1),
)
def test_offset_id_round_trip(host: bytes, offset: int) -> None:
    text = create_offset_id(host, offset)
    address, port, found = parse_offset_id(text)
    assert found == offset
    assert text.isupper() or text.isdigit()
    assert len(text) in (32, 56)
    if not host.startswith(bytes(10) + b"\xff\xff") and port >= 0:
        assert pack_host(address, port) == host


def test_layout_of_a_unique_id() -> None:
    clock = HandClock()
    generator = UniqueIdGenerator(LOCALHOST, 0x12345, clock, incarnation=0x18B4AAC2)
    first, second = generator.next_id(), generator.next_id()
    assert first[:20] == "7F000001" + "2345" + "18B4AAC2"
    assert first[-4:] == "0000"
    assert second[-4:] == "0001"
    assert unique_id_time(first, clock.now + 1) == clock.now
    assert unique_id_pid(first) == 0x2345
    assert unique_id_ip(first) == LOCALHOST
    assert len(UniqueIdGenerator(bytes(16), 1, clock).next_id()) == 56


@pytest.mark.parametrize("size", [0, 3, 5, 15, 17])
def test_an_address_has_4_or_16_bytes(size: int) -> None:
    with pytest.raises(ConfigurationError, match="4 or 16 bytes"):
        UniqueIdGenerator(bytes(size), 1, HandClock())


def test_a_standing_clock_borrows_the_next_millisecond() -> None:
    clock = HandClock()
    generator = UniqueIdGenerator(LOCALHOST, 1, clock)
    ids = [generator.next_id() for _ in range(65536 * 2 + 10)]
    assert len(set(ids)) == len(ids)
    assert [
        unique_id_time(ids[index], clock.now + 10_000) - clock.now
        for index in (0, 65535, 65536, 131071, 131072)
    ] == [0, 0, 1, 1, 2]
    clock.now += 1
    later = [generator.next_id() for _ in range(65536 * 2)]
    assert not set(later) & set(ids)


def test_ids_made_together_are_those_made_one_by_one() -> None:
    """Over blocks, the end of a millisecond, and single ids in between."""
    one_by_one, together = (
        UniqueIdGenerator(bytes(4), 1, HandClock(), incarnation=7) for _ in range(2)
    )
    for count in (1, 0, 300, 255, 256, 65536, 70000, 3):
        ids = together.next_ids(count)
        assert ids == [one_by_one.next_id() for _ in range(count)]
        assert together.next_id() == one_by_one.next_id()
    assert {len(message_id) for message_id in together.next_ids(2)} == {together.digits}
    assert UniqueIdGenerator(bytes(16), 1, HandClock()).digits == 56


def test_a_clock_that_steps_back_repeats_nothing() -> None:
    clock = HandClock()
    generator = UniqueIdGenerator(LOCALHOST, 1, clock)
    ids = set()
    for step in (0, 5, -3, -1000, 2, 0, 1, -1):
        clock.now += step
        ids.update(generator.next_id() for _ in range(65536 // 2 + 7))
    assert len(ids) == 8 * (65536 // 2 + 7)


def test_a_new_month_is_a_new_incarnation() -> None:
    clock = HandClock(round(datetime(2026, 11, 30, 23, 59, 59).timestamp() * 1000))
    generator = UniqueIdGenerator(LOCALHOST, 1, clock)
    before = generator.next_id()
    clock.now = round(datetime(2026, 12, 1).timestamp() * 1000)
    after = generator.next_id()
    assert after[20:28] == "00000000"
    assert after[12:20] != before[12:20]
    assert unique_id_time(after, clock.now + 1) == clock.now
    clock.now = round(datetime(2027, 1, 1).timestamp() * 1000)
    assert generator.next_id()[20:28] == "00000000"


def test_makers_of_one_process_differ() -> None:
    clock = HandClock()
    makers = [UniqueIdGenerator(LOCALHOST, 1, clock) for _ in range(100)]
    assert len({maker.next_id() for maker in makers}) == 100


@pytest.mark.real_time
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_goes_its_own_way() -> None:
    generator = UniqueIdGenerator(LOCALHOST, os.getpid(), SystemClock())
    generator.next_id()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, generator.next_id().encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        of_child = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    of_parent = generator.next_id()
    assert unique_id_pid(of_child) == child & 0xFFFF
    assert unique_id_pid(of_parent) == os.getpid() & 0xFFFF
    assert of_child[12:20] != of_parent[12:20]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-5, 40), st.integers(0, 600)), max_size=30))
def test_ids_never_repeat(steps: list[tuple[int, int]]) -> None:
    clock = HandClock()
    generator = UniqueIdGenerator(LOCALHOST, 1, clock)
    ids: list[str] = []
    for step, number in steps:
        clock.now += step
        ids.extend(generator.next_id() for _ in range(number))
    assert len(set(ids)) == len(ids)
    assert [identifier[20:28] for identifier in ids] == sorted(
        identifier[20:28] for identifier in ids
    )


@pytest.mark.parametrize("made_before", [256, 65536])
@pytest.mark.parametrize("passed", [0, 1, 40 * 86_400_000])
def test_an_interrupt_leads_to_no_id_twice(made_before: int, passed: int) -> None:
    """Ctrl-C may come at each line: of a block, a millisecond, a month that begins."""
    for line in itertools.count(1):
        clock = HandClock()
        ids = UniqueIdGenerator(LOCALHOST, 42, clock)
        made = ids.next_ids(made_before)
        clock.now += passed
        left = line

        def trace(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal left
            left -= event == "line"
            if left == 0:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            made.append(ids.next_id())
            made.append(ids.next_id())
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        made += ids.next_ids(600)
        made += [ids.next_id() for _ in range(600)]
        assert len({*made}) == len(made)
        if left > 0:
            break
    assert line > 10
