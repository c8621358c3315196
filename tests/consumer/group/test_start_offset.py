"""First offsets, with a broker that is only asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer.group.start_offset import StartOffsets
from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
from rocketmq_sdk.errors import BrokerError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.caller import Caller

ORDERS = MessageQueue("orders", "broker-a", 0)
RETRY = MessageQueue("%RETRY%billing", "broker-a", 0)


class Script:
    """Answers requests by code with one value after the other; an exception is raised,
    None is "not found".
    """

    client_id = "me"

    def __init__(self, **answers: list[int | Exception | None]) -> None:
        self.answers = {RequestCode[name.upper()]: list(values) for name, values in answers.items()}
        self.asked: list[int] = []

    async def call_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
        any_replica: bool = False,
    ) -> Command:
        self.asked.append(command.code)
        answer = self.answers[RequestCode(command.code)].pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return Command.response(ResponseCode.QUERY_NOT_FOUND)
        return Command(0, ext_fields={"offset": str(answer)})


async def first(script: Script, consume_from: ConsumeFrom, queue: MessageQueue = ORDERS) -> int:
    caller = cast("Caller", script)
    return await StartOffsets(
        caller, RemoteOffsets(caller, "billing"), consume_from, 12345
    ).first_offset(queue)


@pytest.mark.parametrize("consume_from", list(ConsumeFrom))
async def test_a_committed_offset_wins(consume_from: ConsumeFrom) -> None:
    assert await first(Script(query_consumer_offset=[17]), consume_from) == 17


@pytest.mark.parametrize(
    ("consume_from", "queue", "script", "expected"),
    [
        (
            ConsumeFrom.LAST_OFFSET,
            ORDERS,
            Script(query_consumer_offset=[None, None], get_max_offset=[40]),
            40,
        ),
        (
            ConsumeFrom.LAST_OFFSET,
            ORDERS,
            Script(query_consumer_offset=[None], get_max_offset=[0]),
            0,
        ),
        (ConsumeFrom.LAST_OFFSET, RETRY, Script(query_consumer_offset=[None]), 0),
        (ConsumeFrom.FIRST_OFFSET, ORDERS, Script(query_consumer_offset=[None]), 0),
        (ConsumeFrom.FIRST_OFFSET, RETRY, Script(query_consumer_offset=[None]), 0),
        (
            ConsumeFrom.TIMESTAMP,
            ORDERS,
            Script(query_consumer_offset=[None], search_offset_by_timestamp=[23]),
            23,
        ),
        (ConsumeFrom.TIMESTAMP, RETRY, Script(query_consumer_offset=[None], get_max_offset=[9]), 9),
    ],
)
async def test_without_one_the_settings_decide(
    consume_from: ConsumeFrom, queue: MessageQueue, script: Script, expected: int
) -> None:
    assert await first(script, consume_from, queue) == expected
    assert not any(script.answers.values())


async def test_the_first_message_is_not_skipped_when_it_comes_between_two_questions() -> None:
    assert (
        await first(
            Script(query_consumer_offset=[None, 0], get_max_offset=[1]), ConsumeFrom.LAST_OFFSET
        )
        == 0
    )


async def test_an_error_is_no_offset() -> None:
    with pytest.raises(BrokerError):
        await first(
            Script(query_consumer_offset=[BrokerError(1, "as the test wants it")]),
            ConsumeFrom.FIRST_OFFSET,
        )
