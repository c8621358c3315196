"""`python small_file_system.py DIRECTORY SCENARIO`, run in a mount namespace of its
own: mounts a small tmpfs, fills it and prints what happened.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from rocketmq_sdk import (
    BrokerError,
    ConsumeFrom,
    EmbeddedBroker,
    Message,
    NotFoundError,
    Producer,
    ServiceNotAvailableError,
    SimpleConsumer,
)
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files import os_files
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.errors import StoreFullError
from support.store import bodies, message, open_store, small_config
from support.waiting import until

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import PutResult

KIB = 1024


class Filler:
    """A file that takes the space of others."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "filler"

    def fill(self, leave: int = 0) -> None:
        """Take everything, to the last byte, and give some of it back."""
        with self.path.open("ab", buffering=0) as file:
            for size in (64 * KIB, 4 * KIB, 512, 1):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue
            if leave:
                file.truncate(max(0, file.tell() - leave))

    def free(self) -> None:
        self.path.unlink()


class Scene:
    def __init__(self, directory: Path, **settings: Any) -> None:
        self.filler = Filler(directory)
        self.root = directory / "store"
        sizes = {
            "mapped_file_size_commit_log": 256 * KIB,
            "mapped_file_size_consume_queue": 20 * 500,
            "allocation_step": 16 * KIB,
        }
        self.config = small_config(**{**sizes, "flush_interval_consume_queue": 20, **settings})
        self.acknowledged: list[bytes] = []

    def open(self) -> MessageStore:
        return open_store(OsFileSystem(self.root), self.config)

    def put(self, store: MessageStore) -> PutResult:
        body = b"%06d " % len(self.acknowledged) * 70
        result = store.put(message(body=body))
        if result.ok:
            self.acknowledged.append(body)
        return result

    def until_refused(self, store: MessageStore) -> str:
        while (result := self.put(store)).ok:
            pass
        return result.status.name

    async def end(self) -> dict[str, Any]:
        """Open it again with space, look at everything."""
        async with self.open() as store:
            kept = bodies(store) == self.acknowledged
            taken = self.put(store).ok
        return {
            "kept": kept,
            "taken": taken,
            "findings": [str(finding) for finding in verify_directory(self.root).findings],
        }


async def write(directory: Path) -> dict[str, Any]:
    """No space in the file that is open."""
    scene = Scene(directory)
    async with scene.open() as store:
        for _ in range(10):
            scene.put(store)
        await until(lambda: store._log.chain.next_file is not None)
        scene.filler.fill()
        refused = scene.until_refused(store)
        alive = bodies(store) == scene.acknowledged
        scene.filler.free()
        await until(lambda: store.writable)
        again = scene.put(store).ok
    return {"refused": refused, "alive": alive, "again": again, **await scene.end()}


async def next_file(directory: Path) -> dict[str, Any]:
    """No space for another file."""
    scene = Scene(directory, mapped_file_size_commit_log=64 * KIB, allocation_step=64 * KIB)
    async with scene.open() as store:
        scene.put(store)
        await until(lambda: store._log.chain.next_file is not None)
        scene.filler.fill()
        refused = scene.until_refused(store)
        alive = bodies(store) == scene.acknowledged
        scene.filler.free()
        await until(lambda: store.writable)
        again = scene.put(store).ok
    return {"refused": refused, "alive": alive, "again": again, **await scene.end()}


