"""Repair of a store directory: rebuilds from the log, and cuts a torn end.

Nothing else is touched. The work is done by the store's own recovery, from the first
log file on. Damage in the middle of the log cannot be repaired, and recovery would cut
the log there, so such a directory is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.log.place import open_files
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import BATCH_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import DIRECTORY as QUEUE_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import MULTI_DISPATCH_PREFIX
from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import ABORT_PATH
from rocketmq_sdk.broker_embedded.store.recovery.missing_log import refuse_without_log
from rocketmq_sdk.broker_embedded.store_tool.index import DIRECTORY as INDEX_DIRECTORY
from rocketmq_sdk.broker_embedded.store_tool.index import slot_count
from rocketmq_sdk.broker_embedded.store_tool.queues import EXTENSION_DIRECTORY
from rocketmq_sdk.broker_embedded.store_tool.report import in_silence
from rocketmq_sdk.broker_embedded.store_tool.verify import check_is_store, verify_directory
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
    from rocketmq_sdk.broker_embedded.store_tool.report import Finding, Progress, StoreReport

_QUEUE_KINDS = frozenset({"unit", "behind", "missing", "extra", "gap", "name", "size"})
_HARMLESS = frozenset({"abort", "tail", "properties", "config", "set_aside"})
_NOBODY = b"\x7f\x00\x00\x01\x00\x00\x00\x00"


class Plan:
    """What a repair would do, in words, or why it cannot be done."""

    def __init__(self, report: StoreReport) -> None:
        self.queues: list[str] = []
        self.index = False
        self.cut: int | None = None
        self.refusals: list[Finding] = []
        self.left: list[Finding] = []
        """What stays as it is: a broker copes with it and no repair is possible."""
        self.recover = False
        for finding in report.findings:
            self._place(finding, report)

    def _place(self, finding: Finding, report: StoreReport) -> None:
        top, _, rest = finding.path.partition("/")
        if (
            top in (QUEUE_DIRECTORY, BATCH_DIRECTORY)
            and finding.kind in _QUEUE_KINDS
            and not rest.startswith(MULTI_DISPATCH_PREFIX)
        ):
            self._rebuild("/".join(finding.path.split("/")[:3]))
        elif top == EXTENSION_DIRECTORY and not rest.startswith(MULTI_DISPATCH_PREFIX):
            # The units that point there have their tags codes there.
            place = "/".join(rest.split("/")[:2])
            self._rebuild(f"{QUEUE_DIRECTORY}/{place}")
            self._rebuild(f"{EXTENSION_DIRECTORY}/{place}")
        elif top == INDEX_DIRECTORY:
            self.index = True
        elif finding.kind == "tail":
            self.cut = report.log_end
        elif finding.kind in ("abort", "checkpoint", "queue_behind"):
            self.recover = True
        elif finding.kind in _HARMLESS:
            self.left.append(finding)
        else:
            self.refusals.append(finding)

    def _rebuild(self, directory: str) -> None:
        if directory not in self.queues:
            self.queues.append(directory)

    @property
    def steps(self) -> list[str]:
        """The steps in words; empty when there is nothing to do."""
        steps = [f"cut the log at {self.cut}"] if self.cut is not None else []
        steps += [f"remove {queue} and build it again from the log" for queue in self.queues]
        if self.index:
            steps.append("remove the index and build it again from the log")
        if self.recover and not steps:
            steps.append("recover the store and close it")
        return steps


def repair_directory(
    root: str | os.PathLike[str],
    tell: Callable[[str], None],
    *,
    commit_log: str | os.PathLike[str] | None = None,
    queue_file_size: int = 0,
    advance: Progress = in_silence,
) -> RepairJob:
    """Inspect a directory and plan its repair.

    Raises `StoreError` for what cannot be read, `StoreLockedError` when somebody has it
    open, `StoreCorruptError` when its log is not there. `commit_log` is where the log
    is when it is elsewhere. `queue_file_size` is needed only when no queue file is left
    that shows it; Apache's default is 6,000,000.
    """
    check_is_store(root)
    files = open_files(root, commit_log)
    files.lock()
    try:
        refuse_without_log(files)
        report = verify_directory(root, advance, commit_log=commit_log, running=False)
    finally:
        files.unlock()
    return RepairJob(
        lambda: open_files(root, commit_log), report, Plan(report), tell, queue_file_size
    )


class RepairJob:
    """A planned repair."""

    def __init__(
        self,
        make_files: Callable[[], OsFileSystem],
        report: StoreReport,
        plan: Plan,
        tell: Callable[[str], None],
        queue_file_size: int,
    ) -> None:
        self.report = report
        self.plan = plan
        self._make_files = make_files
        self._tell = tell
        self._queue_file_size = report.queue_file_size or queue_file_size

    async def run(self) -> None:
        """Do the repair; each step is reported before it is taken.

        Raises `StoreError`, also for a plan that holds refusals.
        """
        if self.plan.refusals:
            raise StoreError(f"{self.plan.refusals[0]}; a repair would lose what is behind it")
        if not self.plan.steps:
            return
        files = self._make_files()
        config = self._config(files)
        files.lock()
        try:
            for step in self.plan.steps:
                self._tell(step)
            # First: if this is interrupted, the next start must check everything.
            files.write(ABORT_PATH, b"")
            files.remove("checkpoint")
            files.sync_directory(".")
            for queue in self.plan.queues:
                files.remove_tree(queue)
            if self.plan.index:
                files.remove_tree(INDEX_DIRECTORY)
        finally:
            files.unlock()
        async with MessageStore(config, self._make_files(), TrioClock(), _NOBODY) as store:
            await store.wait_indexed()
            self._tell(f"recovered: the log ends at {store.max_physical_offset}")

    def _config(self, files: OsFileSystem) -> StoreConfig:
        """The sizes of this directory."""
        settings: dict[str, int] = {}
        if self.report.log_file_size:
            settings["mapped_file_size_commit_log"] = self.report.log_file_size
        if self._queue_file_size:
            settings["mapped_file_size_consume_queue"] = self._queue_file_size
        if self.report.batch_file_size:
            settings["mapper_file_size_batch_consume_queue"] = self.report.batch_file_size
        if self.report.extension_file_size:
            settings["mapped_file_size_consume_queue_ext"] = self.report.extension_file_size
        sizes = [size for _name, size in files.file_sizes(INDEX_DIRECTORY) if size]
        slots = slot_count(sizes[0]) if sizes else None
        if slots:
            settings.update(max_hash_slot_num=slots, max_index_num=slots * 4)
        return StoreConfig(message_index_enable=bool(slots), **settings)  # type: ignore[arg-type]
