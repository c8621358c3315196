"""What a process does with a store whose messages come many at a time.

Plain sends that arrived together are put as runs, in the way of `PlainSends`; a
client's batch has up to two hundred messages that are alike; and the store puts off
what nobody waits for, which a crash may come before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code
from support.crash_life import SPACE, TOPICS, Life
from support.crash_owed import GONE, Key, Wanted, check_index, properties_start
from support.store import BORN_HOST, message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from rocketmq_sdk.broker_embedded.store.append.run import Lane
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.testing.faulty_files import FaultyFileSystem

SUFFIX = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
"""What a broker adds to the properties of a send."""
FORMS = (
    "UNIQ_KEY\x01{}\x02WAIT\x01true\x02",
    "UNIQ_KEY\x01{}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "WAIT\x01true\x02UNIQ_KEY\x01{}\x02TAGS\x01TagB\x02",
)
"""Properties as this package and Java write them: the unique key comes first or not."""
COUNTER = 1 << 16
LOST = 0.02
"""How often a crash comes before what a store has put off."""
PLACES = [(topic, queue_id) for topic in TOPICS for queue_id in range(3)]
BORN = 1_700_000_000_000


@attrs.define
class Send:
    """One plain message that has arrived, and where it came to stand."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    tag: str | None

    @property
    def key(self) -> tuple[str, int]:
        """Its queue."""
        return self.topic, self.queue_id

    def message(self) -> MessageToStore:
        """As it is handed in when it comes alone."""
        return MessageToStore(
            self.topic,
            self.queue_id,
            self.body,
            self.properties,
            born_host=BORN_HOST,
            born_timestamp=BORN,
            tags_code=tags_code(self.tag),
        )


@attrs.define
class Served:
    """Sends that were put with one call, and where their records are."""

    result: PutResult
    positions: Sequence[int]
    offsets: Sequence[int]


Waiting = tuple[PutResult, list[tuple[Key, int]]]
"""What is durable with a put."""


class Client:
    """Makes properties as one producer does: unique keys are equally long, end with a
    time and a counter, and all else is mostly the same.
    """

    def __init__(self, generator: Random, number: int) -> None:
        self._generator = generator
        self._number = number
        self._stem = f"7F000001{number:04X}{generator.randrange(1 << 32):08X}"
        self._count = generator.choice([0, COUNTER - 40])
        self._named = 0
        self._ms = 0
        self._form, self._keyed = FORMS[0], 0.0

    def next_burst(self) -> None:
        """What comes now may look differently."""
        self._form = self._generator.choice(FORMS)
        self._keyed = self._generator.choice([0.0, 0.0, 0.0, 0.2, 1.0])
        self._ms = max(self._ms, int(trio.current_time() * 1000))

    def properties(self) -> tuple[str, str | None]:
        """Those of the next message, with its tag."""
        self._count += 1
        if not self._count % COUNTER or self._generator.random() < 0.02:
            self._ms += 1
        text = self._form.format(f"{self._stem}{self._ms:08X}{self._count % COUNTER:04X}")
        if self._keyed and self._generator.random() < self._keyed:
            self._named += 1
            text += f"KEYS\x01own-{self._number}-{self._named}\x02"
        tag = text.partition("TAGS\x01")[2].partition("\x02")[0]
        return text, tag or None


class PutOff:
    """What a store has put off until an answer has left, or nobody waits."""

    def __init__(self) -> None:
        self.alone = False
        """Whether a request is served that came alone."""
        self._at_once: list[Callable[[], None]] = []
        self._behind: list[Callable[[], None]] = []

    def answered(self, call: Callable[[], None]) -> bool:
        """`Housekeeper.after_answer`."""
        if self.alone:
            self._at_once.append(call)
        return self.alone

    def idle(self, call: Callable[[], None]) -> bool:
        """`Housekeeper.behind_chunk`."""
        self._behind.append(call)
        return True

    def answers_left(self) -> None:
        """Call what waited for an answer."""
        calls, self._at_once = self._at_once, []
        for call in calls:
            call()

    def nobody_waits(self) -> None:
        """Call the rest."""
        calls, self._behind = self._behind, []
        for call in calls:
            call()


