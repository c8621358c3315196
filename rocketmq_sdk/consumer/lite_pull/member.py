"""A lite pull consumer between its start and its end: its parts, wired together."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import trio

from rocketmq_sdk.client.api.offsets import max_offset, min_offset
from rocketmq_sdk.client.side_by_side import answers_of_all, by_broker
from rocketmq_sdk.consumer.group.consumer_report import ConsumerReport
from rocketmq_sdk.consumer.group.membership import QueueMembership
from rocketmq_sdk.consumer.group.rebalance import Rebalancer
from rocketmq_sdk.consumer.group.start_offset import DEFAULT_LOOK_BACK_MS, StartOffsets
from rocketmq_sdk.consumer.group.unshared_queues import ChosenQueues
from rocketmq_sdk.consumer.lite_pull.poll_service import PollService
from rocketmq_sdk.consumer.lite_pull.prefetched_queue import PortionedQueue, PrefetchedQueue
from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
from rocketmq_sdk.consumer.pull.puller import PullContext
from rocketmq_sdk.consumer.statistics import ConsumerStatistics, Rates
from rocketmq_sdk.errors import BrokerError, ConfigurationError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.members import ConsumerData
from rocketmq_sdk.protocol.subscription import build_subscription

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import LitePullConfig
    from rocketmq_sdk.consumer.constructor_arguments import Expression
    from rocketmq_sdk.consumer.group.owned_queue import OwnedQueue
    from rocketmq_sdk.consumer.health import ConsumerHealth
    from rocketmq_sdk.protocol.bodies.connections import ConsumerRunningInfo

logger = logging.getLogger("rocketmq_sdk.consumer")
LOOK: Final = 5.0
"""Seconds between two looks whether a member that commits itself has stood still."""


@attrs.frozen
class AssignmentChange:
    """How the queues of a consumer have changed."""

    added: frozenset[MessageQueue]
    revoked: frozenset[MessageQueue]
    assigned: frozenset[MessageQueue]
    """All queues of the consumer now."""


ChangeListener = Callable[[AssignmentChange], Awaitable[object] | object]


class LitePullMember(QueueMembership):
    """One lite pull consumer; use it once: `async with member.started(nursery)`.

    When `wanted` is None the queues are chosen by `assign`, filtered by the expressions
    of their topics.
    """

    kind: ClassVar[str] = "lite pull consumer"

    def __init__(
        self,
        client: Client,
        group: str,
        config: LitePullConfig,
        wanted: Mapping[str, Expression] | None,
        expressions: Mapping[str, Expression],
        on_change: ChangeListener | None,
        *,
        own_client: bool,
    ) -> None:
        now = client.clock.now_ms()
        subscriptions = {
            topic: build_subscription(topic, *expression, sub_version=now)
            for topic, expression in (wanted or {}).items()
        }
        super().__init__(client, group, subscriptions, own_client=own_client)
        self._config = config
        self._commit_interval = config.auto_commit_interval if config.auto_commit else None
        self._expressions = expressions
        self.service = PollService(config, trace=self._trace)
        self.offsets = RemoteOffsets(client, group)
        timestamp = config.consume_timestamp
        if timestamp is None:
            timestamp = now - DEFAULT_LOOK_BACK_MS
        context = PullContext(
            client,
            group,
            config,
            self.service,
            self.offsets,
            self._introduce_again,
            PortionedQueue if config.polled_is_done else PrefetchedQueue,
            lite=True,
            commits=config.auto_commit,
        )
        starts = StartOffsets(client, self.offsets, config.consume_from, timestamp)
        self._chosen = (
            None if wanted is not None else ChosenQueues(context, self._subscriptions, starts)
        )
        self._rebalancer = self._chosen or Rebalancer(context, self._subscriptions, starts)
        self._on_change = on_change
        self._changes, self._told = trio.open_memory_channel[AssignmentChange](float("inf"))
        if on_change is not None:
            self._rebalancer.on_change = self._note_change
        self._rates = Rates()
        self._report = ConsumerReport(
            client,
            group,
            config,
            self._subscriptions,
            self._rebalancer,
            self.service,
            self._rates,
            now,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            taker="that nobody has polled"
            if config.polled_is_done
            else "that are not polled, or polled and not done",
        )

    # -- life

    async def _begin(self, nursery: trio.Nursery) -> None:
        if self._on_change is not None:
            nursery.start_soon(self._tell_changes, self._on_change)
        self._client.jobs.add_quick(nursery, self._rates.sampling(self.service.counters))
        if self._chosen is None and not self._config.auto_commit:
            self._client.jobs.add(nursery, self._look_for_standstill, LOOK)
            self._rebalancer.standstill.expect(LOOK)
        await super()._begin(nursery)

    async def _look_for_standstill(self) -> float:
        """A periodic job: see whether the program has stood still."""
        self._rebalancer.look_for_standstill()
        self._rebalancer.standstill.expect(LOOK)
        return LOOK

    async def _finish(self, grace: float) -> None:
        self.service.close()
        if self._config.auto_commit and grace:
            self.service.all_done()  # the block has ended without an error
        if grace:
            self.service.look_for_done(math.inf)
        await super()._finish(0.0)

    def _note_change(self, before: set[MessageQueue]) -> None:
        owned, earlier = self.assignment(), self._named(before)
        self._changes.send_nowait(
            AssignmentChange(added=owned - earlier, revoked=earlier - owned, assigned=owned)
        )

    async def _tell_changes(self, listener: ChangeListener) -> None:
        async for change in self._told:
            try:
                result = listener(change)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception(
                    "group %s: the listener of assignment changes failed; consumption goes on",
                    self._group,
                    extra=about(group=self._group),
                )

    def heartbeat_data(self) -> ConsumerData:
        """The consumer's entry in the heartbeat.

        Always with `LAST_OFFSET`, as Apache's, and without topics when the queues are
        chosen.
        """
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            ConsumeFrom.LAST_OFFSET,
            () if self._chosen is not None else tuple(self._subscriptions.values()),
            self._client.config.unit_mode,
        )

    # -- queues

    def check_shared(self) -> None:
        """Raise `ConfigurationError` when the queues are chosen."""
        if self._chosen is not None:
            raise ConfigurationError(
                "the consumer chooses its queues by assign(); only one that was made with "
                "subscriptions= can subscribe"
            )

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Own exactly these queues.

        Returns when the consumer owns them, or knows that it cannot yet.
        """
        if self._chosen is None:
            raise ConfigurationError(
                "the consumer shares the queues of its subscriptions; a consumer without "
                "subscriptions can choose its queues"
            )
        for topic in {queue.topic for queue in queues} - set(self._subscriptions):
            expression = self._expressions.get(topic, (None, "TAG"))
            self._subscriptions[topic] = build_subscription(
                topic, *expression, sub_version=self._client.clock.now_ms()
            )
            self._client.routes.use(topic)
        for topic in {queue.topic for queue in queues}:
            await self._client.route(topic)
        self._chosen.choose(queues)
        await self._chosen.next_round()

    def owned(self, queue: MessageQueue) -> OwnedQueue:
        """An owned queue.

        Raises `ConfigurationError` when the queue is not owned.
        """
        owned = self._rebalancer.owned.get(queue)
        if owned is None:
            namespace = self._client.namespace
            raise ConfigurationError(
                f"{namespace.unwrap_queue(queue)!r} does not belong to this consumer of group "
                f"{namespace.unwrap(self._group)!r} now"
            )
        return owned

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues of this consumer, as users name them."""
        return self._named(self._rebalancer.owned)

    def _named(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        return frozenset(map(self._client.namespace.unwrap_queue, queues))

    def pause(self, queue: MessageQueue) -> None:
        """Stop pulling and handing out a queue."""
        process_queue = self.owned(queue).process_queue
        process_queue.set_paused(True)
        self.service.hold(process_queue)

    def resume(self, queue: MessageQueue) -> None:
        """Resume a paused queue."""
        process_queue = self.owned(queue).process_queue
        process_queue.set_paused(False)
        self.service.add(process_queue)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll hands out."""
        process_queue = self.owned(queue).process_queue
        assert isinstance(process_queue, PrefetchedQueue)
        return process_queue.position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset inside the queue."""
        chosen = self._chosen
        waiting = chosen is not None and queue in chosen.chosen and queue not in chosen.owned
        if not waiting:
            self.owned(queue)
        low = max(await min_offset(self._client, queue.broker_name, queue.topic, queue.queue_id), 0)
        high = await max_offset(self._client, queue.broker_name, queue.topic, queue.queue_id)
        if not low <= offset <= high:
            raise ConfigurationError(
                f"offset {offset} is outside of {queue!r}, which reaches from {low} to {high}"
            )
        if chosen is not None and queue in chosen.chosen and queue not in chosen.owned:
            chosen.start_at(queue, offset)
        else:
            owned = self.owned(queue)
            self.service.forget(owned.process_queue)
            owned.puller.seek(offset)

    async def commit(self) -> None:
        """Commit what is done of all queues up to the first gap, and wait for the
        brokers.

        With `polled_is_done`, all that was polled. All are tried before an error is
        raised.
        """
        self.service.all_done()
        self.service.look_for_done(math.inf)
        rebalancer = self._rebalancer
        rebalancer.look_for_standstill()
        done = {
            queue: owned
            for queue, owned in (*rebalancer.leaving.items(), *rebalancer.owned.items())
            if not owned.moved  # else the offset is the next owner's
        }
        offsets = {queue: owned.process_queue.commit_offset for queue, owned in done.items()}
        await self.write(
            offsets, behind={queue: owned for queue, owned in done.items() if owned.puller.unsure}
        )

    async def write(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        behind: Mapping[MessageQueue, OwnedQueue] | None = None,
    ) -> None:
        """Commit offsets at all brokers at the same time, and wait for their answers.

        All are tried before an error is raised. A broker that does not answer once is
        not waited for again. Another member may have come further in the queues in
        `behind`; then its offset stays.
        """
        work = by_broker(offsets.items(), lambda each: each[0].broker_name)

        async def write_to(some: list[tuple[MessageQueue, int]]) -> None:
            await self._write_to(some, behind or {})

        await answers_of_all(work.values(), write_to)

    async def _write_to(
        self, some: list[tuple[MessageQueue, int]], behind: Mapping[MessageQueue, OwnedQueue]
    ) -> None:
        """Commit offsets at one broker."""
        failure: BrokerError | None = None
        for queue, offset in some:
            try:
                if (owned := behind.get(queue)) is not None:
                    known = await self.offsets.read(queue)
                    if known is not None and known > offset:
                        continue
                    owned.puller.doubtful = False
                await self.offsets.write(queue, offset, confirmed=True)
            except BrokerError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # -- what is known of it

    def statistics(self) -> ConsumerStatistics:
        """The numbers of this moment."""
        return self._report.statistics()

    def health(self) -> ConsumerHealth:
        """Whether the consumer is consuming and, if not, why."""
        health = self._report.health()
        complaint = self.service.complaint(trio.current_time())
        return attrs.evolve(health, reasons=(*health.reasons, complaint)) if complaint else health

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """The state of the consumer (307)."""
        return self._report.running_info(stacks=stacks)
