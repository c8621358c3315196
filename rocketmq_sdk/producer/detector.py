"""Probing of unreachable brokers, so that they are used as soon as they answer.

Follows `LatencyFaultToleranceImpl.detectByOneRound`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.offsets import max_offset
from rocketmq_sdk.errors import BrokerError, RocketMQError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy

logger = logging.getLogger("rocketmq_sdk.producer")
ROUND: Final = 3.0


class Detector:
    """One task that probes brokers every three seconds.

    It asks each broker that is due for the end of some queue.
    """

    def __init__(
        self,
        client: Client,
        strategy: MQFaultStrategy,
        topic: Callable[[], str | None],
        *,
        timeout: float,
        interval: float,
    ) -> None:
        self._client = client
        self._strategy = strategy
        self._topic = topic
        self._timeout = timeout
        self._interval = interval

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            await trio.sleep(ROUND)
            await self.detect_by_one_round()

    async def detect_by_one_round(self) -> None:
        """Probe what is due. A broker without an address is forgotten."""
        tolerance = self._strategy.tolerance
        for broker_name in tolerance.due_for_detection(
            int(trio.current_time() * 1000), int(self._interval * 1000)
        ):
            topic = self._topic()
            if topic is None:
                return
            if self._client.broker_address(broker_name) is None:
                tolerance.remove(broker_name)
                continue
            try:
                await max_offset(self._client, broker_name, topic, 0, self._timeout)
            except BrokerError:
                pass  # it did not like the question, but it is there
            except RocketMQError as error:
                logger.debug("broker %r does not answer: %s", broker_name, error)
                continue
            tolerance.mark_reachable(broker_name)
