"""Web applications: the lifespan of ASGI opens and closes what an application needs.

The FastAPI programs of `docs/asyncio.md` run here where FastAPI is installed.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Message
from rocketmq_sdk.aio import EmbeddedBroker, Producer
from support.asyncio_run import run
from support.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

pytestmark = pytest.mark.real_time
PROGRAMS = [
    block
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "asyncio.md").read_text("utf-8"), re.S)
    if "FastAPI(" in block
]


class Server:
    """As much of an ASGI server as a lifespan and a request need."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._told: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()

    async def __aenter__(self) -> Server:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._life = asyncio.create_task(self._app(scope, self._to_app.get, self._told.put))
        await self._step("startup")
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._step("shutdown")
        await self._life

    async def _step(self, name: str) -> None:
        await self._to_app.put({"type": f"lifespan.{name}"})
        answer = await self._told.get()
        assert answer["type"] == f"lifespan.{name}.complete", answer

    async def post(self, path: str) -> dict[str, Any]:
        """The JSON that a request is answered with."""
        body = b""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal body
            assert message.get("status", 200) == 200
            body += message.get("body", b"")

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        await self._app(scope, receive, send)
        found: dict[str, Any] = json.loads(body)
        return found


def bare_app() -> Callable[..., Awaitable[None]]:
    """An ASGI application without a framework."""
    stack = AsyncExitStack()
    opened: dict[str, Producer] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                step = (await receive())["type"]
                if step == "lifespan.startup":
                    broker = await stack.enter_async_context(EmbeddedBroker())
                    opened["producer"] = await stack.enter_async_context(
                        Producer("shop", namesrv=broker)
                    )
                else:
                    await stack.aclose()
                await send({"type": f"{step}.complete"})
                if step == "lifespan.shutdown":
                    return
        result = await opened["producer"].send(Message("orders", b"1"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = json.dumps({"message_id": result.message_id}).encode()
        await send({"type": "http.response.body", "body": body})

    return app


async def _serve(app: object) -> None:
    async with Server(app) as server:
        answers = await asyncio.gather(*(server.post(f"/orders/{n}") for n in range(20)))
        assert len({answer["message_id"] for answer in answers}) == 20
    assert not trio.lowlevel.in_trio_run()


def test_a_bare_lifespan() -> None:
    run(_serve, bare_app())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_for_fastapi(program: str) -> None:
    pytest.importorskip("fastapi")
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, "docs/asyncio.md", "exec"), names)
    run(_serve, names["app"])
