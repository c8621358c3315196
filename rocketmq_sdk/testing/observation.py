"""What a broker under test holds at this moment, and how to say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ClosedError
from rocketmq_sdk.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    dead_letter_topic,
    is_system_group,
    is_system_topic,
    retry_topic,
)
from rocketmq_sdk.protocol.message_codec import decode_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.testing.traffic.recording import Recording
    from rocketmq_sdk.testing.traffic.request_faults import RequestFaults

_SHOWN: Final = 15
_AT_ONCE: Final = 256


class Observation:
    """A look into a running broker; synchronous, and it changes nothing.

    Each method raises `ClosedError` while the broker is stopped.
    """

    def __init__(
        self,
        running: Callable[[], EmbeddedBroker],
        requests: Recording,
        faults: RequestFaults,
    ) -> None:
        """`running` gives the broker, or raises `ClosedError`."""
        self._running = running
        self.requests = requests
        """The requests that came."""
        self._faults = faults

    @property
    def _core(self) -> EmbeddedBroker:
        return self._running()

    # Topics

    def topics(self) -> list[str]:
        """All topics but those of the broker itself."""
        topics = self._core.core.topics
        return sorted(
            name
            for name in topics.all()
            if not topics.is_system(name) and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        )

    def queues(self, topic: str) -> dict[int, tuple[int, int]]:
        """Where each queue of a topic begins and ends; empty for an unknown one."""
        store = self._core.store
        config = self._core.core.topics.get(topic)
        declared = range(max(config.read_queue_nums, config.write_queue_nums) if config else 0)
        return {
            queue: (max(0, store.min_offset(topic, queue)), max(0, store.max_offset(topic, queue)))
            for queue in sorted({*declared, *store.queue_ids(topic)})
        }

    def stored(self, topic: str) -> int:
        """How many messages a topic holds."""
        return sum(end - begin for begin, end in self.queues(topic).values())

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic, in the order in which they were stored."""
        found: list[ReceivedMessage] = []
        store = self._core.store
        for queue, (begin, end) in self.queues(topic).items():
            offset = begin
            while offset < end:
                result = store.get(topic, queue, offset, _AT_ONCE)
                messages = decode_messages(result.body)
                found += messages
                if result.next_begin_offset <= offset:
                    break
                offset = result.next_begin_offset
        name = self._core.config.broker_name
        for message in found:
            message.broker_name = name
        return sorted(found, key=lambda message: (message.commit_log_offset, message.offset))

    # Groups

    def members(self, group: str) -> list[str]:
        """The client ids of those who consume in a group now."""
        return sorted(set(self._core.parts.members.consumers.client_ids(group)))

    def subscriptions(self, group: str) -> list[str]:
        """The topics that the members of a group subscribe to."""
        found = self._core.parts.members.consumers.group(group)
        return [] if found is None else sorted(found.subscriptions)

    def groups(self) -> list[str]:
        """All groups that have members or offsets, but for the broker's own."""
        core = self._core
        live = {group.name for group in core.parts.members.consumers.groups()}
        names = live | core.core.offsets.all_groups()
        return sorted(name for name in names if not is_system_group(name))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The offset that a group has committed in each queue, -1 for none."""
        offsets = self._core.core.offsets
        return {queue: offsets.query(group, topic, queue) for queue in self.queues(topic)}

    def knows(self, group: str, topic: str | None = None) -> bool:
        """Whether there is such a group, and such a topic, to be behind in."""
        return group in self.groups() and (topic is None or bool(self.queues(topic)))

    def lag(self, group: str, topic: str | None = None) -> dict[str, int]:
        """How many messages of each topic a group has not committed; no zeros.

        Without a topic: those that it subscribes to or has offsets in, and its retries.
        """
        names = {topic} if topic is not None else self.topics_of(group)
        found: dict[str, int] = {}
        for name in names:
            committed = self.committed(group, name)
            behind = sum(
                max(0, end - max(begin, committed[queue]))
                for queue, (begin, end) in self.queues(name).items()
            )
            if behind:
                found[name] = behind
        return found

    def topics_of(self, group: str) -> set[str]:
        """Those that a group subscribes to or has offsets in, and its retries."""
        offsets = self._core.core.offsets.topics_of(group)
        return {*offsets, *self.subscriptions(group), retry_topic(group)}

    def owners(self, group: str) -> dict[tuple[str, int], str]:
        """Who of a group pulled each queue last, by topic and queue."""
        found: dict[tuple[str, int], str] = {}
        for seen in self.requests:
            if seen.code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE) and (
                group in seen.groups
            ):
                queue = seen.queue
                for topic in seen.topics:
                    if queue is not None:
                        found[topic, queue] = seen.client_id or seen.host
        return found

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """The messages that a group has given up."""
        return self.messages(dead_letter_topic(group))

    # What is under way

    def delayed(self) -> int:
        """Messages that wait for their time: delays, timers, retries."""
        timers, store = self._core.parts.timers, self._core.store
        waiting = sum(
            max(0, store.max_offset(SCHEDULE_TOPIC, queue) - timers.schedule.offset(queue + 1))
            for queue in store.queue_ids(SCHEDULE_TOPIC)
        )
        counts = timers.service.timers.metrics.wrapper().timing_count
        timed = sum(
            max(0, metric.count) for topic, metric in counts.items() if not is_system_topic(topic)
        )
        return waiting + timed + timers.service.behind_messages

    def unfinished(self) -> int:
        """Transactions that are neither committed nor rolled back."""
        return len(self._core.parts.transactions.table)

    def activity(self) -> list[str]:
        """What is not at rest, in words; empty when nothing happens any more."""
        found: list[str] = []
        for group in self.groups():
            if self.members(group):
                found += [
                    f"group {group!r} is {behind} behind in {topic!r}"
                    for topic, behind in self.lag(group).items()
                ]
        for count, what in (
            (self.delayed(), "messages wait for their time"),
            (self.unfinished(), "transactions are open"),
        ):
            if count:
                found.append(f"{count} {what}")
        return found

    # In words

    def describe_topic(self, topic: str) -> str:
        """What a topic holds."""
        queues = self.queues(topic)
        if not queues:
            return f"there is no topic {topic!r}; there are: {', '.join(self.topics()) or 'none'}"
        held = ", ".join(
            f"queue {queue}: {end - begin}" for queue, (begin, end) in queues.items() if end > begin
        )
        return f"{topic!r} holds {self.stored(topic)} messages ({held or 'all queues are empty'})"

    def describe_group(self, group: str, topic: str | None = None) -> str:
        """Who is in a group, and how far it is, in a topic or in all."""
        if topic is not None and not self.queues(topic):
            return self.describe_topic(topic)
        members, groups = self.members(group), self.groups()
        lag = ", ".join(f"{count} in {name!r}" for name, count in self.lag(group, topic).items())
        who = f"members {', '.join(members)}" if members else "no members"
        if group not in groups:
            behind = f", behind: {lag}" if lag else ""
            others = ", ".join(groups) or "none"
            return f"group {group!r}: no members, no offsets{behind} (groups: {others})"
        return f"group {group!r}: {who}, behind: {lag or 'nothing'}"

    def report(self) -> str:
        """All of it, and the last requests."""
        try:
            lines = self._state()
        except ClosedError as error:
            lines = [str(error)]
        seen = list(self.requests)[-_SHOWN:]
        lines.append(f"requests: {self.requests.summary()}")
        if seen:
            lines += ["the last of them:", *(f"  {request!r}" for request in seen)]
        lines += [f"{fault!r}" for fault in self._faults.declared]
        return "\n".join(lines)

    def _state(self) -> list[str]:
        lines = [str(self._core.health())]
        lines += [self.describe_topic(topic) for topic in self.topics()]
        for group in self.groups():
            lines.append(self.describe_group(group))
            dead = self.stored(dead_letter_topic(group))
            if dead:
                lines.append(f"  {dead} dead letters")
        return lines + self.activity()
