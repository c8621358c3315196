"""The deletion of a topic: its queues go, its records stay until their files are old.

`deleteTopic` of Apache RocketMQ 5.4.0. First no position is vouched for any more, then
the deletion is noted, then the directories get other names; a crash leaves the topic or
finishes the deletion. All that waits for the disk runs in a thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.checkpoint import Checkpoint
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import ConsumeQueueTable
    from rocketmq_sdk.broker_embedded.store.queues.deleted_topics import DeletedTopics

_TRIES: Final = 10


async def delete_queues(
    topic: str,
    files: FileSystem,
    log: CommitLog,
    table: ConsumeQueueTable,
    checkpoint: Checkpoint,
    deleted: DeletedTopics,
) -> None:
    """Drop the queues of a topic, durably. Raises `StoreError`.

    For one caller at a time, who has the checkpoint's turn and refuses messages of the
    topic. Those that a master sends to its slave cannot be refused; when they keep
    coming, nothing is deleted.
    """
    for _ in range(_TRIES):
        if topic not in table.queues:
            return
        position = log.position
        notes = deleted.with_one_more(topic, position, log.min_position)

        def note(notes: dict[str, int] = notes) -> None:
            checkpoint.forget_position()
            deleted.write(notes)

        await files.run(note)
        if all(queue.max_physical <= position for queue in table.queues[topic].values()):
            deleted.take(notes)
            parents = table.delete_topic(topic)
            await files.run(partial(table.sync_directories, parents))
            return
    await files.run(lambda: deleted.write(deleted.positions))
    raise StoreError(f"{topic} is not deleted: its messages keep coming; ask the master first")
