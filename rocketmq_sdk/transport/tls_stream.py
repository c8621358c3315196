"""TLS over a byte stream, for many small messages.

`trio.SSLStream` gives one record at a time and needs a task for each write. Here all
that has arrived is decrypted at once, and what the socket takes is written without a
task (`send_now`), so that TLS costs little more than its arithmetic.

A stream that ends without TLS saying so has ended all the same, and is closed without
saying so, as HTTPS does it and Netty expects it: frames have lengths, so nothing that
was cut off is taken for whole.
"""

from __future__ import annotations

import ssl
from typing import Final

import trio

from rocketmq_sdk.transport.tcp import can_send_now, send_now

RECORD: Final = 16 * 1024
READ_SIZE: Final = 64 * 1024
_OWN_ANSWERS: Final = 64 * 1024
"""Bytes that TLS itself may have to say; a peer that never reads could make it more."""
_AT_ONCE: Final = 256 * 1024
"""Bytes that are encrypted before the stream must have taken them."""


class TlsStream(trio.abc.Stream):
    """Speaks TLS over `stream`, after `do_handshake`.

    Methods raise `trio.BrokenResourceError` for what the peer or the network does, with
    the error of TLS as its cause. A send that is cancelled leaves the stream broken.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        host: str | None = None,
        first: bytes = b"",
    ) -> None:
        """`first` are bytes of the peer that were read already."""
        self._stream = stream
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._incoming.write(first)
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=host
        )
        self._rest = b""
        """Encrypted, and not taken by the stream yet."""
        self._held = b""
        self._repeated = 0
        self._ended = False
        self._problem: trio.BrokenResourceError | None = None
        self._closed = False
        self._half_sent = False
        self._writing = trio.Lock()
        self._sending = False
        self._receiving = False
        self.sends_now = can_send_now(stream)

    async def do_handshake(self) -> None:
        """Agree with the peer on keys."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
            except ssl.SSLError as error:
                try:
                    await self._flush()  # tells the peer what it is
                except trio.BrokenResourceError:
                    pass  # it went away first
                raise self._broken(error) from error
            else:
                break
            data = await self._stream.receive_some(READ_SIZE)
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()
        if self._tls.server_side and self._tls.version() == "TLSv1.3":
            # Tickets for later sessions, for which nobody may be waiting: they leave
            # with what is sent first.
            self._held = self._outgoing.read()
        else:
            await self._flush()

    # Receiving

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """All that has arrived, at most so many bytes."""
        limit = READ_SIZE if max_bytes is None else max_bytes
        if limit < 1:
            await trio.lowlevel.checkpoint()
            raise ValueError("max_bytes must be at least 1")
        if self._receiving:
            raise trio.BusyResourceError("another task receives from this stream")
        self._receiving = True
        try:
            return await self._receive(limit)
        finally:
            self._receiving = False

    async def _receive(self, limit: int) -> bytes:
        self._check()
        found = self._decrypt(limit)
        if found or self._ended:
            await trio.lowlevel.checkpoint()
            return found
        while True:
            data = await self._stream.receive_some(max(limit, RECORD) + 1024)
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()
            found = self._decrypt(limit)
            if found or self._ended:
                return found
            if self._outgoing.pending > _OWN_ANSWERS:
                self._problem = trio.BrokenResourceError("the peer does not take what TLS answers")
                raise self._problem
            if self._outgoing.pending and not self._writing.locked():
                await self._answer()

    async def _answer(self) -> None:
        """Send what TLS itself answers, as when the peer has new keys."""
        try:
            await self._flush()
        except trio.BrokenResourceError:
            pass  # what the peer sent before it went away is read all the same

    def _decrypt(self, limit: int) -> bytes:
        """What can be decrypted, at most `limit` bytes."""
        parts: list[bytes] = []
        read, room = self._tls.read, limit
        try:
            while room > 0:
                part = read(room if room < RECORD else RECORD)
                if not part:
                    self._ended = True
                    break
                parts.append(part)
                room -= len(part)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._ended = True
        except ssl.SSLError as error:
            problem = self._broken(error)
            problem.__cause__ = error
            if not parts:
                raise problem from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # Sending

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send it all."""
        self._begin_sending()
        try:
            async with self._writing:
                self._check_sending()
                with memoryview(data) as view:
                    place, self._repeated = self._repeated, 0
                    while True:
                        await self._flush_now()
                        if place >= len(view):
                            break
                        place += self._encrypt(view[place : place + _AT_ONCE])
        finally:
            self._sending = False

    def send_now(self, data: bytes) -> int:
        """Send what the stream takes at once; tells the number of bytes.

        When that is less than all of them, the rest must be what is sent next. 0 also
        when the stream is broken or closed. Only while no task sends.
        """
        if self._rest or self._half_sent or self._closed or self._writing.locked():
            return 0
        try:
            self._check()
            with memoryview(data) as view:
                self._encrypt(view)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return 0
        encrypted = self._outgoing.read()
        if self._held:
            encrypted, self._held = self._held + encrypted, b""
        sent = send_now(self._stream, encrypted)
        if sent == len(encrypted):
            return len(data)
        # Its last byte will be given again, and left out: it is among the rest.
        self._rest, self._repeated = encrypted[sent:], 1
        return len(data) - 1

    def _encrypt(self, data: memoryview) -> int:
        place, size, write = 0, len(data), self._tls.write
        try:
            while place < size:
                place += write(data[place : place + RECORD])
        except ssl.SSLError as error:
            raise self._broken(error) from error
        return size

    async def _flush(self) -> None:
        async with self._writing:
            await self._flush_now()

    async def _flush_now(self) -> None:
        """Let the stream take what is encrypted; only by the task that writes."""
        while True:
            data = self._held + self._rest + self._outgoing.read()
            if not data:
                return
            self._held = self._rest = b""
            try:
                await self._stream.send_all(data)
            except BaseException:
                self._half_sent = True
                raise

    def _begin_sending(self) -> None:
        if self._sending:
            raise trio.BusyResourceError("another task sends on this stream")
        self._sending = True

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the stream may take something."""
        self._begin_sending()
        try:
            self._check_sending()
            await self._stream.wait_send_all_might_not_block()
        finally:
            self._sending = False

    # The end

    def _broken(self, error: ssl.SSLError) -> trio.BrokenResourceError:
        self._problem = trio.BrokenResourceError(error.reason or str(error))
        return self._problem

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        if self._problem is not None:
            raise self._problem

    def _check_sending(self) -> None:
        self._check()
        if self._half_sent:
            raise trio.BrokenResourceError("a write before was not finished")

    async def aclose(self) -> None:
        """Close the stream below."""
        self._closed = True
        await self._stream.aclose()
