"""A test to copy: produce, consume and retry against a broker of the test's own.

It runs in virtual time.

Run it with `pytest examples/test_orders.py`; where you copy it to, `pyproject.toml` has

    [tool.pytest.ini_options]
    trio_mode = true

`rocketmq_broker` comes with the package, `autojump_clock` with pytest-trio: when all
tasks sleep the clock jumps, so a retry that comes after ten seconds costs the test
nothing.
"""

import trio
from trio.testing import MockClock

from rocketmq_sdk import Message, Producer, PushConsumer, ReceivedMessage
from rocketmq_sdk.testing import TestBroker


async def test_an_order_is_paid_once(
    rocketmq_broker: TestBroker, autojump_clock: MockClock
) -> None:
    paid: list[str] = []
    done = trio.Event()

    async def on_order(message: ReceivedMessage) -> None:
        paid.append(message.body.decode())
        done.set()

    async with (
        PushConsumer(
            "billing", namesrv=rocketmq_broker, subscriptions={"orders": "new"}, listener=on_order
        ),
        Producer("shop", namesrv=rocketmq_broker) as producer,
    ):
        await producer.send(Message("orders", b"order 42", tags="new", keys=["42"]))
        await producer.send(Message("orders", b"order 41", tags="cancelled", keys=["41"]))
        with trio.fail_after(60):
            await done.wait()
    assert paid == ["order 42"]


async def test_a_failing_payment_is_retried_after_ten_seconds(
    rocketmq_broker: TestBroker, autojump_clock: MockClock
) -> None:
    attempts: list[float] = []
    done = trio.Event()

    async def on_order(message: ReceivedMessage) -> None:
        attempts.append(trio.current_time())
        if message.reconsume_times == 0:
            raise ConnectionError("the bank does not answer")
        done.set()

    async with (
        PushConsumer(
            "billing", namesrv=rocketmq_broker, subscriptions={"orders": "*"}, listener=on_order
        ),
        Producer("shop", namesrv=rocketmq_broker) as producer,
    ):
        await producer.send(Message("orders", b"order 42"))
        with trio.fail_after(60):
            await done.wait()
    assert len(attempts) == 2
    assert 10 <= attempts[1] - attempts[0] < 12
