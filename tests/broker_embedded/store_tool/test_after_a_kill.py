"""What a kill leaves for the next start is told as that, and is nothing wrong; what the
checkpoint says that a queue had is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store_tool.repair import Plan, repair_directory
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.cli import main
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

CONFIG = small_config(
    mapped_file_size_commit_log=65_536,
    message_index_enable=False,
    flush_interval_consume_queue=1_000_000,
)


async def killed(first: int, later: int, *, batches: bool = False) -> FaultyFileSystem:
    """So many messages that are in a queue durably, and later ones that are not."""
    files = FaultyFileSystem(1)
    if batches:
        files.write(
            "config/topics.json",
            b'{"topicConfigTable":{"TopicA":{"topicName":"TopicA",'
            b'"attributes":{"queue.type":"BatchCQ"}},"New":{"topicName":"New"}}}',
        )
    async with open_store(files, CONFIG) as store:
        for number in range(first + later):
            if number == first:
                await store.flush()
                await trio.sleep(10)  # behind the checkpoint's margin
            assert store.put(message(body=b"%d" % number, tag="T")).ok
        if later:
            assert store.put(message("New", body=b"alone")).ok
        else:
            await trio.sleep(10)
            store.put(message("Other"))
            await store.flush()
        files.halt()
    return files.kill()


@pytest.mark.parametrize("batches", [False, True])
async def test_queues_that_end_before_the_log_are_mended_by_the_next_start(
    batches: bool, autojump_clock: MockClock
) -> None:
    files = await killed(5, 7, batches=batches)
    report = verify(FileSystemReader(files))
    assert {finding.kind for finding in report.findings} == {"abort", "queue_behind"}
    assert report.wrong == 0
    texts = [str(each) for each in report.findings if each.kind == "queue_behind"]
    assert len(texts) == 2
    assert all(text.endswith("; the next start adds them") for text in texts)
    assert Plan(report).steps == ["recover the store and close it"]
    async with open_store(files, CONFIG) as store:
        assert bodies(store) == [b"%d" % number for number in range(12)] or batches
    assert verify(FileSystemReader(files)).findings == []


@pytest.mark.parametrize("whole", [False, True])
async def test_what_the_checkpoint_vouches_for_is_missing(
    whole: bool, autojump_clock: MockClock
) -> None:
    files = await killed(5, 0)
    path = f"consumequeue/TopicA/0/{0:020d}"
    if whole:
        files.remove_tree("consumequeue/TopicA")
    else:
        files.open(path).pwrite(bytes(20), 80)
    report = verify(FileSystemReader(files))
    assert {finding.kind for finding in report.findings} == {
        "abort",
        "missing" if whole else "behind",
    }
    assert report.wrong == 1
    assert Plan(report).queues == ["consumequeue/TopicA/0"]


async def test_the_command_says_so_and_exits_with_0(
    tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    files = await killed(5, 7)
    for name in files.names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(files.read(name) or b"")
    code = await trio.to_thread.run_sync(main, ["store", "verify", str(tmp_path)])
    text = capsys.readouterr().out
    assert code == 0, text
    assert "the log has 7 more messages for it; the next start adds them" in text
    assert "nothing wrong: 13 records" in text
    await repair_directory(tmp_path, print).run()
    assert verify(FileSystemReader(files)).wrong == 0
