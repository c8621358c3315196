"""Messages of one tick leave together, and as they would leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.client.hooks import SendContext, SendHook
from rocketmq_sdk.errors import ClosedError, RouteError, SendTimeout
from rocketmq_sdk.model.message import Message
from support.peers import SILENT, open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.producer import Producer

ODD: list[dict[str, Any]] = [
    {},
    {"tags": "TagA", "keys": ("k1", "k2")},
    {"properties": {"quotes": 'a "b" \\ %s %d {x}', "line": "one\ntwo\ttab\x7f"}},
    {"properties": {"text": "значение €\u2028", "emoji": "🚀", "lone": "\ud800"}},
    {"properties": {"opaque": '","opaque":7'}, "wait_store_ok": False},
    {"delay_level": 3},
    {"priority": 1},
    {"flag": 5},
    {"sharding_key": "s"},
]


async def told(producer: Producer, cluster: Any, *, together: bool) -> list[tuple[Any, ...]]:
    """What the broker is told of messages, sent alone or all in one tick."""
    sends = cluster.brokers[0].sends
    sends.clear()
    messages = [
        Message("t", body, **options) for options in ODD for body in (b"body", bytes(70_000))
    ]
    if together:
        for handle in [producer.submit(one) for one in messages]:
            await handle
    else:
        for one in messages:
            await producer.send(one)
    sends.sort(key=lambda sent: sent[2].properties.split("\x02")[0])
    found = []
    for _moment, command, header in sends:
        rest = header.properties.partition("\x02")[2]
        fields = {**command.ext_fields, "g": "", "i": rest}
        if header.properties.find("SHARDING") < 0:
            fields["e"] = ""
        found.append((command.code, command.flag, command.version, fields, command.body))
    return found


async def test_requests_are_the_same_together_and_alone(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, compress_over=50_000) as producer,
    ):
        await producer.send(message())
        alone = await told(producer, cluster, together=False)
        assert await told(producer, cluster, together=True) == alone
        assert len(alone) == 2 * len(ODD)


async def test_messages_of_one_tick_leave_in_order_over_all_queues(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.send(message())
        broker = cluster.brokers[0]
        broker.sends.clear()
        # More than leave with one write, then some that go alone.
        handles = [producer.submit(message(b"%d" % number)) for number in range(150)]
        queue = (await producer.publish_queues("t"))[0]
        handles += [
            producer.submit(message(b"%d" % number), queue=queue if number % 3 else None)
            for number in range(150, 200)
        ]
        for handle in handles:
            await handle
        assert [command.body for _, command, _ in broker.sends] == [
            b"%d" % number for number in range(200)
        ]
        assert len({header.queue_id for _, _, header in broker.sends[:50]}) > 1


async def test_a_message_given_up_in_the_box_does_not_leave(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await producer.send(message())
        broker = cluster.brokers[0]
        broker.sends.clear()
        first = producer.submit(message(b"first"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.send(message(b"second"))
        await first
        assert [command.body for _, command, _ in broker.sends] == [b"first"]
        assert producer.in_flight == 0


@pytest.mark.parametrize("comes_again", [True, False])
async def test_a_topic_that_loses_its_queues_in_the_same_tick_is_asked_for(
    comes_again: bool, autojump_clock: MockClock
) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, retry_times=0) as producer:
        await producer.send(message())
        first, *handles = [producer.submit(message(b"%d" % number)) for number in range(3)]
        routes, before = producer.client.routes, cluster.routes["t"]
        cluster.route("t", perm=4)  # nobody may write any more
        routes._store(routes._entries["t"], cluster.routes["t"], provisional=False)
        if comes_again:
            cluster.routes["t"] = before
        assert (await first).offset_message_id  # it was alone, and left at once
        for handle in handles:
            if comes_again:
                assert (await handle).offset_message_id
            else:
                with pytest.raises(RouteError, match="no queue that can be written to"):
                    await handle
        assert producer.in_flight == 0


async def test_a_silent_broker_and_one_that_goes(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, retry_times=0) as producer:
        await producer.send(message())
        broker = cluster.brokers[0]
        broker.script = [SILENT, 0, SILENT]
        handles = [producer.submit(message(), timeout=2.0) for _ in range(3)]
        begin = trio.current_time()
        await handles[1]
        for handle in (handles[0], handles[2]):
            with pytest.raises(SendTimeout) as caught:
                await handle
            assert caught.value.outcome_unknown
        assert trio.current_time() - begin == pytest.approx(2.0, abs=0.2)


async def test_what_is_in_the_box_when_the_producer_is_given_up(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(brokers=1) as cluster:
        handles = []
        with pytest.raises(KeyError):  # noqa: PT012 - it ends the block around the messages
            async with Running(cluster) as producer:
                await producer.send(message())
                handles = [producer.submit(message()) for _ in range(3)]
                raise KeyError
        for handle in handles:
            with pytest.raises(ClosedError):
                await handle


async def test_answers_that_come_together_are_as_those_that_come_alone(
    autojump_clock: MockClock,
) -> None:
    script = [0, 10, 0, 11, 0, 2, 0, SILENT, 0, 0] * 3  # flush and slave missing, a refusal

    async def outcomes(*, together: bool) -> list[tuple[str, int | None]]:
        hook = Told()
        async with (
            open_cluster(brokers=1) as cluster,
            Running(cluster, retry_times=0, send_timeout=2.0, send_hooks=[hook]) as producer,
        ):
            for _ in range(5):  # until the shape of answers is known
                for handle in [producer.submit(message()) for _ in range(3)]:
                    await handle
            cluster.brokers[0].script = list(script)
            hook.told.clear()
            found = []
            if together:
                handles = [producer.submit(message()) for _ in script]
                await producer.submit(message())
                for handle in handles:
                    await handle.settled()
                found = [what(handle.result, handle.error) for handle in handles]
            else:
                for _ in script:
                    try:
                        found.append(what(await producer.send(message()), None))
                    except Exception as error:  # noqa: BLE001
                        found.append(what(None, error))
            assert producer.in_flight == 0
            assert len(hook.told) == len(script) + together
        return found

    assert await outcomes(together=True) == await outcomes(together=False)


class Told(SendHook):
    """Counts what it is told of."""

    def __init__(self) -> None:
        self.told: list[SendContext] = []

    def after_send(self, context: SendContext) -> None:
        self.told.append(context)


def what(result: SendResult | None, error: Exception | None) -> tuple[str, int | None]:
    if result is None:
        return type(error).__name__, None
    assert int(result.offset_message_id, 16) == result.queue_offset
    return result.status.name, len(result.message_id)


async def test_a_waiter_that_fails_ends_no_other_message(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise KeyError("waiter")

    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        for _ in range(5):
            for handle in [producer.submit(message()) for _ in range(3)]:
                await handle
        handles = [producer.submit(message()) for _ in range(20)]
        handles[7].call_when_done(fail)
        for handle in handles:
            if handle is not handles[7]:
                assert (await handle).queue_offset >= 0
        assert handles[7].done
        assert producer.in_flight == 0
        assert "waits for it has failed" in caplog.text
