"""A small HTTP/1.1 server on trio, on h11: JSON, and texts such as metrics.

It is for a few programs that know it, not for the public: requests have limits of size
and time, and come from where they are expected. A browser's page is refused: by its
`Origin`, and where the server is bound to the loopback by the name in `Host`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

import attrs
import h11
import trio

from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.model.route import is_loopback

logger = logging.getLogger(__name__)

BODY_MAX: Final = 16 * 1024 * 1024
"""Most bytes of a request's body."""
HEAD_MAX: Final = 32 * 1024
"""Most bytes of a request's line and headers."""
REQUEST_TIMEOUT: Final = 30.0
"""Seconds in which a request must have come whole."""
IDLE_TIMEOUT: Final = 120.0
"""Seconds that a connection may rest between requests."""
SEND_TIMEOUT: Final = 30.0
"""Seconds in which a peer must have taken an answer."""
MOST_CONNECTIONS: Final = 64
_ACCEPT_PAUSE: Final = 0.1
_READ: Final = 64 * 1024


class HttpError(Exception):
    """What a request is answered with in place of a result."""

    def __init__(
        self, status: HTTPStatus, text: str, *, kind: str | None = None, **headers: str
    ) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind
        """The name of the error behind it, told beside the text."""
        self.headers = headers

    @property
    def told(self) -> dict[str, str]:
        """The error as JSON."""
        found = {"error": str(self)}
        return found if self.kind is None else {**found, "kind": self.kind}


@attrs.frozen
class HttpText:
    """An answer that is no JSON: parts of a text, sent one after the other."""

    parts: Sequence[bytes]
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


@attrs.frozen
class HttpRequest:
    """A request that came whole."""

    method: str
    path: str
    query: str
    body: bytes

    def json(self) -> dict[str, Any]:
        """The object in the body, empty without one. Raises `HttpError`."""
        if not self.body.strip():
            return {}
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from None
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise HttpError(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
        return found


Answerer = Callable[[HttpRequest], Awaitable[object]]
"""Gives what is answered: an `HttpText`, or anything else as JSON.

What it raises is answered as an error.
"""


class HttpServer:
    """Serves `answer` to all connections; logs call it by its name."""

    def __init__(self, answer: Answerer, *, loopback_only: bool, name: str) -> None:
        self._answer = answer
        self._name = name
        self._loopback_only = loopback_only
        self._places = trio.CapacityLimiter(MOST_CONNECTIONS)

    async def serve(
        self,
        listeners: Sequence[trio.SocketListener],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept and serve until cancelled; closes the listeners."""
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, nursery)
                task_status.started()
        finally:
            for listener in listeners:
                listener.socket.close()

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                logger.error("cannot accept a connection of the %s: %s", self._name, error)
                await trio.sleep(_ACCEPT_PAUSE)
                continue
            nursery.start_soon(self._connection, stream)

    async def _connection(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                self._places.acquire_nowait()
            except trio.WouldBlock:
                return
            try:
                await _Connection(stream, self._answer, self._check).run()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                logger.debug("a connection of the %s broke", self._name)
            except Exception:
                logger.exception("a connection of the %s failed", self._name)
            finally:
                self._places.release()

    def _check(self, headers: dict[str, str]) -> None:
        """Refuse what a page in a browser sends. Raises `HttpError`."""
        if "origin" in headers:
            raise HttpError(HTTPStatus.FORBIDDEN, "requests of web pages are not served")
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._loopback_only and not is_loopback(name):
            raise HttpError(HTTPStatus.FORBIDDEN, f"{host!r} is not this machine's own name")


class _Connection:
    def __init__(
        self,
        stream: trio.SocketStream,
        answer: Answerer,
        check: Callable[[dict[str, str]], None],
    ) -> None:
        self._stream = stream
        self._answer = answer
        self._check = check
        self._is_head = False
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)

    async def run(self) -> None:
        """Serve requests until one side ends."""
        while True:
            with trio.move_on_after(IDLE_TIMEOUT) as idle:
                try:
                    request = await self._request()
                except (HttpError, h11.RemoteProtocolError) as error:
                    await self._refuse(error)
                    return
            if idle.cancelled_caught or request is None:
                return
            status, result, headers = await self._result(request)
            await self._send(status, result, headers)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                assert not isinstance(event, type) or event is h11.PAUSED
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._stream.send_all(
                    self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                )
            self._http.receive_data(await self._stream.receive_some(_READ))

    async def _request(self) -> HttpRequest | None:
        """The next request; None at the end of the connection."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        self._is_head = head.method == b"HEAD"
        with trio.move_on_after(REQUEST_TIMEOUT):
            headers = {
                name.decode("ascii"): value.decode("latin-1") for name, value in head.headers
            }
            self._check(headers)
            body = bytearray()
            while isinstance(event := await self._event(), h11.Data):
                body += event.data
                if len(body) > BODY_MAX:
                    raise HttpError(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_MAX} bytes"
                    )
            if body and not headers.get("content-type", "").startswith("application/json"):
                raise HttpError(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "a body is JSON and is sent with the header Content-Type: application/json",
                )
            path, _, query = head.target.decode("latin-1").partition("?")
            return HttpRequest(head.method.decode("ascii"), path, query, bytes(body))
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, f"no whole request in {REQUEST_TIMEOUT:g} s")

    async def _refuse(self, error: HttpError | h11.RemoteProtocolError) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        if not isinstance(error, HttpError):
            error = HttpError(HTTPStatus(error.error_status_hint), str(error))
        await self._send(error.status, error.told, {**error.headers, "connection": "close"})

    async def _result(self, request: HttpRequest) -> tuple[HTTPStatus, object, dict[str, str]]:
        try:
            return HTTPStatus.OK, await self._answer(request), {}
        except HttpError as error:
            return error.status, error.told, error.headers
        except ConfigurationError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}, {}
        except RocketMQError as error:
            found = {"error": str(error), "kind": type(error).__name__}
            return HTTPStatus.CONFLICT, found, {}
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            found = {"error": f"{type(error).__name__}: {error}"}
            return HTTPStatus.INTERNAL_SERVER_ERROR, found, {}

    async def _send(self, status: HTTPStatus, result: object, headers: dict[str, str]) -> None:
        if isinstance(result, HttpText):
            status, kind, parts = result.status, result.content_type, result.parts
        else:
            kind = "application/json"
            parts = [json.dumps(result, ensure_ascii=False).encode() + b"\n"]
        http = self._http
        response = h11.Response(
            status_code=int(status),
            headers=[
                ("content-type", kind),
                ("content-length", str(sum(map(len, parts)))),
                ("cache-control", "no-store"),
                *headers.items(),
            ],
        )
        head = http.send(response) or b""
        if self._is_head:
            parts = ()
        elif len(parts) == 1:
            head, parts = head + (http.send(h11.Data(data=parts[0])) or b""), ()
        with trio.move_on_after(SEND_TIMEOUT) as sending:
            await self._stream.send_all(head)
            for part in parts:
                await self._stream.send_all(http.send(h11.Data(data=part)) or b"")
        if sending.cancelled_caught:
            raise trio.BrokenResourceError("the peer does not read")
        http.send(h11.EndOfMessage())
