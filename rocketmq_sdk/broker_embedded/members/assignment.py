"""Which queues a member reads when the broker decides (`QueryAssignmentProcessor`).

Also where the broker knows the queues from.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.registration.calls import topic_route
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import parse_addresses
from rocketmq_sdk.protocol.bodies.members import MessageQueueAssignment, MessageRequestMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.route import TopicRoute

logger = logging.getLogger(__name__)

ANY_QUEUE: Final = -1
_TIMEOUT: Final = 3.0
_REMEMBERED: Final = 4096
"""Topics whose queues are remembered: whoever asks may name any."""


def runs(index: int, members: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """The run of neighbouring queues of a member."""
    size, more = divmod(len(queues), members)
    start = index * size + min(index, more)
    return list(queues[start : start + size + (index < more)])


def turns(index: int, members: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Every n-th queue."""
    return list(queues[index::members])


STRATEGIES: Final[dict[str, Callable[[int, int, Sequence[MessageQueue]], list[MessageQueue]]]] = {
    "AVG": runs,
    "AVG_BY_CIRCLE": turns,
}


def assign(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    client_id: str,
    *,
    mode: MessageRequestMode,
    strategy: str,
    model: MessageModel | None,
    share: int,
    balances: bool,
) -> list[MessageQueueAssignment] | None:
    """The queues of a member; None when the member or the strategy is unknown.

    `share` is how many of the next members' queues a popping member reads besides its
    own. At or below 0, and from one less than the number of members on, it reads any
    queue of each broker. Without `balances` every member reads everything.
    """
    if not queues:
        return []
    if model is MessageModel.BROADCASTING or not balances:
        return [MessageQueueAssignment(queue, mode) for queue in queues]
    if client_id not in members:
        return None
    ordered, index = sorted(queues), sorted(members).index(client_id)
    if mode is MessageRequestMode.POP:
        return [
            MessageQueueAssignment(queue, mode)
            for queue in _shared(ordered, len(members), index, share)
        ]
    allocate = STRATEGIES.get(strategy)
    return (
        None
        if allocate is None
        else [
            MessageQueueAssignment(queue, mode) for queue in allocate(index, len(members), ordered)
        ]
    )


def _shared(queues: list[MessageQueue], members: int, index: int, share: int) -> list[MessageQueue]:
    if share <= 0 or share >= members - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic, broker_name, ANY_QUEUE) for topic, broker_name in brokers]
    if members > len(queues):
        return [queues[index % len(queues)]]
    found: list[MessageQueue] = []
    for step in range(share + 1):
        found += runs((index + step) % members, members, queues)
    return found


class TopicQueues:
    """The readable queues of topics on all brokers.

    They are asked periodically from the name servers elsewhere, or else from the one in
    this process.
    """

    __slots__ = ("_addresses", "_caller", "_clock", "_config", "_known", "_own")

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        own: Callable[[str], TopicRoute | None],
        caller: AddressCaller | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._own = own
        self._caller = caller
        addresses = config.current.namesrv_addr
        self._addresses = parse_addresses(addresses) if addresses else ()
        self._known: OrderedDict[str, tuple[float, list[MessageQueue]]] = OrderedDict()

    def known(self, topic: str) -> list[MessageQueue] | None:
        """The queues if they are known without asking; otherwise None."""
        if self._caller is None or not self._addresses:
            route = self._own(topic)
            return [] if route is None else route.subscribe_queues(topic)
        found = self._known.get(topic)
        age = self._config.current.load_balance_poll_name_server_interval / 1000
        return found[1] if found is not None and self._clock.monotonic() - found[0] < age else None

    async def ask(self, topic: str) -> list[MessageQueue]:
        """The queues from a name server; the last known ones if none answers."""
        assert self._caller is not None
        for address in self._addresses:
            try:
                route = await topic_route(self._caller, address, topic, timeout=_TIMEOUT)
            except RocketMQError as error:
                logger.warning(
                    "the name server %s does not tell the route of %s: %s",
                    address,
                    topic,
                    error,
                    extra=about(topic=topic),
                )
                continue
            queues = [] if route is None else route.subscribe_queues(topic)
            self._known[topic] = (self._clock.monotonic(), queues)
            self._known.move_to_end(topic)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
            return queues
        before = self._known.get(topic)
        return [] if before is None else before[1]
