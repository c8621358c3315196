"""A client that comes with topics, groups, filters, transactions, timers, pops and a
broker of its own, and goes: all names hold one text, so that what is left of them can
be found.
"""

from __future__ import annotations

import gc
import types
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.members import (
    LockBatchRequestBody,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_sdk.protocol.bodies.registration import RegisterBrokerBody
from rocketmq_sdk.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.registration import RegisterBrokerRequestHeader
from rocketmq_sdk.protocol.subscription import SQL92, build_subscription
from support.broker import connect, heartbeat, pull_request, subscription
from support.popping import Popper, make_topic
from support.transactions import COMMIT, ROLLBACK, begun, ended, producer_heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from support.broker import Peer


class Guest:
    """One that comes and goes; `name` begins all its names."""

    def __init__(self, broker: EmbeddedBroker, name: str, peer: Peer, namesrv: Peer) -> None:
        self.broker = broker
        self.name = name
        self.peer = peer
        self.namesrv = namesrv

    @property
    def topics(self) -> Iterator[str]:
        """All topics that are made for it."""
        name = self.name
        for topic in (name, f"{name}-other"):
            yield topic
            for group in (name, f"{name}-orderly", f"{name}-sql", f"{name}-all"):
                yield from (f"%RETRY%{group}_{topic}", f"%RETRY%{group}+{topic}")
        for group in (name, f"{name}-orderly", f"{name}-sql", f"{name}-all"):
            yield from (f"%RETRY%{group}", f"%DLQ%{group}")

    async def stay(self) -> None:
        """Do a bit of everything."""
        peer, name = self.peer, self.name
        await make_topic(peer, name, 2)
        await self.namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=name)
        await self._join()
        for number in range(6):
            text = f"KEYS\x01{name} {number}\x02UNIQ_KEY\x01{name}-{number}\x02"
            await peer.send(name, name.encode(), tag=name, properties=text, queue_id=number % 2)
        await self._pull()
        await self._pop()
        await self._later()
        await self._administer()
        await self._register_a_broker()

    async def _join(self) -> None:
        peer, name = self.peer, self.name
        await peer.ask(producer_heartbeat(name, name))
        await peer.ask(heartbeat(name, name, subscription(name, name), heartbeat_fingerprint=7))
        wish = build_subscription(name, f"name = '{name}'", expression_type=SQL92, sub_version=1)
        await peer.ask(heartbeat(name, f"{name}-sql", wish))
        await peer.ask(
            heartbeat(name, f"{name}-all", subscription(name), model=MessageModel.BROADCASTING)
        )
        queues = (MessageQueue(name, "broker-a", 0), MessageQueue(name, "broker-a", 1))
        lock = LockBatchRequestBody(f"{name}-orderly", name, queues)
        await peer.ask(Command(RequestCode.LOCK_BATCH_MQ, body=lock.encode()))
        mode = SetMessageRequestModeRequestBody(name, name, MessageRequestMode.POP, 1)
        await peer.ask(Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode()))
        for topic in (name, f"{name}-unknown"):
            query = QueryAssignmentRequestBody(topic, name, name, "AVG", MessageModel.CLUSTERING)
            await peer.ask(Command(RequestCode.QUERY_ASSIGNMENT, body=query.encode()))

    async def _pull(self) -> None:
        peer, name = self.peer, self.name
        (first, *_) = await peer.pull(name, 0, group=name, expression=name)
        for group in (f"{name}-sql", f"{name}-all"):
            await peer.ask(pull_request(name, 0, group=group, expression=None))
        await peer.send_back(first, group=name, origin_topic=name)
        await peer.send_back(first, group=name, level=-1, origin_topic=name)
        commit: dict[str, Any] = {
            "consumerGroup": name,
            "topic": name,
            "queueId": 0,
            "commitOffset": 2,
        }
        await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit)
        with trio.move_on_after(0.5):
            await peer.ask(pull_request(name, 3, group=name, expression=name, hold=15))

    async def _pop(self) -> None:
        peer, name = self.peer, self.name
        popper = Popper(peer, name, name, invisible_time=1500)
        first, second, *_ = (await popper.pop()).handles
        await popper.ack(first)
        await popper.change(second, 2000)
        orderly = Popper(peer, name, f"{name}-orderly", invisible_time=1500)
        await orderly.pop(order=True, queue_id=0, attempt_id=name)
        with trio.move_on_after(0.5):
            await popper.pop(queue_id=1, poll_time=15_000)
        with trio.move_on_after(0.5):
            await popper.has_messages(hold=15, queue_id=1)

    async def _later(self) -> None:
        peer, name = self.peer, self.name
        now = self.broker.core.clock.now_ms()
        await peer.send(name, name.encode(), properties="DELAY\x011\x02", queue_id=0)
        for delay in (1500, 4000):
            text = f"TIMER_DELIVER_MS\x01{now + delay}\x02UNIQ_KEY\x01{name}-{delay}\x02"
            await peer.send(f"{name}-other", name.encode(), properties=text, queue_id=0)
        for end in (COMMIT, ROLLBACK, None):
            half = await begun(
                peer, f"{name}{end}".encode(), topic=name, group=name, born_timestamp=now
            )
            if end is not None:
                await ended(peer, half, end, group=name)

    async def _administer(self) -> None:
        peer, name = self.peer, self.name
        place: dict[str, Any] = {"consumerGroup": name, "group": name, "topic": name}
        await peer.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, readable="false", **place)
        for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_TOPIC_STATS_INFO):
            await peer.ask(code, **place)
        fields: dict[str, Any] = {"timestamp": 0, "isForce": "true"}
        await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **place, **fields)
        pair: dict[str, Any] = {"namespace": "GUESTS", "key": name}
        await self.namesrv.ask(RequestCode.PUT_KV_CONFIG, value=name, **pair)
        await self.namesrv.ask(RequestCode.DELETE_KV_CONFIG, **pair)

    async def _register_a_broker(self) -> None:
        """It ends with its connection."""
        name = self.name
        table = {topic: TopicConfig(topic) for topic in (name, f"{name}-elsewhere")}
        body = RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(0, 5, 1)))
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_addr="10.0.0.1:1",
            cluster_name=name,
            ha_server_addr="10.0.0.1:2",
            broker_id=0,
        )
        request = Command.request(RequestCode.REGISTER_BROKER, header, body=body.encode())
        assert (await self.namesrv.ask(request)).code == 0

    async def go(self) -> None:
        """Have all removed that it made."""
        peer, name = self.peer, self.name
        for group in (name, f"{name}-orderly", f"{name}-sql", f"{name}-all"):
            fields: dict[str, Any] = {"groupName": group, "cleanOffset": "true"}
            await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, **fields)
        for topic in self.topics:
            await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
            await self.namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic)
        await peer.channel.aclose()
        await self.namesrv.channel.aclose()


