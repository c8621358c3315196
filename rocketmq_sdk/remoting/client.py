"""One open channel per address, opened on demand and again after it is lost.

Follows `NettyRemotingClient`.
"""

from __future__ import annotations

import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import ClosedError, ConnectError, RequestTimeoutError, RocketMQError
from rocketmq_sdk.lifecycle import bounded_cleanup, open_quiet_nursery
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.transport.tcp import CONNECT_TIMEOUT

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Sequence

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, ChannelLimits, Handler, PendingCall
    from rocketmq_sdk.remoting.source import ChannelSource
    from rocketmq_sdk.transport.tls_files import ContextSource

logger = logging.getLogger("rocketmq_sdk.remoting")

RECONNECT: Final = Backoff(first=0.05, limit=1.0)
CLOSE_TIMEOUT: Final = 2.0
RETIRE_TIMEOUT: Final = 30.0
RETIRE_LOOK: Final = 0.1


class Interceptor(Protocol):
    """Looks at, and may change, each request and each answer of a client (`RPCHook`).

    Called synchronously, in the order in which interceptors were given. What it
    raises ends the call.
    """

    def before(self, command: Command, address: str | None) -> None:
        """A request is about to be sent.

        `address` is None for the name server of an in-process source.
        """
        ...

    def after(self, command: Command, response: Command, address: str | None) -> None:
        """Its answer has come, whatever the code."""
        ...


class _Attempt:
    """One try to connect, shared by all who want the address."""

    __slots__ = ("channel", "ended", "error")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.channel: Channel | None = None
        self.error: RocketMQError | None = None


class _Failures:
    """Tries in a row that failed, and when the next one is due."""

    __slots__ = ("count", "error", "next_try")

    def __init__(self, error: RocketMQError) -> None:
        self.count = 0
        self.next_try = 0.0
        self.error = error


