"""A process that appends until it is killed; each acknowledged record is printed.
Arguments: the directory, the number of the life.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.clock import TrioClock


async def main(root: str, life: int) -> None:
    """Append and print."""
    config = StoreConfig(
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=200,
        flush_interval_consume_queue=50,
    )
    async with MessageStore(
        config, OsFileSystem(root), TrioClock(), b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    ) as store:
        index = 0
        while True:
            result = store.put(
                MessageToStore(
                    f"Load{life}", index % 3, b"body %d" % index * (index % 30), "UNIQ_KEY\x01U\x02"
                )
            )
            record = store.record_at(result.physical_offset)
            assert result.ok
            assert record is not None
            sys.stdout.write(f"{index % 3} {result.queue_offset} {record.hex()} .\n")
            sys.stdout.flush()
            index += 1
            if index % 20 == 0:
                await trio.sleep(0.002)


trio.run(main, sys.argv[1], int(sys.argv[2]))
