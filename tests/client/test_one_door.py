"""Everything that leaves a client is signed, and in its namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import (
    ConfigurationError,
    ConsumeFrom,
    Credentials,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    reply_message,
)
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.signing import SIGNATURE
from rocketmq_sdk.testing.interception import intercept

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""What a broker says in a check, and hears again."""


class Seen:
    """Notes what comes and passes it on."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, dict[str, str]]] = []

    def __call__(
        self, channel: Channel, request: Command, serve: Handler
    ) -> Command | Continuation | None:
        self.requests.append((request.code, dict(request.ext_fields)))
        return serve(channel, request)

    def topics(self, code: int) -> set[str]:
        return {fields["topic"] for seen, fields in self.requests if seen == code}


async def run_everything(broker: EmbeddedBroker, options: dict[str, object]) -> list[str]:
    """Each conversation once; the names that the program saw."""
    names: list[str] = []
    checked = trio.Event()

    async def checker(message: ReceivedMessage) -> TransactionState:
        names.append(message.topic)
        checked.set()
        return TransactionState.COMMIT

    async def listener(message: ReceivedMessage) -> None:
        names.append(message.topic)
        if "CORRELATION_ID" in message.properties:
            await producer.send(reply_message(message, b"reply"))

    async with (
        TransactionProducer("pg", checker, namesrv=broker, **options) as producer,  # type: ignore[arg-type]
        PushConsumer(
            "push",
            listener=listener,
            namesrv=broker,
            subscriptions={"orders": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            **options,  # type: ignore[arg-type]
        ) as push,
    ):
        assert (producer.group, push.group) == ("pg", "push")
        await producer.send(Message("orders", b"1"))
        await producer.send_oneway(Message("orders", b"2"))
        await producer.send_batch([Message("orders", b"3")])
        async with producer.transaction(Message("orders", b"4")):
            pass
        async with producer.transaction(Message("orders", b"5")) as transaction:
            transaction.unknown()
        await checked.wait()
        assert (await producer.request(Message("orders", b"6"), timeout=60)).body == b"reply"
        await producer.client.heartbeat_now()
    async with PullConsumer("pull", namesrv=broker, **options) as pull:  # type: ignore[arg-type]
        assert pull.group == "pull"
        for queue in await pull.message_queues("orders"):
            result = await pull.pull(queue, await pull.begin_offset(queue))
            names += [message.topic for message in result.messages]
            await pull.commit(queue, result.next_begin_offset)
            assert await pull.committed(queue) == result.next_begin_offset
    for kind in (SimpleConsumer, LitePullConsumer):
        async with kind(
            "other",
            namesrv=broker,
            subscriptions={"orders": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            **options,
        ) as consumer:
            assert consumer.group == "other"
    return names


async def test_every_request_is_signed(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker:
        seen = Seen()
        with intercept(broker, *RequestCode, by=seen):
            await run_everything(broker, {"credentials": Credentials("access", "secret")})
        codes = {code for code, _fields in seen.requests}
        assert codes >= {
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
            RequestCode.END_TRANSACTION,
            RequestCode.HEART_BEAT,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.UNREGISTER_CLIENT,
        }
        assert {code for code, fields in seen.requests if SIGNATURE not in fields} == set()


async def test_every_name_is_in_the_namespace(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker:
        seen = Seen()
        with intercept(broker, *RequestCode, by=seen):
            names = await run_everything(broker, {"namespace": "shop"})
        assert set(names) == {"orders"}
        assert seen.topics(RequestCode.END_TRANSACTION) == {"shop%orders", HALF_TOPIC}
        bare = {
            (code, name, value)
            for code, fields in seen.requests
            for name, value in fields.items()
            if name in ("topic", "b", "group", "a", "consumerGroup", "producerGroup")
            and value in ("orders", "pg", "push", "pull", "other")
        }
        assert bare == set()


async def test_credentials_are_credentials() -> None:
    with pytest.raises(ConfigurationError, match="give Credentials"):
        Producer("pg", namesrv="127.0.0.1:9876", credentials=("access", "secret"))  # type: ignore[arg-type]
    assert "secret" not in repr(Credentials("access", "secret"))
