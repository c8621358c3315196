"""Which queues a member owns.

One task computes it; each owned queue has a task and a cancel scope of its own. Follows
`RebalanceImpl` and `RebalanceService` of Apache RocketMQ 5.4.0: a round every 20 s,
after 1 s when a round could not be completed, and at once when members or a route
change. When a queue goes to another member, its task stops pulling, commits the
contiguous prefix, lets running listeners finish within the grace and ends. Only then
can the queue be owned again. The next owner may have begun by then, so what they finish
is not committed: that could take the group's offset back behind the next owner's. Where
nobody else can own the queue yet (a lock, the end of the consumer), it is.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.client.side_by_side import by_broker, for_each_broker
from rocketmq_sdk.clock import elapsed, suspended
from rocketmq_sdk.consumer.assign.difference import difference, wanted_queues
from rocketmq_sdk.consumer.config import shared_limits
from rocketmq_sdk.consumer.group.member_lists import MemberLists
from rocketmq_sdk.consumer.group.owned_queue import OwnedQueue
from rocketmq_sdk.consumer.group.queue_locks import REFUSED_PAUSE, RENEW_INTERVAL
from rocketmq_sdk.consumer.pull.puller import PullContext, QueuePuller
from rocketmq_sdk.errors import ClosedError, RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.sleeper import Sleeper
from rocketmq_sdk.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rocketmq_sdk.consumer.config import FlowLimits
    from rocketmq_sdk.consumer.group.queue_locks import QueueLocks
    from rocketmq_sdk.consumer.group.start_offset import StartOffsets
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.subscription import SubscriptionData

logger = logging.getLogger("rocketmq_sdk.consumer")

RETRY_INTERVAL: Final = 1.0
"""Seconds until the next round when one could not be completed."""
MINIMUM_PAUSE: Final = 0.1
"""The least seconds between two rounds, however many notices arrive."""
COMMIT_BOUND: Final = 1.0
"""Seconds that a commit of all queues may wait for connections."""
RENEW_RETRY: Final = 2.0
"""Seconds until locks are renewed again when a broker did not answer."""


class OrderlyQueues(Protocol):
    """What an orderly consumer adds: a way to wait until listeners have stopped."""

    async def wait_settled(self, process_queue: ProcessQueue) -> bool:
        """Wait until no worker has a withdrawn process queue.

        Returns False when a listener may still be running.
        """


class Rebalancer:
    """The owned queues of one consumer."""

    def __init__(
        self,
        context: PullContext,
        subscriptions: Mapping[str, SubscriptionData],
        start_offsets: StartOffsets,
        *,
        locks: QueueLocks | None = None,
        orderly: OrderlyQueues | None = None,
    ) -> None:
        self.owned: dict[MessageQueue, OwnedQueue] = {}
        self.leaving: dict[MessageQueue, OwnedQueue] = {}
        self.last_round: float | None = None
        self.first_round = trio.Event()
        self._context = context
        self.standstill = context.standstill
        self._subscriptions = subscriptions
        self._start_offsets = start_offsets
        self._grace = context.config.revoke_grace
        self.on_change: Callable[[set[MessageQueue]], None] | None = None
        """Called, if set, with the queues owned before, when a round has changed them.
        """
        self._woken = False
        self._sleeper, self._renewer = Sleeper(), Sleeper()
        self._begun = 0
        self._rounds = Watermark()
        self.members = MemberLists(context.client, context.group)
        self.refused: set[MessageQueue] = set()
        """Queues that another member had locked in the last round."""
        self.untaken: dict[MessageQueue, str] = {}
        """Queues that the last round could not take, and why."""
        self._missing: dict[MessageQueue, str] = {}
        self._coming = 0
        """Queues of a topic that are to be taken now, and are not yet."""
        self.suspended = False
        self.locks = locks
        self._orderly = orderly
        self._renew = False

    def wake(self) -> None:
        """Run a round at once."""
        if not self._woken:
            self._woken = True
            self._sleeper.wake_at(trio.current_time() + MINIMUM_PAUSE)

    async def next_round(self) -> None:
        """Start a round at once, and wait until one that began after this call ends.

        Raises `ClosedError` when there will be none.
        """
        self.wake()
        await self._rounds.wait_reached(self._begun + 1)

    async def run(self, nursery: trio.Nursery) -> None:
        """Rebalance until cancelled; the tasks of owned queues live in `nursery`."""
        while True:
            self._woken = False
            self._begun += 1
            self.refused.clear()
            complete = await self._round(nursery)
            self._rounds.advance(self._begun)
            self.last_round = trio.current_time()
            self.first_round.set()
            pause = self._context.config.rebalance_interval if complete else RETRY_INTERVAL
            if (look_at := self.members.look_at) is not None:
                pause = min(pause, look_at - self.last_round)
            pause = REFUSED_PAUSE if self.refused else max(pause, MINIMUM_PAUSE)
            if self._woken:
                pause = MINIMUM_PAUSE
            await self._sleeper.sleep_until(trio.current_time() + pause)

    def suspend(self) -> None:
        """Stop pulling and taking queues.

        What is cached is still consumed. Owned queues stay owned unless the group gives
        them to another member.
        """
        self.suspended = True
        for owned in self.owned.values():
            owned.process_queue.set_paused(True)

    def resume(self) -> None:
        """Undo `suspend`."""
        self.suspended = False
        for owned in self.owned.values():
            owned.process_queue.set_paused(False)
        self.wake()

    def doubt(self, broker_name: str) -> None:
        """Commit nothing at a broker until a round has seen how far others have come.

        It was away, and may have given the queues to them meanwhile.
        """
        for queue, owned in self.owned.items():
            if queue.broker_name == broker_name:
                owned.puller.doubtful = True
                owned.forget_committed()

    def doubt_all(self) -> None:
        """Doubt all queues, and run a round at once."""
        for broker_name in {queue.broker_name for queue in self.owned}:
            self.doubt(broker_name)
        self.wake()

    def members_changed(self) -> None:
        """Run a round at once; until it knows what is still owned, commit nothing."""
        for owned in self.owned.values():
            owned.puller.changed_in = self._begun
        self.wake()

    async def _settle_doubts(self, topic: str) -> bool:
        """Give up doubtful queues in which others have come further, to be taken there.

        Call it when the queues that have moved are given up. Returns False when that is
        not known of all.
        """
        complete = True
        for queue, owned in self.owned.items():
            changed_in = owned.puller.changed_in
            if queue.topic == topic and changed_in is not None and changed_in < self._begun:
                owned.puller.changed_in = None

        async def look(_broker_name: str, some: list[OwnedQueue]) -> None:
            nonlocal complete
            for owned in some:
                try:
                    known = await self._context.offsets.read(owned.queue)
                except RocketMQError:
                    complete = False
                    return
                if known is None or known <= owned.process_queue.commit_offset:
                    owned.puller.doubtful = False
                elif self.owned.get(owned.queue) is owned:
                    self._revoke(owned, moved=True)

        doubtful = [
            owned
            for queue, owned in self.owned.items()
            if queue.topic == topic and owned.puller.doubtful and self._context.commits
        ]
        work = by_broker(doubtful, lambda owned: owned.queue.broker_name)
        await for_each_broker(work, look, bound=math.inf)
        return complete

    async def commit_all(self) -> None:
        """Commit the contiguous prefix of each owned queue, to all brokers at once.

        Waits for no answer, and at most `COMMIT_BOUND` seconds for a connection. A
        member that has stood still commits nothing: it looks first what is its own.
        """
        self.look_for_standstill()
        due = [owned for owned in self.owned.values() if owned.has_to_commit(self.locks)]
        work = by_broker(due, lambda owned: owned.queue.broker_name)
        await for_each_broker(work, self._commit_to, bound=COMMIT_BOUND)

    def look_for_standstill(self) -> None:
        """Doubt all queues when the program has stood still."""
        if self.standstill.happened:
            logger.info(
                "group %s: this program has stood still for at least %.0f s; nothing is committed "
                "until it is known what became of its queues",
                self._context.group,
                self.standstill.lateness,
                extra=about(group=self._context.group),
            )
            self.doubt_all()

    def has_to_commit(self) -> bool:
        """Whether `commit_all` has anything to do."""
        due = any(owned.has_to_commit(self.locks) for owned in self.owned.values())
        return due or self.standstill.happened

    async def _commit_to(self, _broker_name: str, some: list[OwnedQueue]) -> None:
        for owned in some:
            if not owned.has_to_commit(self.locks):
                continue
            offset = owned.process_queue.commit_offset
            if not await self._context.offsets.commit(owned.queue, offset, confirmed=False):
                return  # the broker cannot be reached
            owned.note_committed(offset)

    async def close(self, grace: float) -> None:
        """Give up all queues; returns when each is committed.

        `grace` limits how long running listeners may take from now on. Call it after
        `run` has ended, because until then queues may be added.
        """
        self._rounds.fail(ClosedError("the consumer is closed"))
        self._grace = grace
        latest = trio.current_time() + grace
        for owned in self.leaving.values():
            owned.draining.deadline = min(owned.draining.deadline, latest)
        for owned in list(self.owned.values()):
            self._revoke(owned)
        for owned in list(self.leaving.values()):
            await owned.ended.wait()
        if self.locks is not None:
            await self.locks.unlock(list(self.locks.held))

    # -- locks

    def renew_locks(self) -> None:
        """Renew all locks now: a restarted broker has none."""
        self._renew = True
        self._renewer.wake_at(-math.inf)

    def distrust_locks(self, broker_name: str) -> None:
        """Hand out no more messages of a broker's queues until their locks are renewed.

        A broker that restarts has forgotten the locks.
        """
        if self.locks is not None:
            for queue, owned in self.owned.items():
                if queue.broker_name == broker_name:
                    owned.process_queue.locked_until = elapsed()

    async def keep_locks(self) -> None:
        """Renew the locks of the owned queues until cancelled.

        Queues whose lock is lost are given up.
        """
        locks = self.locks
        assert locks is not None
        pause = RENEW_INTERVAL
        while True:
            trusted = min(map(locks.trusted_until, self.owned), default=math.inf)
            moment = min(trio.current_time() + pause, trusted - suspended())
            await self._renewer.sleep_until(-math.inf if self._renew else moment)
            self._renew = False
            locked, refused = await locks.lock(lambda: list(self.owned))
            pause = RENEW_INTERVAL
            for queue, owned in list(self.owned.items()):
                if queue in locked:
                    owned.process_queue.locked_until = locks.trusted_until(queue)
                    self._context.service.add(owned.process_queue)
                elif queue in refused or locks.trusted_until(queue) <= elapsed():
                    why = (
                        "is held by another member"
                        if queue in refused
                        else "could not be renewed in time"
                    )
                    logger.warning(
                        "group %s: the lock on %r %s; the queue is given up",
                        self._context.group,
                        queue,
                        why,
                        extra=about(group=self._context.group, queue=queue),
                    )
                    owned.lost = True
                    for each in owned.process_queues:
                        each.locked_until = elapsed()
                        self._context.service.interrupt(
                            each
                            # what it does now counts for nothing, and may be done
                            # elsewhere at the same time
                        )
                    self._revoke(owned)
                else:
                    pause = RENEW_RETRY

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Start those of the queues that are owned again at other offsets.

        Follows `MQClientInstance.resetOffset`.
        """
        for queue, offset in offsets.items():
            owned = self.owned.get(queue)
            if owned is not None:
                owned.reset_to = offset
                self._revoke(owned)
            elif (going := self.leaving.get(queue)) is not None:
                # How far it was consumed says nothing now.
                going.reset_to = offset

    # -- a round

    async def _round(self, nursery: trio.Nursery) -> bool:
        unreachable: set[str] = set()
        before, self._missing = set(self.owned), {}
        complete = await self._rebalance(nursery, unreachable)
        self.untaken = self._missing
        if set(self.owned) != before:
            self._share_limits()
            logger.info(
                "group %s: %d queues owned",
                self._context.group,
                len(self.owned),
                extra=about(group=self._context.group),
            )
            if self.on_change is not None:
                self.on_change(before)
        return complete

    async def _rebalance(self, nursery: trio.Nursery, unreachable: set[str]) -> bool:
        complete = True
        members: dict[str, list[str]] = {}
        for owned in [
            owned for queue, owned in self.owned.items() if queue.topic not in self._subscriptions
        ]:
            self._revoke(owned)
        for topic in list(self._subscriptions):
            complete &= await self._rebalance_topic(topic, nursery, unreachable, members)
        return complete

    async def _rebalance_topic(
        self,
        topic: str,
        nursery: trio.Nursery,
        unreachable: set[str],
        members: dict[str, list[str]],
    ) -> bool:
        """Rebalance one topic; returns False when it should be repeated soon."""
        client, config = self._context.client, self._context.config
        queues = client.routes.subscribe_queues(topic)
        if not queues:
            return True  # the route is polled, and its arrival wakes this task
        ids = await self.members.of_topic(topic, members)
        if not ids:
            return False
        try:
            wanted = wanted_queues(config.strategy, client.client_id, queues, ids)
        except Exception:
            logger.exception(
                "group %s: the strategy %s failed for topic %s; its queues stay as they are",
                self._context.group,
                config.strategy.name,
                topic,
                extra=about(topic=topic, group=self._context.group),
            )
            return False
        change = difference([queue for queue in self.owned if queue.topic == topic], wanted)
        for queue in change.revoked:
            self._revoke(self.owned[queue], moved=True)
        complete = client.client_id in ids
        if complete:
            complete = await self._settle_doubts(topic)
        else:
            # The broker has not seen the heartbeat, so all queues of the topic were
            # given up.
            await self._context.introduce()
        added = () if self.suspended else change.added
        taken = await self._locked_of(added)
        complete &= len(taken) == len(added)
        return complete & await self._acquire_all(taken, nursery, unreachable)

    async def _locked_of(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """The queues that may be taken: in order, those whose lock was granted."""
        if self.locks is None or not queues:
            return queues
        free = [queue for queue in queues if queue not in self.leaving]
        locked, refused = await self.locks.lock(lambda: free)
        self.refused |= refused
        silent = [queue for queue in free if queue not in locked and queue not in refused]
        self._missing.update(dict.fromkeys(silent, "its broker gives no lock"))
        return [queue for queue in queues if queue in locked or queue in self.leaving]

    async def _acquire_all(
        self, queues: Sequence[MessageQueue], nursery: trio.Nursery, unreachable: set[str]
    ) -> bool:
        """Take queues, of all brokers side by side; False when one was not taken."""
        complete, self._coming = True, len(queues)

        async def acquire(_broker_name: str, some: list[MessageQueue]) -> None:
            nonlocal complete
            for queue in some:
                complete &= await self._acquire(queue, nursery, unreachable)
                self._coming -= 1

        wanted = by_broker(queues, lambda queue: queue.broker_name)
        await for_each_broker(wanted, acquire, bound=math.inf)
        return complete

    async def _acquire(
        self, queue: MessageQueue, nursery: trio.Nursery, unreachable: set[str]
    ) -> bool:
        if queue in self.leaving or self.suspended:
            return True  # the end of the old task, or `resume`, wakes this one
        if queue.broker_name in unreachable:
            self._missing[queue] = "its broker does not answer"
            if self.locks is not None:
                await self.locks.unlock([queue])
            return False
        try:
            offset = await self._first_offset(queue)
        except RocketMQError as error:
            unreachable.add(queue.broker_name)
            self._missing[queue] = f"its first offset is not known: {error}"
            logger.info(
                "group %s: the first offset of %r is not known, so it is not taken yet: %s",
                self._context.group,
                queue,
                error,
                extra=about(group=self._context.group, queue=queue),
            )
            if self.locks is not None:
                await self.locks.unlock([queue])
            return False
        subscription = self._subscriptions.get(queue.topic)
        if subscription is None:  # unsubscribed while the broker was asked
            if self.locks is not None:
                await self.locks.unlock([queue])
            return True
        # It is pulled while the first offsets of the others are asked for.
        limits = self._limits_of(len(self.owned) + self._coming)
        owned = OwnedQueue(queue, QueuePuller(self._context, queue, subscription, offset, limits))
        if self.locks is not None:
            owned.process_queue.locked_until = self.locks.trusted_until(queue)
        owned.process_queue.set_paused(self.suspended)
        self.owned[queue] = owned
        nursery.start_soon(self._own, owned, name=f"queue {queue!r} of group {self._context.group}")
        return True

    async def _first_offset(self, queue: MessageQueue) -> int:
        return await self._start_offsets.first_offset(queue)

    def _limits_of(self, queues: int) -> FlowLimits:
        """The limits of each of so many queues."""
        config = self._context.config
        return shared_limits(
            config.flow_limits,
            config.pull_threshold_for_topic,
            config.pull_threshold_size_for_topic,
            queues,
        )

    def _share_limits(self) -> None:
        limits = self._limits_of(len(self.owned))
        for owned in self.owned.values():
            owned.process_queue.set_limits(limits)

    # -- the life of an owned queue

    def _revoke(self, owned: OwnedQueue, *, moved: bool = False) -> None:
        """Give up a queue; `moved` says that another member may own it from now on.

        A lock keeps others out until it is given back.
        """
        owned.moved = moved and self.locks is None
        del self.owned[owned.queue]
        self.leaving[owned.queue] = owned
        owned.pulling.cancel()

    async def _own(self, owned: OwnedQueue) -> None:
        try:
            with owned.pulling:
                await owned.puller.run()
            await self._give_up(owned)
        finally:
            self.leaving.pop(owned.queue, None)
            owned.ended.set()
        self.wake()

    async def _give_up(self, owned: OwnedQueue) -> None:
        """Commit how far the queue was consumed, and let running listeners finish."""
        context, process_queues = self._context, owned.process_queues
        for each in process_queues:
            context.service.withdraw(each)
        owned.draining.deadline = min(owned.draining.deadline, trio.current_time() + self._grace)
        if owned.moved and context.commits:
            await self._hand_over(owned)
        with owned.draining:
            for each in process_queues:
                await each.wait_drained()
        for each in process_queues:
            context.service.interrupt(each)
        settled = True
        if self._orderly is not None:
            for each in process_queues:
                settled &= await self._orderly.wait_settled(each)
        await self._commit_last(owned)
        if self.locks is not None:
            await self.locks.give_back(owned.queue, lost=owned.lost, settled=settled)

    async def _hand_over(self, owned: OwnedQueue) -> None:
        """Commit what is done of a queue that has moved.

        The sooner the next owner knows, the fewer messages are delivered twice. It may
        be further already: then its offset stays.
        """
        offsets, done = self._context.offsets, owned.process_queue.commit_offset
        try:
            known = await offsets.read(owned.queue)
        except RocketMQError as error:
            logger.info(
                "group %s: %r goes to another member, and how far it was consumed, to %d, could "
                "not be committed: %s",
                self._context.group,
                owned.queue,
                done,
                error,
                extra=about(group=self._context.group, queue=owned.queue),
            )
            return
        if known is None or known < done:
            await offsets.commit(owned.queue, done, confirmed=True)

    async def _commit_last(self, owned: OwnedQueue) -> None:
        """Commit the end of an owned queue, unless somebody else may own it now."""
        final = owned.reset_to
        if final is None:
            if owned.moved or not self._context.commits:
                return
            if owned.puller.unsure:
                await self._hand_over(owned)
                return
            final = owned.process_queue.commit_offset
        if owned.may_commit(self.locks):
            await self._context.offsets.commit(owned.queue, final, confirmed=True)
