"""What a push consumer is doing at one moment."""

import attrs

from rocketmq_sdk.model.queue import MessageQueue


@attrs.frozen
class ConsumerStatistics:
    """Numbers of one consumer.

    `queues` are the queues it owns, those of its retry topic included. `cached_messages` and `cached_bytes` count what was pulled and is not done
    yet, `in_flight` what listeners work on, `waiting_for_retry` what could be sent back to no broker and will be consumed again here. The totals
    count from the start of the consumer. `last_rebalance` is when the queues were last computed, in seconds of trio's clock (None: not yet).
    """

    queues: tuple[MessageQueue, ...] = ()
    cached_messages: int = 0
    cached_bytes: int = 0
    in_flight: int = 0
    waiting_for_retry: int = 0
    consumed: int = 0
    failed: int = 0
    timed_out: int = 0
    last_rebalance: float | None = None
