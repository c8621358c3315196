"""A look at a directory while a broker appends to it, rolls its files, flushes and
writes its config: nothing is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.flags import SysFlag
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

pytestmark = pytest.mark.real_time
LOOKS = 12


async def load(store: MessageStore) -> None:
    """Messages of several kinds until cancelled."""
    file = ConfigFile(store.files, "topics.json")
    number = 0
    while True:
        number += 1
        assert store.put(
            message(
                f"Topic{number % 3}",
                number % 2,
                b"%d " % number * (number % 40),
                tag="t",
                properties={"KEYS": f"k{number}"},
            )
        ).ok
        body = encode_batch(
            [(0, b"%d-%d" % (number, index), b"") for index in range(number % 3 + 1)]
        )
        inner = {"INNER_NUM": str(number % 3 + 1)}
        assert store.put(
            message(
                "Batches",
                0,
                body,
                sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
                properties=inner,
            )
        ).ok
        if number % 50 == 0:
            await file.save({"topicConfigTable": {"T": {"number": number}}})
        await trio.sleep(0.001)


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_a_directory_in_use_has_no_findings(flush: FlushDiskType, tmp_path: Path) -> None:
    settings = {
        "flush_disk_type": flush,
        "flush_interval_commit_log": 20,
        "flush_interval_consume_queue": 20,
        "max_hash_slot_num": 10,
    }
    config = small_config(
        **settings,
        max_index_num=40,
        mapper_file_size_batch_consume_queue=460,
        enable_consume_queue_ext=True,
    )
    store = open_store(OsFileSystem(tmp_path), config)
    store.ask_for_batch_topics({"Batches"}.__contains__)
    findings: list[str] = []
    async with store, trio.open_nursery() as nursery:
        nursery.start_soon(load, store)
        for _ in range(LOOKS):
            await trio.sleep(0.1)
            report = await trio.to_thread.run_sync(verify_directory, tmp_path)
            assert report.running
            findings += [str(finding) for finding in report.findings]
        nursery.cancel_scope.cancel()
    assert findings == []
    assert verify_directory(tmp_path).findings == []