async def come_and_go(broker: EmbeddedBroker, name: str) -> None:
    """One guest, from its connection to its end."""
    async with trio.open_nursery() as nursery:
        peer = await connect(broker, nursery)
        guest = Guest(broker, name, peer, await connect(broker, nursery, namesrv=True))
        await guest.stay()
        await trio.sleep(10)  # what it sent for later has come, and its pops come again
        await guest.go()
        nursery.cancel_scope.cancel()


_SKIPPED = (
    type,
    types.ModuleType,
    types.CodeType,
    types.FrameType,
    types.CoroutineType,
    types.GeneratorType,
    trio.lowlevel.Task,
    trio.Nursery,
)


def _inner(holder: object) -> Iterator[tuple[str, object]]:
    """What an object holds, and where."""
    if isinstance(holder, dict):
        for key, value in list(holder.items()):
            yield "a key", key
            yield repr(key)[:80], value
    else:
        for inner in gc.get_referents(holder):
            yield type(inner).__qualname__, inner


def _is_of_trio(inner: object) -> bool:
    return type(inner).__module__ == "trio._core._run"


def _held(root: object) -> Iterator[tuple[tuple[str, ...], object]]:
    """All that an object holds, with the way to it.

    Code, modules and what runs are no part of that.
    """
    seen = {id(root)}
    queue: list[tuple[object, tuple[str, ...]]] = [(root, (type(root).__qualname__,))]
    for each, way in queue:
        for name, inner in _inner(each):
            if id(inner) in seen or isinstance(inner, _SKIPPED) or _is_of_trio(inner):
                continue
            seen.add(id(inner))
            here = (*way, name)
            yield here, inner
            if not isinstance(inner, str | bytes | bytearray) and not (
                isinstance(inner, dict) and "__builtins__" in inner
            ):
                queue.append((inner, here))


def remains(root: object, text: str) -> list[str]:
    """Ways from an object to each string or bytes with a text that it still holds."""
    found: list[str] = []
    for way, held in _held(root):
        if isinstance(held, str) and text in held:
            found.append(f"{' > '.join(way)}: {held[:100]}")
        elif isinstance(held, bytes | bytearray) and text.encode() in held:
            found.append(f"{' > '.join(way)}: {len(held)} bytes")
    return found


def lengths(root: object) -> Counter[str]:
    """How many entries each container has that an object holds, by the way to it.

    Of those that have a greatest length nothing is told.
    """
    found = Counter[str]()
    for way, held in _held(root):
        if isinstance(held, dict | list | set | deque) and getattr(held, "maxlen", None) is None:
            found[" > ".join(way)] += len(held)
    return found
