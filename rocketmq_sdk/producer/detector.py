"""Probing of unreachable brokers, so that they are used as soon as they answer.

Follows `LatencyFaultToleranceImpl.detectByOneRound`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.offsets import max_offset
from rocketmq_sdk.errors import BrokerError, RocketMQError
from rocketmq_sdk.producer.fault_strategy import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy

logger = logging.getLogger("rocketmq_sdk.producer")
ROUND: Final = 3.0
QUICK_ROUND: Final = 1.0


class Detector:
    """One task that probes brokers which were not reached.

    It asks each broker that is due for the end of some queue, every `interval` seconds,
    and waits `timeout` for the answer. It sleeps while no broker is of interest; then
    it looks for those that are due every three seconds, or with the default profile,
    whose brokers stay away until they answer, every second, and more often if
    `interval` is shorter.
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
        quick = strategy.profile is UNANSWERED
        self._round = min(QUICK_ROUND if quick else ROUND, interval)
        self._timeout, self._interval = timeout, interval
        self._wanted = trio.Event()
        strategy.on_isolated = self._wake

    def _wake(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            if not len(self._strategy.tolerance):
                self._wanted = trio.Event()
                await self._wanted.wait()
            await trio.sleep(self._round)
            await self.detect_by_one_round()

    async def detect_by_one_round(self) -> None:
        """Probe what is due, side by side. A broker without an address is forgotten."""
        tolerance = self._strategy.tolerance
        topic = self._topic()
        if topic is None:
            return
        async with trio.open_nursery() as nursery:
            for broker_name in tolerance.due_for_detection(
                int(trio.current_time() * 1000), int(self._interval * 1000)
            ):
                if self._client.broker_address(broker_name) is None:
                    self._strategy.mark_good(broker_name)
                    tolerance.remove(broker_name)
                else:
                    nursery.start_soon(self._probe, broker_name, topic)

    async def _probe(self, broker_name: str, topic: str) -> None:
        try:
            await max_offset(self._client, broker_name, topic, 0, self._timeout)
        except BrokerError:
            pass  # it did not like the question, but it is there
        except RocketMQError as error:
            logger.debug("broker %r does not answer: %s", broker_name, error)
            return
        self._strategy.mark_good(broker_name)
