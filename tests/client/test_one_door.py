"""Everything that leaves a client is signed, and in its namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    RejectMessage,
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

NAMES = ("orders", "pg", "push", "pull", "other", "lite", "failing", "ordered", "popping")
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""What a broker says in a check, and hears again."""


class Seen:
    """Notes what comes and passes it on."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, dict[str, str]]] = []
        self.bodies: list[tuple[int, bytes]] = []

    def __call__(
        self, channel: Channel, request: Command, serve: Handler
    ) -> Command | Continuation | None:
        self.requests.append((request.code, dict(request.ext_fields)))
        self.bodies.append((request.code, bytes(request.body or b"")))
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
    more: dict[str, Any] = {
        "namesrv": broker,
        "subscriptions": {"orders": "*"},
        "consume_from": ConsumeFrom.FIRST_OFFSET,
        **options,
    }
    async with SimpleConsumer("other", **more) as simple:
        assert simple.group == "other"
        found = await simple.receive(1, await_duration=5)
        await simple.change_invisible_duration(found[0], 20)
        found += await simple.receive(1, await_duration=5)
        await simple.batch_ack(found[:1])
        await simple.ack(found[1])
        await simple.group_lag()
    async with LitePullConsumer("lite", **more) as lite:
        polled = await lite.poll()
        lite.done(*polled)
        await lite.commit()
    names += [message.topic for message in (*found, *polled)]
    await run_failing_consumers(more, names)
    return names


async def run_failing_consumers(more: dict[str, Any], names: list[str]) -> None:
    """What listeners do not take goes back, or to the dead letters; in order with locks
    and popped too.
    """
    kinds: dict[str, tuple[dict[str, Any], type[Exception]]] = {
        "failing": ({}, ValueError),
        "ordered": ({"orderly": True}, RejectMessage),
        "popping": ({"client_rebalance": False}, ValueError),
    }
    for group, (options, error) in kinds.items():
        failed = trio.Event()

        async def listener(
            message: ReceivedMessage,
            failed: trio.Event = failed,
            error: type[Exception] = error,
        ) -> None:
            names.append(message.topic)
            if not failed.is_set():
                failed.set()
                raise error

        async with PushConsumer(group, listener=listener, **more, **options) as push:
            with trio.fail_after(60):
                await failed.wait()
            await trio.sleep(30)
            await push.group_lag()


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
            RequestCode.POP_MESSAGE,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.LOCK_BATCH_MQ,
            RequestCode.UNLOCK_BATCH_MQ,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RequestCode.QUERY_CONSUMER_OFFSET,
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
            and value in NAMES
        }
        assert bare == set()
        # Nor is there one in a body, or among the properties of a message.
        texts = {f'"{name}"'.encode() for name in NAMES}
        assert not {code for code, body in seen.bodies if any(text in body for text in texts)}
        groups = {
            part.partition("\x01")[2]
            for _code, fields in seen.requests
            for part in fields.get("i", "").split("\x02")
            if part.startswith("PGROUP\x01")
        }
        assert groups == {"shop%pg"}


async def test_credentials_are_credentials() -> None:
    with pytest.raises(ConfigurationError, match="give Credentials"):
        Producer("pg", namesrv="127.0.0.1:9876", credentials=("access", "secret"))  # type: ignore[arg-type]
    assert "secret" not in repr(Credentials("access", "secret"))
