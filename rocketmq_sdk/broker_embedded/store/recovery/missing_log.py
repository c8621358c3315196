"""A store whose log, or a part of it, is not where it should be.

A start without a log drops queues and index, as Apache's does: they point to nothing.
That is wrong when the log is only out of sight, on a disk that is not mounted or in the
place of `storePathCommitLog`. The name of the first log file becomes durable before
anything can be written that speaks of it (`CommitLog`), so no power cut looks like
that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.files.chained_file import file_name
from rocketmq_sdk.broker_embedded.store.files.checkpoint import PATH as CHECKPOINT_PATH
from rocketmq_sdk.broker_embedded.store.files.checkpoint import Checkpoint
from rocketmq_sdk.broker_embedded.store.flush.unsynced_note import PATH as UNSYNCED_PATH
from rocketmq_sdk.broker_embedded.store.index.service import DIRECTORY as INDEX_DIRECTORY
from rocketmq_sdk.broker_embedded.store.log.commit_log import DIRECTORY as LOG_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import BATCH_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import DIRECTORY as QUEUE_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.removed_queues import topic_directories
from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import PATH as CLEAN_STOP_PATH
from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import read_note
from rocketmq_sdk.errors import StoreCorruptError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_REMEDY: Final = (
    "mount its disk, or set storePathCommitLog to where it is; to begin anew without its "
    "messages, move the whole store directory away"
)


def refuse_without_log(files: FileSystem) -> None:
    """Raise `StoreCorruptError` when only the log is missing; changes nothing."""
    if any(size for _name, size in files.file_sizes(LOG_DIRECTORY)):
        return
    left = _left(files)
    if left is not None:
        raise StoreCorruptError(
            f"{files.description} has no log in {LOG_DIRECTORY}, but {left} tells of one; {_REMEDY}"
        )


def refuse_gap(chain: FileChain) -> None:
    """Raise `StoreCorruptError` when a file in the middle of the log is missing.

    Only after a clean stop: a power cut may lose the name of a file and keep that of
    the next one. Changes nothing.
    """
    gap = chain.gap
    if gap is not None:
        following = min(file.start for file in chain.files if file.start > gap)
        raise StoreCorruptError(
            f"{chain.directory}/{file_name(gap)} is missing: {chain.store_files.description} has "
            f"no log from {gap} to {following}; put the file back, or, if it is lost, move the "
            "log files in front of the gap away to keep the newer messages, or those behind it "
            "to keep the older ones"
        )


def _left(files: FileSystem) -> str | None:
    """What a log has left behind."""
    if read_note(files).log_end:
        return CLEAN_STOP_PATH
    checkpoint = Checkpoint(files)
    checkpoint.load()
    if max(checkpoint.physic_timestamp, checkpoint.logics_timestamp) > 0:
        return CHECKPOINT_PATH
    if (files.read(UNSYNCED_PATH) or b"0") != b"0":
        return UNSYNCED_PATH
    if any(size for _name, size in files.file_sizes(INDEX_DIRECTORY)):
        return INDEX_DIRECTORY
    for parent in (QUEUE_DIRECTORY, BATCH_DIRECTORY):
        for topic in topic_directories(files.directory_names(parent)):
            for queue in files.directory_names(f"{parent}/{topic}"):
                directory = f"{parent}/{topic}/{queue}"
                if any(size for _name, size in files.file_sizes(directory)):
                    return directory
    return None