class TogetherLife(Life):
    """A life in which many messages come at once, now and then."""

    def __init__(
        self,
        store: MessageStore,
        files: FaultyFileSystem,
        wanted: Wanted,
        generator: Random,
        number: int,
    ) -> None:
        super().__init__(store, files, wanted, generator, number)
        self.client = Client(generator, number)
        self.off = PutOff()
        self.lost = LOST
        store.put_off(answered=self.off.answered, idle=self.off.idle)

    def kinds(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return [
            *super().kinds(),
            self.put_run,
            self.put_run,
            self.put_run,
            self.put_alike,
            self.trickle,
            self.look_up,
            self.catch_up,
        ]

    async def put_run(self) -> None:
        """Plain sends that arrived together: a run or several, and one by one what no
        run takes.
        """
        self.client.next_burst()
        await self._put_run(self._sends(self.generator.choice([2, 3, 8, 20, 64, 64])))

    async def trickle(self) -> None:
        """Runs that are alike, each a moment after the other; nobody has time."""
        self.client.next_burst()
        topic = self.generator.choice(TOPICS)
        for _ in range(self.generator.choice([3, 6])):
            sends = self._sends(self.generator.choice([10, 20, 30]), topic)
            await self._put_run(sends, idle=False)
            if self.files.dead:
                return
            await trio.sleep(self.generator.choice([0.001, 0.02, 0.6]))
        self.off.nobody_waits()

    async def _put_run(self, sends: Sequence[Send], *, idle: bool = True) -> None:
        one_write = self.generator.random() < 0.5
        if one_write:
            self.store.begin()
        served = self._serve(sends)
        if one_write:
            try:
                self.store.end()
            except StoreError:
                return
        if self.files.dead:
            return
        waiting = self._have(sends, served)
        self.chunk_ends(idle=idle)
        if self.generator.random() < 0.5 or not self.store.tells_durable:
            for result, owed in waiting:
                await self.wait(result, owed)
        else:
            for result, owed in waiting:
                self.store.when_durable(result, partial(self.told, owed))

    def _serve(self, sends: Sequence[Send]) -> list[Served]:
        """Put sends until one is refused."""
        most = self.generator.choice([4, 16, 64, 64])
        served: list[Served] = []
        at = 0
        while at < len(sends):
            one = self._run(sends[at : at + most]) or self._alone(sends[at])
            if not one.result.ok:
                break
            served.append(one)
            at += len(one.positions)
        return served

    def _have(self, sends: Sequence[Send], served: Sequence[Served]) -> list[Waiting]:
        """The store has what it took, and owes it."""
        arrived = iter(sends)
        return [
            (
                one.result,
                [
                    self.has(next(arrived), offset, position)
                    for offset, position in zip(one.offsets, one.positions, strict=True)
                ],
            )
            for one in served
        ]

    def _sends(self, count: int, only: str = "") -> list[Send]:
        """Sends of one producer, each mostly to the topic of the one before; or all to
        one topic.
        """
        generator, client = self.generator, self.client
        size, change = generator.choice([1, 10, 40]), generator.choice([0, 0.05, 0.3])
        topic, queue_id = generator.choice(PLACES)
        sends: list[Send] = []
        for _ in range(count):
            if generator.random() < change:
                topic = generator.choice([*TOPICS, *TOPICS, *TOPICS, GONE])
            if generator.random() < 0.4:
                queue_id = generator.randrange(3)
            topic = only or topic
            text, tag = client.properties()
            self.count += 1
            body = b"%d-%d " % (self.number, self.count) * generator.choice([size, size, 2 * size])
            sends.append(Send(topic, queue_id, body, text + SUFFIX, tag))
        return sends

    def _run(self, sends: Sequence[Send]) -> Served | None:
        """Put the first sends as a run; None where that takes none."""
        run = self.store.begin_run()
        if run is None:
            return None
        lanes: dict[tuple[str, int], Lane] = {}
        for send in sends:
            lane = lanes.get(send.key) or run.lane(*send.key)
            if lane is None:
                break
            lanes[send.key] = lane
            run.messages.append(
                (lane, send.body, send.properties.encode(), BORN, (0, 0, 0, 0), tags_code(send.tag))
            )
        if not run.messages or not self.store.put_run(run, BORN_HOST):
            return None
        start = run.positions[0]
        result = PutResult(PutStatus.PUT_OK, start, run.end - start)
        return Served(result, run.positions, run.offsets)

    def _alone(self, send: Send) -> Served:
        result = self.store.put(send.message())
        return Served(result, [result.physical_offset], [result.queue_offset])

    def has(self, send: Send, offset: int, position: int) -> tuple[Key, int]:
        """A message was accepted: the store has it as it was sent."""
        key, _position = owed = self.accepted(send.topic, send.queue_id, offset, position)
        record = self.wanted.accepted[key][1]
        found = decode_message(record, inflate=False)
        assert (found.topic, found.queue_id, found.offset) == key, f"{key} is {found}"
        assert found.body == send.body, f"{key} has the body {found.body!r}"
        properties = record[properties_start(record) :].decode()
        assert properties == send.properties, f"{key} has the properties {properties!r}"
        return owed

    async def put_alike(self) -> None:
        """A client's batch of many messages that are alike; or two, or plain sends
        behind it before its answer has left.
        """
        waiting: list[Waiting] = []
        for _ in range(self.generator.choice([1, 1, 1, 2])):
            self.off.alone = self.generator.random() < 0.8
            sends = self._batch()
            items = [(0, send.body, send.properties.encode()) for send in sends]
            result = self.store.put_batch(message(*sends[0].key, encode_batch(items)))
            self.off.alone = False
            if self.files.dead:
                return
            if result.ok:
                positions = result.physical_offsets or []
                offsets = range(result.queue_offset, result.queue_offset + len(sends))
                waiting += self._have(sends, [Served(result, positions, offsets)])
        if self.generator.random() < 0.5:
            self.client.next_burst()
            sends = self._sends(self.generator.choice([1, 5, 20]))
            served = self._serve(sends)
            if self.files.dead:
                return
            waiting += self._have(sends, served)
        self.chunk_ends()
        for result, owed in waiting:
            await self.wait(result, owed)

    def _batch(self) -> list[Send]:
        """The messages of a batch that fits into a file of the log."""
        generator, client = self.generator, self.client
        client.next_burst()
        topic, queue_id = generator.choice(PLACES)
        room = self.store.config.mapped_file_size_commit_log - 200
        sends: list[Send] = []
        for _ in range(generator.choice([10, 20, 50, 100, 200])):
            text, tag = client.properties()
            self.count += 1
            body = b"%d-%06d " % (self.number, self.count)
            room -= len(body) + len(text) + len(topic) + 100
            if room < 0:
                break
            sends.append(Send(topic, queue_id, body, text, tag))
        return sends

    def chunk_ends(self, *, idle: bool = True) -> None:
        """What was put off is done, unless the process dies before."""
        if self.generator.random() < self.lost:
            self.files.halt()
            return
        self.off.answers_left()
        if idle and self.generator.random() < 0.8:
            self.off.nobody_waits()

    async def catch_up(self) -> None:
        """There is time for what was put off."""
        self.off.nobody_waits()

    async def look_up(self) -> None:
        """Messages are found by their keys while others come."""
        if not self.files.faults and self.files.limit_bytes >= SPACE:
            await check_index(self.store, self.wanted, self.generator)
