"""Bits flipped and files cut at random places of a whole directory: a start ends, and
says what it does not open; verify always ends.
"""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.errors import StoreCorruptError
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time
PARTS = ("commitlog", "consumequeue", "index", "config", "checkpoint", "cleanStop.json")
CONFIG = small_config(max_hash_slot_num=10, max_index_num=40)
COUNT = 80


async def write(root: Path) -> None:
    async with open_store(OsFileSystem(root), CONFIG) as store:
        for number in range(COUNT):
            store.put(
                message(
                    f"Topic{number % 3}",
                    number % 2,
                    b"%d " % number * 20,
                    tag="t",
                    properties={"KEYS": f"k{number}"},
                )
            )


def victims(root: Path) -> list[Path]:
    return [
        path
        for part in PARTS
        for path in ([root / part] if (root / part).is_file() else sorted((root / part).rglob("*")))
        if path.is_file()
    ]


def flip(path: Path, generator: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(generator.choice([1, 1, 3, 40])):
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    path.write_bytes(data)


async def opens(root: Path) -> str | None:
    """Whether a start ends in an open store that takes messages; else the refusal."""
    with trio.fail_after(60):
        try:
            async with open_store(OsFileSystem(root), CONFIG) as store:
                assert store.put(message()).ok
        except StoreCorruptError as error:
            return str(error)
    return None


@pytest.mark.parametrize("stop", ["clean", "unclean"])
async def test_after_flipped_bits_a_start_ends_open_or_names_the_file_that_it_does_not_open(
    stop: str, tmp_path: Path
) -> None:
    await write(tmp_path / "whole")
    generator = random.Random(stop)
    for number in range(20):
        root = tmp_path / f"{stop}{number}"
        shutil.copytree(tmp_path / "whole", root)
        damaged = [generator.choice(victims(root)) for _ in range(generator.choice([1, 2, 5]))]
        for path in damaged:
            flip(path, generator)
        if stop == "unclean":
            (root / "abort").touch()
        verify_directory(root)
        refusal = await opens(root)
        if refusal is None:
            verify_directory(root)
            assert await opens(root) is None
        else:
            # Only for damage that a repair has to be asked for: the header of an index
            # that claims what cannot be.
            assert any(
                str(path.relative_to(root)) in refusal
                for path in damaged
                if path.parent.name == "index"
            )
        shutil.rmtree(root)


async def test_a_file_of_another_length_is_refused_by_its_name(tmp_path: Path) -> None:
    await write(tmp_path / "whole")
    generator = random.Random(3)
    for number in range(20):
        root = tmp_path / f"cut{number}"
        shutil.copytree(tmp_path / "whole", root)
        # Of two index files of different lengths nobody knows which is right.
        path = generator.choice(
            [
                path
                for path in victims(root)
                if path.relative_to(root).parts[0] in ("commitlog", "consumequeue")
            ]
        )
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(generator.choice([size - 1, size // 2, size + 1, size * 3]))
        name = str(path.relative_to(root))
        assert name in {finding.path for finding in verify_directory(root).findings}
        assert name in (await opens(root) or "")
        shutil.rmtree(root)
