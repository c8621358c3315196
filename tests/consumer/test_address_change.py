"""A broker that comes back at another address (a container that was started anew):
consumers of every kind find it there without a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    ConsumeFrom,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
    SimpleConsumer,
)
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST = ConsumeFrom.FIRST_OFFSET
NAMES: dict[str, Any] = {
    "namesrv_listen": 0,
    "broker_name": "names",
    "auto_create_topic_enable": False,
}
BROKER: dict[str, Any] = {
    "broker_name": "moving",
    "mapped_file_size_commit_log": 65536,
    "register_name_server_period": 10_000,
}


class _Readers:
    """Consumers of all kinds, each in a group of its own, and what they got."""

    def __init__(self, namesrv: str) -> None:
        self.bodies: dict[str, set[int]] = {}
        self._common: dict[str, Any] = {
            "namesrv": namesrv,
            "subscriptions": {"orders": "*"},
            "consume_from": FIRST,
            "poll_name_server_interval": 1,
        }

    def _taker(self, kind: str) -> Callable[[ReceivedMessage], Any]:
        got = self.bodies[kind] = set()

        async def take(message: ReceivedMessage) -> None:
            got.add(int(message.body))

        return take

    def start(self, nursery: trio.Nursery) -> None:
        """Each lives in a task of its own, so that brokers can come and go beside
        them.
        """
        for kind, options in {
            "concurrent": {},
            "orderly": {"orderly": True},
            "assigned": {"client_rebalance": False},
        }.items():
            nursery.start_soon(self._push, kind, options)
        nursery.start_soon(self._poll)
        nursery.start_soon(self._receive)

    async def _push(self, kind: str, options: dict[str, Any]) -> None:
        async with PushConsumer(
            kind,
            listener=self._taker(kind),
            pull_time_delay_when_exception=0.2,
            **self._common,
            **options,
        ):
            await trio.sleep_forever()

    async def _poll(self) -> None:
        take = self._taker("lite")
        async with LitePullConsumer(
            "lite", pull_time_delay_when_exception=0.2, **self._common
        ) as consumer:
            async for message in consumer:
                await take(message)

    async def _receive(self) -> None:
        take = self._taker("simple")
        async with SimpleConsumer("simple", **self._common) as consumer:
            async for message in consumer:
                await take(message)
                await consumer.ack(message)

    async def all_have(self, count: int) -> None:
        await until(
            lambda: (
                len(self.bodies) == 5
                and all(got == set(range(count)) for got in self.bodies.values())
            ),
            120,
        )


async def _send(namesrv: str, numbers: range) -> None:
    async with Producer("writers", namesrv=namesrv, send_timeout=60) as producer:
        for number in numbers:
            assert (
                await producer.send(Message("orders", b"%d" % number))
            ).status is SendStatus.SEND_OK


@pytest.mark.real_time
async def test_a_broker_that_comes_back_at_another_address_is_found(tmp_path: Path) -> None:
    async with EmbeddedBroker(**NAMES) as names, trio.open_nursery() as nursery:
        namesrv = names.namesrv_address
        assert namesrv is not None
        readers = _Readers(namesrv)
        readers.start(nursery)
        async with EmbeddedBroker(tmp_path, listen=0, namesrv_addr=namesrv, **BROKER) as broker:
            assert str(broker.address).startswith("127.0.0.1:")
            await _send(namesrv, range(10))
            await readers.all_have(10)
        async with EmbeddedBroker(
            tmp_path, listen="127.0.0.2:0", namesrv_addr=namesrv, **BROKER
        ) as broker:
            assert str(broker.address).startswith("127.0.0.2:")
            await _send(namesrv, range(10, 20))
            await readers.all_have(20)
            nursery.cancel_scope.cancel()