async def ratio(directory: Path) -> dict[str, Any]:
    """More of the disk is used than may be."""
    scene = Scene(directory, clean_resource_interval=20, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    async with scene.open() as store:
        for _ in range(10):
            scene.put(store)
        await store.flush()
        scene.filler.fill(leave=32 * KIB)
        with trio.fail_after(90):
            while store.writable:
                store.retention.clean_now()  # looks at the disk at once
                await trio.sleep(0.05)
        refused = store.put(message()).status.name
        await store.flush()
        alive = bodies(store)[:10] == scene.acknowledged[:10]
        scene.filler.free()
        with trio.fail_after(90):
            while not store.writable:
                store.retention.clean_now()
                await trio.sleep(0.05)
        again = scene.put(store).ok
    return {"refused": refused, "alive": alive, "again": again, **await scene.end()}


async def close_full(directory: Path) -> dict[str, Any]:
    """Closed while there is no space at all, then opened with space."""
    scene = Scene(directory)
    async with scene.open() as store:
        for _ in range(5):
            scene.put(store)
        scene.filler.fill()
        refused = scene.until_refused(store)
        alive = bodies(store) == scene.acknowledged
    scene.filler.free()
    return {"refused": refused, "alive": alive, "again": True, **await scene.end()}


async def config(directory: Path) -> dict[str, Any]:
    """A config file that cannot be written."""
    scene = Scene(directory)
    async with scene.open() as store:
        scene.put(store)
        file = ConfigFile(store.files, "topics.json")
        file.store({"value": 1})
        scene.filler.fill()
        refused = ""
        try:
            file.store({"value": 2, "filling": "x" * 20_000})
        except StoreFullError as error:
            refused = type(error).__name__
        alive = ConfigFile(store.files, "topics.json").load() == {"value": 1}
        scene.filler.free()
        file.store({"value": 3})
        again = ConfigFile(store.files, "topics.json").load() == {"value": 3}
    return {"refused": refused, "alive": alive, "again": again, **await scene.end()}


async def without_fallocate(directory: Path) -> dict[str, Any]:
    """Where the system cannot allocate space."""
    os_files._HAS_FALLOCATE = False
    found = await write(directory)
    assert OsFileSystem(directory).allocates_by_zeros
    return found


class Edge:
    """A whole broker with default settings on a small disk, and its clients."""

    def __init__(self, directory: Path) -> None:
        self.filler = Filler(directory)
        self.root = directory / "store"
        self.sent: list[bytes] = []
        self.seen: set[bytes] = set()

    async def send_until_refused(self, producer: Producer, most: int) -> int:
        """The code of the first refusal; 0 when `most` messages were taken."""
        for _ in range(most):
            body = b"%06d " % len(self.sent) * 300
            try:
                await producer.send(Message("orders", body))
            except BrokerError as error:
                return error.code
            self.sent.append(body)
        return 0

    async def until_taken(self, producer: Producer) -> bool:
        """Send until it works, for at most 20 s."""
        with trio.move_on_after(20):
            while await self.send_until_refused(producer, 1):
                await trio.sleep(0.05)
            return True
        return False

    def counts(self) -> tuple[str, str]:
        """What was sent and not seen yet, for whoever reads of a failure."""
        left = set(self.sent) - self.seen
        return f"{len(self.sent)} sent", f"{len(left)} not seen {sorted(left)[:3]!s:.60}"

    async def drain(self, broker: EmbeddedBroker, group: str) -> bool:
        """A new group takes everything there is, in at most a minute."""
        first = ConsumeFrom.FIRST_OFFSET
        async with SimpleConsumer(
            group, namesrv=broker, subscriptions={"orders": "*"}, consume_from=first
        ) as consumer:
            with trio.move_on_after(60):
                while not self.seen.issuperset(self.sent):
                    messages = await consumer.receive(max_messages=32, await_duration=1)
                    self.seen.update(message.body for message in messages)
                    for message in messages:
                        # Its file was removed; or the note of its pop went to the last
                        # space of the log, and it comes again.
                        with contextlib.suppress(NotFoundError, ServiceNotAvailableError):
                            await consumer.ack(message)
        return self.seen.issuperset(self.sent)


def tell(broker: EmbeddedBroker, root: Path) -> None:
    """What keeps messages out, for whoever reads of a failure."""
    health, files = broker.health(), broker.store.files
    print(health, *health.services, broker.store.statistics(), sep="\n", file=sys.stderr)
    print("used", files.used_ratio(), sep="\t", file=sys.stderr)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            print(path.stat().st_blocks * 512, path.relative_to(root), sep="\t", file=sys.stderr)


async def edge(directory: Path) -> dict[str, Any]:
    """Sent to until the disk is full, drained while it is, started while it is; then
    with space, more is sent than the disk holds.
    """
    scene = Edge(directory)
    async with (
        EmbeddedBroker(scene.root, clean_file_forcibly_enable=False) as broker,
        Producer("shop", namesrv=broker, retry_times=0) as producer,
    ):
        await scene.send_until_refused(producer, 500)
        await until(lambda: (scene.root / "reserve").exists())
        scene.filler.fill()
        refused = await scene.send_until_refused(producer, 20_000)
        alive = await scene.drain(broker, "first")
        print("first life:", refused, *scene.counts(), file=sys.stderr)
    scene.seen.clear()
    async with (
        EmbeddedBroker(scene.root, clean_file_forcibly_enable=False) as broker,
        Producer("shop", namesrv=broker, retry_times=0) as producer,
    ):
        # What the last life could not write at its end may have left some space.
        again_refused = await scene.send_until_refused(producer, 20_000)
        alive = alive and again_refused in (1, 14)
        kept = await scene.drain(broker, "second")
        print("second life:", again_refused, *scene.counts(), file=sys.stderr)
        scene.filler.free()
        again = await scene.until_taken(producer)
    async with (
        EmbeddedBroker(scene.root) as broker,
        Producer("shop", namesrv=broker, retry_times=0) as producer,
    ):
        await scene.send_until_refused(producer, 12_000)
        taken = await scene.until_taken(producer) and len(broker.store.topics()) > 0
        if not taken:
            tell(broker, scene.root)
        kept = kept and broker.store.max_physical_offset - broker.store.min_physical_offset > 2**23
    report = verify_directory(scene.root)
    return {
        "refused": "SERVICE_NOT_AVAILABLE" if refused in (1, 14) else str(refused),
        "alive": alive,
        "again": again,
        "kept": kept and (scene.root / "fileSizes.properties").exists(),
        "taken": taken,
        "findings": [str(finding) for finding in report.findings],
    }


def main() -> None:
    directory = Path(sys.argv[1])
    size = "24m" if sys.argv[2] == "edge" else "2m"
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], check=True
    )
    scenario = {
        "write": write,
        "next_file": next_file,
        "ratio": ratio,
        "close_full": close_full,
        "config": config,
        "edge": edge,
        "without_fallocate": without_fallocate,
    }[sys.argv[2]]
    print(json.dumps(trio.run(scenario, directory)))


if __name__ == "__main__":
    main()