class RemotingClient:
    """Address → channel.

    Open it with `RemotingClient.open`; all its channels live in its own nursery.

    Addresses that `source` does not know, and all addresses without a source, are
    connected over `tcp`. The address None stands for the name server of a source that
    has one. `on_connect` are told of each new channel, synchronously.
    """

    def __init__(
        self,
        source: ChannelSource | None,
        handler: Handler,
        nursery: trio.Nursery,
        *,
        tcp: ChannelSource,
        interceptors: Sequence[Interceptor] = (),
        backoff: Backoff = RECONNECT,
    ) -> None:
        self._source = source
        self._tcp = tcp
        self.interceptors: list[Interceptor] = list(interceptors)
        self.on_connect: list[Callable[[str | None, Channel], None]] = []
        self.closed = False
        self._handler = handler
        self._nursery = nursery
        self._backoff = backoff
        self._channels: dict[str | None, Channel] = {}
        self._retired: dict[Channel, None] = {}
        self._attempts: dict[str | None, _Attempt] = {}
        self._failures: dict[str | None, _Failures] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        source: ChannelSource | None,
        handler: Handler,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        tls: ssl.SSLContext | ContextSource | None = None,
        limits: ChannelLimits | None = None,
        interceptors: Sequence[Interceptor] = (),
        backoff: Backoff = RECONNECT,
    ) -> AsyncIterator[RemotingClient]:
        """A client for the length of the block.

        At its end all channels are closed, within a bound.

        `connect_timeout`, `tls` and `limits` hold for what is connected over TCP.
        """
        tcp = TcpChannelSource(tls=tls, connect_timeout=connect_timeout, limits=limits)
        async with open_quiet_nursery() as nursery:
            client = cls(
                source, handler, nursery, tcp=tcp, interceptors=interceptors, backoff=backoff
            )
            try:
                yield client
            finally:
                async with bounded_cleanup(CLOSE_TIMEOUT):
                    await client.aclose()
                nursery.cancel_scope.cancel()

    def channel_nowait(self, address: str | None) -> Channel | None:
        """The open channel to an address, or None."""
        channel = self._channels.get(address)
        return None if channel is None or channel.closed else channel

    def channels(self) -> dict[str | None, Channel]:
        """All open channels by address."""
        return {
            address: channel for address, channel in self._channels.items() if not channel.closed
        }

    async def channel(self, address: str | None, timeout: float) -> Channel:
        """The channel to an address; connects when there is none.

        Callers that want the same address at once share one try, which a caller's
        cancellation does not end. After a failed try the next one waits for a moment
        that grows up to a second; who has less time than that gets the last error at
        once. Raises `ConnectError`, `ConfigurationError` for what is no address,
        `ClosedError` once the client is closed.
        """
        channel = self.channel_nowait(address)
        if channel is not None:
            await trio.lowlevel.checkpoint()
            return channel
        with trio.move_on_after(timeout):
            return await self._connected(address, trio.current_time() + timeout)
        raise ConnectError(f"no connection to {address} within {timeout:g} s", address=address)

    async def _connected(self, address: str | None, deadline: float) -> Channel:
        while True:
            if self.closed:
                raise ClosedError("the client is closed")
            channel = self.channel_nowait(address)
            if channel is not None:
                return channel
            attempt = self._attempts.get(address)
            if attempt is None:
                failures = self._failures.get(address)
                if failures is not None and failures.next_try > trio.current_time():
                    if failures.next_try >= deadline:
                        await trio.lowlevel.checkpoint()
                        raise ConnectError(
                            f"{failures.error} (not tried again yet)", address=address
                        ) from failures.error
                    await trio.sleep_until(failures.next_try)
                    continue
                attempt = self._attempts[address] = _Attempt()
                self._nursery.start_soon(self._connect, address, attempt)
            await attempt.ended.wait()
            if attempt.channel is not None:
                return attempt.channel
            assert attempt.error is not None
            if not isinstance(attempt.error, ConnectError):
                raise attempt.error
            raise ConnectError(str(attempt.error), address=address) from attempt.error

    async def _connect(self, address: str | None, attempt: _Attempt) -> None:
        try:
            source = self._source
            if source is None or (address is not None and not source.knows(address)):
                source = self._tcp
            channel = await source.open_channel(address, self._handler, self._nursery)
        except ConnectError as error:
            attempt.error = error
            self._failed(address, error)
        except RocketMQError as error:
            attempt.error = error
        except Exception as error:
            logger.exception("connecting to %s failed in an unforeseen way", address)
            attempt.error = ConnectError(f"cannot connect to {address}: {error!r}", address=address)
            self._failed(address, attempt.error)
        else:
            attempt.channel = channel
            self._opened(address, channel)
        finally:
            if attempt.channel is None and attempt.error is None:
                attempt.error = ClosedError("the client is closed")
            del self._attempts[address]
            attempt.ended.set()

    def _failed(self, address: str | None, error: RocketMQError) -> None:
        failures = self._failures.get(address)
        if failures is None:
            failures = self._failures[address] = _Failures(error)
        failures.error = error
        failures.next_try = trio.current_time() + self._backoff.delay(
            failures.count, random.random()
        )
        failures.count += 1

    def _opened(self, address: str | None, channel: Channel) -> None:
        self._failures.pop(address, None)
        if self.closed:
            channel.abort("the client is closed")
            return
        self._channels[address] = channel
        channel.on_close.append(lambda closed: self._dropped(address, closed))
        if channel.closed:
            self._dropped(address, channel)
            return
        for hook in list(self.on_connect):
            try:
                hook(address, channel)
            except Exception:
                logger.exception("a hook for the new connection to %s failed", address)

    def _dropped(self, address: str | None, channel: Channel) -> None:
        if self._channels.get(address) is channel:
            del self._channels[address]

    async def call(self, address: str | None, command: Command, timeout: float) -> Command:
        """Send a request to an address and wait for its answer, whatever its code.

        `timeout` covers connecting too.

        When the peer asks to go away (1500) the address is connected anew and the
        request sent once more. Raises as `channel` and `Channel.call` do;
        `outcome_unknown` tells whether the request may have been sent.
        """
        deadline = trio.current_time() + timeout
        self.intercept(address, command)
        channel = self.channel_nowait(address)
        if channel is None:
            channel = await self.channel(address, timeout)
            timeout = self._left(deadline, address)
        response = await channel.call(command, timeout)
        if response.code == ResponseCode.GO_AWAY:
            response = await self._call_again(address, channel, command, deadline)
        self.conclude(address, command, response)
        return response

    async def _call_again(
        self, address: str | None, channel: Channel, command: Command, deadline: float
    ) -> Command:
        """Send a request that was told to go away on a new connection."""
        self.retire(address, channel)
        channel = await self.channel(address, self._left(deadline, address))
        return await channel.call(command, self._left(deadline, address))

    async def call_all(
        self, requests: Sequence[tuple[str, Command]], timeout: float
    ) -> list[Command | RocketMQError]:
        """`call` for several at the same time; errors stand where answers would.

        Those that are connected already cost no task. Where a peer asks to go away the
        timeout counts anew, as others may have been waited for before.
        """
        found: list[Command | RocketMQError | None] = [None] * len(requests)
        calls: list[tuple[int, Channel, PendingCall]] = []
        alone: list[int] = []
        for number, (address, command) in enumerate(requests):
            channel = self.channel_nowait(address)
            if channel is None:
                alone.append(number)
                continue
            try:
                self.intercept(address, command)
                calls.append((number, channel, channel.submit(command, timeout)))
            except RocketMQError as error:
                found[number] = error.with_traceback(None)

        async def call_alone(number: int) -> None:
            try:
                found[number] = await self.call(*requests[number], timeout)
            except RocketMQError as error:
                found[number] = error.with_traceback(None)

        async def answers() -> None:
            for number, channel, call in calls:
                address, command = requests[number]
                try:
                    response = call.response or await call.wait()
                    if response.code == ResponseCode.GO_AWAY:
                        ends = trio.current_time() + timeout
                        response = await self._call_again(address, channel, command, ends)
                    self.conclude(address, command, response)
                    found[number] = response
                except RocketMQError as error:
                    found[number] = error.with_traceback(None)

        try:
            if not alone:
                await answers()
            else:
                async with open_quiet_nursery() as nursery:
                    for number in alone:
                        nursery.start_soon(call_alone, number)
                    await answers()
        finally:
            for _number, _channel, call in calls:
                call.forget()
        return [each for each in found if each is not None]

    async def send_oneway(self, address: str | None, command: Command, timeout: float) -> None:
        """Queue a one-way request; `timeout` is for connecting.

        Raises as `channel` does, and `TooManyRequestsError`.
        """
        self.intercept(address, command)
        (await self.channel(address, timeout)).send_oneway(command)

    def send_oneway_on(self, channel: Channel, command: Command) -> None:
        """Queue a one-way request on a channel: the answer to what came by it.

        Raises as `Channel.send_oneway` does, and what an interceptor raises.
        """
        self.intercept(channel.remote_address, command)
        channel.send_oneway(command)

    def intercept(self, address: str | None, command: Command) -> None:
        """`prepare`, with any other error turned into a `RocketMQError`."""
        try:
            self.prepare(address, command)
        except RocketMQError:
            raise
        except Exception as error:
            raise RocketMQError(f"an interceptor has failed on {command!r}: {error!r}") from error

    def conclude(self, address: str | None, command: Command, response: Command) -> None:
        """Run the interceptors' `after`.

        What one raises becomes a `RocketMQError`, which ends the call and nothing else.
        """
        for interceptor in self.interceptors:
            try:
                interceptor.after(command, response, address)
            except RocketMQError:
                raise
            except Exception as error:
                raise RocketMQError(
                    f"an interceptor has failed on the answer to {command!r}: {error!r}"
                ) from error

    def prepare(self, address: str | None, command: Command) -> None:
        """Run the interceptors' `before`. For callers that use a channel directly."""
        for interceptor in self.interceptors:
            interceptor.before(command, address)

    @staticmethod
    def _left(deadline: float, address: str | None) -> float:
        left = deadline - trio.current_time()
        if left <= 0.0:
            raise RequestTimeoutError(
                f"connecting to {address} took all the time of the request",
                address=address,
                outcome_unknown=False,
            )
        return left

    def retire(self, address: str | None, channel: Channel | None = None) -> None:
        """Make no new calls on the channel to an address; the next call connects anew.

        The peer has asked for that (1500, `GO_AWAY`).

        The channel is closed when its calls are done, or after 30 seconds. With
        `channel` only if it still is the one in use: of many calls that are told to go
        away the first one does it. Synchronous.
        """
        current = self._channels.get(address)
        if current is not None and (channel is None or channel is current):
            del self._channels[address]
            self._retired[current] = None
            self._nursery.start_soon(self._close_retired, current)

    async def _close_retired(self, channel: Channel) -> None:
        try:
            with trio.move_on_after(RETIRE_TIMEOUT):
                # Looked at from time to time, the first time not at once: who has just
                # got the channel may not have made the call yet.
                while True:
                    await trio.sleep(RETIRE_LOOK)
                    if channel.closed or not channel.statistics().in_flight:
                        break
            await channel.aclose()
        finally:
            self._retired.pop(channel, None)

    async def aclose(self) -> None:
        """Close all channels, sending what is queued within each one's `drain_timeout`.

        Nothing can be opened any more.
        """
        self.closed = True
        channels = [*self._channels.values(), *self._retired]
        self._channels.clear()
        async with trio.open_nursery() as nursery:
            for channel in channels:
                nursery.start_soon(channel.aclose)
