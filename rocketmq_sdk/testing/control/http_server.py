"""A small HTTP/1.1 server for JSON on trio, on h11.

It is for one test program on the same machine: requests have limits of size and time,
and come from where they are expected. A browser's page is refused: by its `Origin`, and
where the server is bound to the loopback by the name in `Host`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import attrs
import h11
import trio

from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.testing.failures import ExpectationError

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

BODY_MAX: Final = 16 * 1024 * 1024
"""Most bytes of a request's body."""
HEAD_MAX: Final = 32 * 1024
"""Most bytes of a request's line and headers."""
REQUEST_TIMEOUT: Final = 30.0
"""Seconds in which a request must have come whole."""
IDLE_TIMEOUT: Final = 120.0
"""Seconds that a connection may rest between requests."""
MOST_CONNECTIONS: Final = 64
_ACCEPT_PAUSE: Final = 0.1
_READ: Final = 64 * 1024
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1", "[::1]")


class HttpError(Exception):
    """What a request is answered with in place of a result."""

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


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
"""Gives what is answered as JSON. What it raises is answered as an error."""


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    return host in _LOOPBACK or host.startswith("127.")


class HttpServer:
    """Serves `answer` to all connections."""

    def __init__(self, answer: Answerer, *, loopback_only: bool) -> None:
        self._answer = answer
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
                logger.error("cannot accept a control connection: %s", error)
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
                logger.debug("a control connection broke")
            except Exception:
                logger.exception("a control connection failed")
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
                raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a body is application/json")
            path, _, query = head.target.decode("latin-1").partition("?")
            return HttpRequest(head.method.decode("ascii"), path, query, bytes(body))
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, f"no whole request in {REQUEST_TIMEOUT:g} s")

    async def _refuse(self, error: HttpError | h11.RemoteProtocolError) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        if isinstance(error, HttpError):
            status, headers = error.status, error.headers
        else:
            status, headers = HTTPStatus(error.error_status_hint), {}
        await self._send(status, {"error": str(error)}, {**headers, "connection": "close"})

    async def _result(self, request: HttpRequest) -> tuple[HTTPStatus, object, dict[str, str]]:
        try:
            return HTTPStatus.OK, await self._answer(request), {}
        except HttpError as error:
            return error.status, {"error": str(error)}, error.headers
        except ExpectationError as error:
            return HTTPStatus.CONFLICT, {"error": str(error), "kind": type(error).__name__}, {}
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
        body = json.dumps(result, ensure_ascii=False).encode() + b"\n"
        response = h11.Response(
            status_code=int(status),
            headers=[
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("cache-control", "no-store"),
                *headers.items(),
            ],
        )
        data = b"".join(
            self._http.send(event) or b""
            for event in (response, h11.Data(data=body), h11.EndOfMessage())
        )
        await self._stream.send_all(data)


def check_address(address: str, *, open_to_all: bool) -> tuple[str, int]:
    """Host and port of an endpoint, which is on the loopback unless told otherwise.

    Raises `ConfigurationError`.
    """
    host, port = split_address(address)
    if not open_to_all and not is_loopback(host):
        raise ConfigurationError(
            f"the control endpoint would listen on {host}, where others reach it, and whoever does "
            "controls the broker; use 127.0.0.1, or allow it (--control-open)"
        )
    return host, port
