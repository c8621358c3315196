"""Looking messages up: by id, key, tag, place and time.

Producers, consumers and administration share it. Follows `MQAdminImpl` of Apache
RocketMQ 5.4.0.
"""

from __future__ import annotations

import heapq
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.client.api.caller import Caller
from rocketmq_sdk.client.api.offsets import max_offset, search_offset
from rocketmq_sdk.client.api.pull import pull_message
from rocketmq_sdk.client.api.queries import (
    KEY,
    QUERY_MAX,
    TAG,
    UNIQUE,
    query_messages,
    view_message,
)
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.errors import ConfigurationError, NotFoundError, RocketMQError, RouteError
from rocketmq_sdk.model.enums import PullStatus
from rocketmq_sdk.model.message_arguments import epoch_milliseconds
from rocketmq_sdk.model.route import join_address
from rocketmq_sdk.names import TOOLS_GROUP
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader
from rocketmq_sdk.protocol.message_id import parse_offset_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from rocketmq_sdk.client.brokers import BrokerAddresses
    from rocketmq_sdk.client.config import ClientConfig
    from rocketmq_sdk.client.namespace import Namespace
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.command import Command

Moment = datetime | int | None
"""An aware datetime, epoch milliseconds, or no limit."""
_FOREVER: Final = (1 << 63) - 1
_PULL_BATCH: Final = 32
_PULL_TIMEOUT: Final = 10.0


