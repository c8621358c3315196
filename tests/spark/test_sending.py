"""What a task knows about its rows when sending fails."""

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
import trio
import trio.testing

from rocketmq_sdk.errors import ConfigurationError, RocketMQError, SendTimeout
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.spark.rows_out import RowMaker
from rocketmq_sdk.spark.sending import SendPlan, Tally, _Sender

if TYPE_CHECKING:
    from rocketmq_sdk.producer.producer import Producer


class Failing:
    """A producer whose sends fail, each with the next of these errors."""

    def __init__(self, *errors: RocketMQError) -> None:
        self.errors = list(errors)

    async def send_batch(self, messages: Any, queue: Any = None) -> Any:
        raise self.errors.pop(0)


@pytest.mark.parametrize(
    ("errors", "unknown"),
    [
        ([ConfigurationError("refused")], 0),
        ([SendTimeout("no answer", outcome_unknown=True), ConfigurationError("refused")], 3),
        ([SendTimeout("not sent", outcome_unknown=False), ConfigurationError("refused")], 0),
    ],
    ids=["refused", "lost, then refused", "not sent, then refused"],
)
async def test_rows_of_a_lost_try_are_of_unknown_outcome(autojump_clock: trio.testing.MockClock, errors: list[RocketMQError], unknown: int) -> None:
    tally = Tally()
    plan = SendPlan(cast("Any", None), "group", 256, 1 << 19, 0.01, 30)

    async def send() -> None:
        async with trio.open_nursery() as nursery:
            sender = _Sender(cast("Producer", Failing(*errors)), plan, tally, nursery)
            await sender.take([Message("T", b"x")] * 3)
            await sender.flush()

    with pytest.raises(ExceptionGroup) as caught:
        await send()
    assert caught.group_contains(ConfigurationError, match="refused")
    assert (tally.acknowledged, tally.unknown) == (0, unknown)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "GMT+02:00"])
def test_moments_of_every_time_zone(zone: str) -> None:
    moments = pa.array([1_700_000_000_123_456, None], pa.int64()).view(pa.timestamp("us", tz=zone))
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), moments], names=["body", "deliverAt"])
    maker = RowMaker(["body", "deliverAt"], topic="T", scope="s", partition=0, max_body=100, skip_bad=False)
    assert [message.deliver_at_ms for message in maker.messages(batch)] == [1_700_000_000_123, None]
