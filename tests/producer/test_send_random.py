"""Whatever the brokers do, each message ends exactly once, by the rules, and nothing
stays behind.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketmq_sdk.errors import BrokerError, ConnectError, RocketMQError, SendTimeout
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.properties import decode_properties
from rocketmq_sdk.producer.producer import Producer
from support.peers import SILENT, open_cluster

CUT = -2
LATE = -3
STEPS = st.sampled_from([0, 0, 0, 10, 11, 12, 1, 2, 13, 14, 16, 17, 29, SILENT, CUT, LATE])


@settings(max_examples=60, deadline=None)
@given(
    scripts=st.lists(st.lists(STEPS, max_size=12), min_size=1, max_size=3),
    count=st.integers(1, 8),
    profile=st.sampled_from([None, "today", "classic"]),
    other_broker=st.booleans(),
    per_attempt=st.sampled_from([None, 0.7]),
    cancel_at=st.sampled_from([None, 0.0, 0.3, 1.0]),
)
def test_every_message_ends_once(
    scripts: list[list[int]],
    count: int,
    profile: Any,
    other_broker: bool,
    per_attempt: float | None,
    cancel_at: float | None,
) -> None:
    unanswered: set[str] = set()

    async def main() -> None:
        async with open_cluster(brokers=len(scripts)) as cluster, cluster.client() as client:
            for broker, script in zip(cluster.brokers, scripts, strict=True):
                broker.script = [_step(broker, step, unanswered) for step in script]
            options: dict[str, Any] = {
                "fault_profile": profile,
                "send_timeout_per_attempt": per_attempt,
            }
            async with Producer(
                "pg", client=client, retry_another_broker_when_not_store_ok=other_broker, **options
            ) as producer:
                handles = [producer.submit(Message("t", b"%d" % number)) for number in range(count)]
                if cancel_at is not None:
                    with trio.move_on_after(cancel_at), suppress(RocketMQError):
                        await producer.send(Message("t", b"cancelled"))
                began = trio.current_time()
                for handle in handles:
                    await handle.settled()
                assert trio.current_time() - began <= 3.01
                assert producer.in_flight == 0
                assert producer._under_way.bytes == 0
            sent: dict[str, int] = {}
            for broker in cluster.brokers:
                for _, _, header in broker.sends:
                    unique = decode_properties(header.properties or "")["UNIQ_KEY"]
                    sent[unique] = sent.get(unique, 0) + 1
            assert all(number <= 3 for number in sent.values())
            for handle in handles:
                assert (handle.result is None) != (handle.error is None)
                if handle.error is not None:
                    assert isinstance(handle.error, BrokerError | ConnectError | SendTimeout), (
                        handle.error
                    )
                    assert handle.error.outcome_unknown or handle.message_id not in unanswered

    trio.run(main, clock=MockClock(autojump_threshold=0))


def _step(broker: Any, step: int, unanswered: set[str]) -> Any:
    if step not in (CUT, LATE, SILENT):
        return step

    async def late() -> Any:
        header = broker.sends[-1][2]
        await trio.sleep(0.6)
        return broker.answer(header)

    def run(channel: Any, request: Any) -> Any:
        unanswered.add(decode_properties(request.ext_fields["i"])["UNIQ_KEY"])
        if step == CUT:
            channel.abort("as the script wants it")
        return late if step == LATE else None

    return run
