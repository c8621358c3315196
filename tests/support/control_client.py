"""A client of the control endpoint, over one connection."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import h11
import trio
from jsonschema import Draft202012Validator

from rocketmq_sdk.http_server import HttpServer
from rocketmq_sdk.testing.control.endpoint import Endpoint
from rocketmq_sdk.transport.tcp import open_tcp_listeners

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.testing import TestBroker


class Control:
    """Asks, reads the answer's JSON, and holds both against the description."""

    def __init__(self, stream: trio.abc.Stream, port: int, described: dict[str, Any]) -> None:
        self.stream = stream
        self.port = port
        self._described = described
        self._http = h11.Connection(h11.CLIENT)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        **headers: str,
    ) -> tuple[int, Any]:
        """Status and answer."""
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {
            "host": f"127.0.0.1:{self.port}",
            "content-type": "application/json",
            "content-length": str(len(data)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        request = h11.Request(method=method, target=path, headers=list(sent.items()))
        out = self._http.send(request) or b""
        out += self._http.send(h11.Data(data=data)) or b""
        out += self._http.send(h11.EndOfMessage()) or b""
        await self.stream.send_all(out)
        status, found = 0, bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self.stream.receive_some()))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                found += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        answer = json.loads(found)
        self._compare(method, path, body, status, answer)
        return status, answer

    def _compare(self, method: str, path: str, body: Any, status: int, answer: Any) -> None:
        operation = self._operation(method, path)
        if operation is None:
            assert status in (403, 404, 405) or path == "/openapi.json"
            return
        schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
        self._check(answer, schema)
        if status == 200 and body is not None:
            sent = operation["requestBody"]["content"]["application/json"]["schema"]
            self._check(body, sent)

    def _check(self, value: Any, schema: dict[str, Any]) -> None:
        """Raise if a value is not as described, by parts that the description has."""
        parts = {"components": self._described["components"]}
        Draft202012Validator({**schema, **parts}).validate(value)

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for template, methods in self._described["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path.partition("?")[0]):
                found: dict[str, Any] | None = methods.get(method.lower())
                return found
        return None

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to what must succeed."""
        status, found = await self.ask(method, path, body)
        assert status == 200, (status, found)
        return found


@asynccontextmanager
async def open_control(
    broker: TestBroker, *, loopback_only: bool = True, advance: Any = None
) -> AsyncIterator[Control]:
    """The control endpoint of a broker, and a client of it."""
    async with trio.open_nursery() as nursery:
        listeners, port = await open_tcp_listeners("127.0.0.1", 0)
        endpoint = Endpoint(broker, advance)
        server = HttpServer(endpoint.answer, loopback_only=loopback_only, name="control endpoint")
        await nursery.start(server.serve, listeners)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            yield Control(stream, port, endpoint.describe())
        nursery.cancel_scope.cancel()
