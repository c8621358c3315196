"""The order service over HTTP, with FastAPI.

    NAMESRV_ADDR=127.0.0.1:9876 BANK_URL=http://127.0.0.1:8001 \\
        uvicorn --factory app:from_environment
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from service import Bank, OrderService

import rocketmq_sdk.aio


class Order(BaseModel):
    """What a customer orders."""

    cents: int


class HttpBank:
    """A bank with an API: `POST /charges`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def charge(self, number: str, cents: int) -> None:
        """Charge for one order. Raises `httpx.HTTPError` when that does not work."""
        charge = {"number": number, "cents": cents}
        (await self._client.post("/charges", json=charge)).raise_for_status()


@asynccontextmanager
async def http_bank(url: str) -> AsyncIterator[HttpBank]:
    """A bank for as long as the application runs."""
    async with httpx.AsyncClient(base_url=url) as client:
        yield HttpBank(client)


def create_app(
    database: str,
    namesrv: Any,
    bank: Callable[[], AbstractAsyncContextManager[Bank]],
    door: Any = rocketmq_sdk.aio,
) -> FastAPI:
    """The application; producer and consumers are open during its lifespan."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with bank() as opened, OrderService(database, namesrv, opened, door) as service:
            app.state.service = service
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{number}", status_code=201)
    async def place(number: str, order: Order, request: Request) -> dict[str, str]:
        try:
            await request.app.state.service.place(number, order.cents)
        except ValueError as error:
            raise HTTPException(409, str(error)) from error
        return {"number": number}

    @app.get("/orders/{number}")
    async def state(number: str, request: Request) -> dict[str, str]:
        found = request.app.state.service.state(number)
        if found is None:
            raise HTTPException(404, f"there is no order {number}")
        return {"number": number, "state": found}

    return app


def from_environment() -> FastAPI:
    """The application as variables of the environment say."""
    return create_app(
        os.environ.get("ORDERS_DATABASE", "orders.sqlite"),
        os.environ["NAMESRV_ADDR"],
        lambda: http_bank(os.environ["BANK_URL"]),
    )