class QueryClient(Caller, Protocol):
    """What message queries need of a client; `Client` is one."""

    @property
    def config(self) -> ClientConfig:
        """The settings."""
        ...

    @property
    def namespace(self) -> Namespace:
        """How names of users become names of brokers."""
        ...

    @property
    def brokers(self) -> BrokerAddresses:
        """The brokers that routes have named."""
        ...

    def check_run(self) -> None:
        """Raise `WrongRunError` in another `trio.run` than the client's."""
        ...

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic. Raises `RouteError`."""
        ...


class MessageQueries:
    """Questions about stored messages, over a running client.

    What is found is sorted by store time.

    All may raise `RouteError` when nobody knows the topic, `ConnectError` and
    `RequestTimeoutError` when a broker cannot be asked, and `BrokerError`; a broker
    that fails makes the whole question fail, so that an answer is never silently a part
    of the truth.
    """

    def __init__(self, client: QueryClient) -> None:
        self._client = client
        self._namespace = client.namespace

    def _named(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Messages with the topics as users write them."""
        if self._namespace:
            for message in messages:
                message.topic = self._namespace.unwrap(message.topic)
        return messages

    # --- by id

    @checked
    async def by_offset_id(
        self, offset_id: str, *, topic: str | None = None, timeout: float | None = None
    ) -> ReceivedMessage:
        """The message that an offset id names, by the broker in the id.

        With `topic` the brokers of its route are asked instead when none of them has
        the id's address, for brokers that are reached by another one. Raises
        `NotFoundError` when no broker has it, `ConfigurationError` when the text is no
        offset id.
        """
        host, port, offset = parse_offset_id(offset_id)
        address = join_address(host, port)
        topic = None if topic is None else self._namespace.wrap(topic)
        for place, name in await self._places(address, topic):
            try:
                message = await view_message(self._client, place, name, offset, topic, timeout)
            except NotFoundError:
                continue
            if message.offset_message_id == offset_id.upper():
                return self._named([message])[0]
        raise NotFoundError(
            1, f"no message has the offset id {offset_id}", address=address, topic=topic
        )

    async def _places(self, address: str, topic: str | None) -> list[tuple[str, str]]:
        """Where to ask for an offset id: address and broker name."""
        known = self._client.brokers.name_of(address)
        if known is None and topic is not None:
            route = await self._client.route(topic)
            places = [
                (place, data.broker_name)
                for data in route.broker_datas
                for place in data.broker_addrs.values()
            ]
            exact = [found for found in places if found[0] == address]
            return exact or places
        return [(address, known or "")]

    @checked
    async def by_unique_id(
        self,
        topic: str,
        unique_id: str,
        *,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> ReceivedMessage:
        """The message with a producer's unique id.

        When there are several, as after a send that was tried twice, the one stored
        first.

        Raises `NotFoundError`.
        """
        found = await self._by_index(
            self._namespace.wrap(topic), unique_id, UNIQUE, QUERY_MAX, begin, end, timeout
        )
        if not found:
            raise NotFoundError(
                22, f"no message of the topic has the unique id {unique_id}", topic=topic
            )
        return found[0]

    @checked
    async def by_id(
        self, topic: str, message_id: str, *, timeout: float | None = None
    ) -> ReceivedMessage:
        """The message that either kind of id names.

        Raises `NotFoundError`. Follows `DefaultMQAdminExtImpl.viewMessage`.
        """
        try:
            return await self.by_unique_id(topic, message_id, timeout=timeout)
        except NotFoundError as error:
            try:
                return await self.by_offset_id(message_id, topic=topic, timeout=timeout)
            except (RocketMQError, ConfigurationError):
                raise error from None

    # --- by index

    @checked
    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        limit: int = QUERY_MAX,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Messages with a key, or a unique id, stored within a time.

        At most `limit`, the newest of each broker.
        """
        return await self._by_index(
            self._namespace.wrap(topic), key, KEY, limit, begin, end, timeout
        )

    @checked
    async def by_tag(
        self,
        topic: str,
        tag: str,
        *,
        limit: int = QUERY_MAX,
        begin: Moment = None,
        end: Moment = None,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Messages with a tag, stored within a time.

        At most `limit`, the newest of each broker. Brokers before 5.4 find none.
        """
        return await self._by_index(
            self._namespace.wrap(topic), tag, TAG, limit, begin, end, timeout
        )

    async def _by_index(
        self,
        topic: str,
        key: str,
        index_type: str,
        limit: int,
        begin: Moment,
        end: Moment,
        timeout: float | None,
        stored_in: str | None = None,
    ) -> list[ReceivedMessage]:
        """Ask all brokers of a topic's route.

        With `stored_in` the messages are stored in that topic.
        """
        if not key:
            raise ConfigurationError("an empty key cannot be looked for")
        if limit < 1:
            raise ConfigurationError(f"limit is {limit}; it must be at least 1")
        first, last = _milliseconds(begin, 0), _milliseconds(end, _FOREVER)
        found: list[ReceivedMessage] = []

        async def ask(address: str, name: str) -> None:
            found.extend(
                await query_messages(
                    self._client,
                    address,
                    name,
                    stored_in or topic,
                    key,
                    index_type=index_type,
                    limit=limit,
                    begin=first,
                    end=last,
                    timeout=timeout,
                )
            )

        await self._each_broker(topic, ask)
        return self._named(_sorted(found)[-limit:])

    async def _each_broker(self, topic: str, ask: Callable[[str, str], Awaitable[None]]) -> None:
        route = await self._client.route(topic)
        errors: list[RocketMQError] = []

        async def try_to_ask(name: str) -> None:
            try:
                await ask(address_of(name, route), name)
            except RocketMQError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            for data in route.broker_datas:
                nursery.start_soon(try_to_ask, data.broker_name)
        if errors:
            raise errors[0]

    @checked
    async def copies(
        self, topic: str, unique_id: str, stored_in: str, *, timeout: float | None = None
    ) -> list[ReceivedMessage]:
        """The copies of a message that the brokers of its topic keep in another topic.

        There it waited, was retried, or ended.
        """
        return await self._by_index(
            self._namespace.wrap(topic),
            unique_id,
            UNIQUE,
            QUERY_MAX,
            None,
            None,
            timeout,
            stored_in,
        )

    # --- by place and time

    @checked
    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        full = self._namespace.wrap(topic)
        found = (await self._client.route(full)).subscribe_queues(full)
        return [self._namespace.unwrap_queue(queue) for queue in found]

    @checked
    async def at(
        self, queue: MessageQueue, offset: int, *, timeout: float | None = None
    ) -> ReceivedMessage:
        """The message at an offset of a queue.

        Raises `NotFoundError` when there is none.
        """
        queue = self._namespace.wrap_queue(queue)
        found = await self._read(queue, offset, 1, await self._client.route(queue.topic), timeout)
        if not found or found[0].offset != offset:
            raise NotFoundError(
                22, f"{queue!r} has no message at offset {offset}", topic=queue.topic
            )
        return found[0]

    @checked
    async def from_offset(
        self, queue: MessageQueue, offset: int, count: int, *, timeout: float | None = None
    ) -> list[ReceivedMessage]:
        """At most `count` messages of a queue from an offset on, in order.

        Fewer at the end of the queue.
        """
        queue = self._namespace.wrap_queue(queue)
        route = await self._client.route(queue.topic)
        messages: list[ReceivedMessage] = []
        while len(messages) < count:
            found = await self._read(
                queue, offset, min(_PULL_BATCH, count - len(messages)), route, timeout
            )
            if not found:
                break
            messages += found
            offset = found[-1].offset + 1
        return messages

    @checked
    async def in_time(
        self, topic: str, begin: Moment, end: Moment = None, *, timeout: float | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """All messages of a topic stored between two moments, in order of store time.

        Both moments are included.

        Reads as far as the iteration goes. What is stored after it began may be left
        out.
        """
        first, last = _milliseconds(begin, 0), _milliseconds(end, _FOREVER)
        topic = self._namespace.wrap(topic)
        route = await self._client.route(topic)
        heads: list[tuple[int, int, ReceivedMessage, AsyncGenerator[ReceivedMessage, None]]] = []
        async with AsyncExitStack() as stack:
            for order, queue in enumerate(route.subscribe_queues(topic)):
                messages = self._queue_in_time(queue, first, last, route, timeout)
                await stack.enter_async_context(aclosing(messages))
                async for message in messages:
                    heads.append((message.store_timestamp, order, message, messages))
                    break
            heapq.heapify(heads)
            while heads:
                _time, order, message, messages = heads[0]
                yield message
                async for following in messages:
                    heapq.heapreplace(
                        heads, (following.store_timestamp, order, following, messages)
                    )
                    break
                else:
                    heapq.heappop(heads)

    async def _queue_in_time(
        self, queue: MessageQueue, begin: int, end: int, route: TopicRoute, timeout: float | None
    ) -> AsyncGenerator[ReceivedMessage, None]:
        client, name = _AtRoute(self._client, route), queue.broker_name
        offset = await search_offset(client, name, queue.topic, queue.queue_id, begin, timeout)
        limit = await max_offset(client, name, queue.topic, queue.queue_id, timeout)
        while offset < limit:
            found = await self._read(queue, offset, _PULL_BATCH, route, timeout)
            if not found:
                return
            for message in found:
                if message.store_timestamp > end or message.offset >= limit:
                    return
                if message.store_timestamp >= begin:
                    yield message
            offset = found[-1].offset + 1

    async def _read(
        self, queue: MessageQueue, offset: int, count: int, route: TopicRoute, timeout: float | None
    ) -> list[ReceivedMessage]:
        """One pull that is not held.

        Goes on where the broker says when nothing is at the offset any more.
        """
        address = address_of(queue.broker_name, route)
        while True:
            header = PullMessageRequestHeader(
                consumer_group=TOOLS_GROUP,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=offset,
                max_msg_nums=count,
                sys_flag=PullSysFlag.SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
                expression_type="TAG",
                bname=queue.broker_name,
            )
            result = await pull_message(
                self._client,
                address,
                queue.broker_name,
                header,
                _PULL_TIMEOUT if timeout is None else timeout,
            )
            if result.status is PullStatus.FOUND or result.next_begin_offset <= offset:
                return self._named(result.messages)
            offset = result.next_begin_offset


class _AtRoute:
    """Calls brokers by the addresses of one route, even after the client has newer."""

    def __init__(self, client: QueryClient, route: TopicRoute) -> None:
        self._client = client
        self._route = route
        self.client_id = client.client_id
        self.call_name_server = client.call_name_server
        self.call_address = client.call_address
        self.oneway_broker = client.oneway_broker

    async def call_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
        any_replica: bool = False,
    ) -> Command:
        """Ask the broker of a name: its master if there is one, else any replica.

        Other ids are not asked for here.
        """
        del broker_id, any_replica
        return await self._client.call_address(
            address_of(broker_name, self._route), command, timeout
        )


def address_of(broker_name: str, route: TopicRoute) -> str:
    """The address of a broker in a route, its master's if there is one.

    Raises `RouteError`.
    """
    for data in route.broker_datas:
        if data.broker_name == broker_name and data.broker_addrs:
            return data.broker_addrs[min(data.broker_addrs)]
    raise RouteError(f"no address of broker {broker_name!r} is known")


def _milliseconds(moment: Moment, default: int) -> int:
    return default if moment is None else epoch_milliseconds(moment)


def _sorted(messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
    return sorted(
        messages,
        key=lambda message: (
            message.store_timestamp,
            message.broker_name,
            message.commit_log_offset,
        ),
    )
