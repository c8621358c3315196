"""Whether a producer can send and, if not, why, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.client.troubles import one_line, route_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy
    from rocketmq_sdk.producer.targets import TopicTargets
    from rocketmq_sdk.producer.under_way import UnderWay


@attrs.frozen
class ProducerHealth:
    """Whether a producer can send, and what stands in its way.

    `sending` is true when each topic that was sent to has a queue at a broker that
    answers, and before the first send when a name server does. `reasons` name each
    hindrance, including those of single brokers and name servers while others go on.
    The truth value of the object is `sending`.
    """

    sending: bool
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.sending

    def __str__(self) -> str:
        state = "sending" if self.sending else "not sending"
        return f"{state}: {'; '.join(self.reasons)}" if self.reasons else state


def health_of(
    client: Client, topics: Iterable[TopicTargets], strategy: MQFaultStrategy, under_way: UnderWay
) -> ProducerHealth:
    """The health that follows from what a running producer knows. Asks nobody."""
    topics = list(topics)
    brokers = {
        target.broker_name: target.address
        for topic in topics
        if topic.current()
        for target in topic.targets
    }
    away = dict(_away(client, brokers, strategy))
    reasons = [*_of_topics(client, topics), *away.values(), *client.troubles.of_name_servers()]
    if under_way.is_full(0):
        reasons.append(f"{under_way.refusal()}: senders wait")
    reached = (
        all(any(target.broker_name not in away for target in topic.targets) for topic in topics)
        if topics
        else not client.troubles.no_name_server_answers
    )
    return ProducerHealth(reached, tuple(reasons))


def _of_topics(client: Client, topics: Iterable[TopicTargets]) -> Iterator[str]:
    for topic in sorted(topics, key=lambda each: each.topic):
        problem = client.routes.problem(topic.topic)
        if problem or not topic.targets:
            yield route_reason(
                client.namespace.unwrap(topic.topic),
                problem,
                known=bool(topic.targets),
                use="writable",
            )


def _away(
    client: Client, brokers: dict[str, str], strategy: MQFaultStrategy
) -> Iterator[tuple[str, str]]:
    """The brokers that do not answer, each with the reason."""
    now = int(trio.current_time() * 1000)
    for name, address in sorted(brokers.items()):
        failure = strategy.failures.get(name)
        if failure is not None and not strategy.is_good(name, now):
            yield name, f"{name} at {address} is left out: {one_line(failure)}"
        elif problem := client.troubles.of_broker(address):
            yield name, f"{name} at {address} {problem}"
