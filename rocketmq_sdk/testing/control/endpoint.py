"""The control endpoint: from requests over HTTP to operations; their description."""

from __future__ import annotations

import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.http_server import HttpError, HttpRequest
from rocketmq_sdk.model.route import is_loopback, split_address
from rocketmq_sdk.testing.control.operations import Operations, Row
from rocketmq_sdk.testing.control.schemas import PARTS, Schema, one_of_parts
from rocketmq_sdk.testing.failures import ExpectationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.testing.broker import TestBroker
    from rocketmq_sdk.testing.control.arguments import Field

DESCRIPTION: Final = "/openapi.json"
_ERRORS: Final = {
    400: "an argument is not acceptable",
    403: "it came from a web page, or by a name that is not this machine's",
    408: "the request did not come whole in time",
    409: "something expected did not happen, or cannot be done now",
    413: "the body is too large",
    415: "the body is no application/json",
    500: "a defect of the broker, which its log describes",
}
_NAMES: Final[dict[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}

_SAID: Final[dict[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


class Endpoint:
    """Answers the requests of the control endpoint."""

    def __init__(self, broker: TestBroker, advance: Callable[[float], None] | None = None) -> None:
        """`advance` moves the broker's clock; None where it cannot be moved."""
        self.rows = Operations(broker, advance).rows()

    async def answer(self, request: HttpRequest) -> object:
        """Do what a request asks for. Raises `HttpError`, and as the operation does."""
        if request.path == DESCRIPTION and request.method == "GET":
            return self.describe()
        allowed: list[str] = []
        for row in self.rows:
            in_path = _matched(row.path, request.path)
            if in_path is None:
                continue
            if row.method == request.method:
                return await _served(row, _arguments(row, request, in_path))
            allowed.append(row.method)
        if allowed:
            raise HttpError(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{request.path} takes {', '.join(allowed)}",
                allow=", ".join(allowed),
            )
        raise HttpError(HTTPStatus.NOT_FOUND, f"there is no {request.path}; see {DESCRIPTION}")

    def describe(self) -> dict[str, object]:
        """The description of all operations, in the form of OpenAPI 3.1."""
        paths: dict[str, dict[str, object]] = {}
        for row in self.rows:
            paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "RocketMQ test broker",
                "version": "1",
                "description": "Controls a broker for tests: faults, waits, seeds, lives, clock. "
                "Errors have a member `error`; 409 says that something expected did not happen.",
            },
            "paths": paths,
            "components": {"schemas": PARTS},
        }


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


async def _served(row: Row, arguments: dict[str, Any]) -> object:
    """The result of an operation; what was expected in vain is an `HttpError`."""
    try:
        return await row.serve(arguments)
    except ExpectationError as error:
        raise HttpError(HTTPStatus.CONFLICT, str(error), kind=type(error).__name__) from error


def _matched(template: str, path: str) -> dict[str, str] | None:
    """The parts of a path that a template names; None if it is another path."""
    wanted, given = template.split("/"), path.split("/")
    if len(wanted) != len(given):
        return None
    found: dict[str, str] = {}
    for part, text in zip(wanted, given, strict=True):
        if part.startswith("{") and text:
            found[part[1:-1]] = unquote(text)
        elif part != text:
            return None
    return found


def _arguments(row: Row, request: HttpRequest, in_path: dict[str, str]) -> dict[str, Any]:
    """The arguments of an operation, checked. Raises `HttpError`."""
    body = request.json()
    if request.method == "GET":
        body = dict(parse_qsl(request.query))
    given = {**body, **in_path}
    known = {field.name: field for field in row.fields}
    for name, value in given.items():
        field = known.get(name)
        if field is None:
            there = ", ".join(known) or "none"
            raise _bad(f"{row.path} has no argument {name!r}; there are: {there}")
        if not _fits(field, value):
            raise _bad(f"{name} is {value!r}; give {_said(field)} ({field.text})")
        if field.least is not None and not value >= field.least:
            raise _bad(f"{name} is {value!r}; it is at least {field.least}")
    for field in row.fields:
        if field.required and field.name not in given:
            raise _bad(f"{field.name} is missing: {field.text}")
    return given


def _bad(text: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, text)


def _said(field: Field) -> str:
    kinds = _kinds_of(field)
    return " or ".join(_SAID[kind] for kind in kinds if not (kind is int and float in kinds))


def _kinds_of(field: Field) -> tuple[type, ...]:
    return field.kind if isinstance(field.kind, tuple) else (field.kind,)


def _fits(field: Field, value: object) -> bool:
    kinds = _kinds_of(field)
    if isinstance(value, bool):
        return bool in kinds
    if float in kinds and isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    return isinstance(value, kinds)


def _operation(row: Row) -> dict[str, object]:
    in_path = {part[1:-1] for part in row.path.split("/") if part.startswith("{")}
    elsewhere = [field for field in row.fields if field.name not in in_path]
    described: dict[str, object] = {
        "summary": row.text,
        "responses": {
            "200": _response("done", row.answer),
            **{str(code): _response(text, one_of_parts("Error")) for code, text in _ERRORS.items()},
        },
    }
    query = elsewhere if row.method == "GET" else []
    described["parameters"] = [
        {
            "name": field.name,
            "in": "path" if field.name in in_path else "query",
            "required": field.name in in_path,
            "description": field.text,
            "schema": _schema(field, in_text=True),
        }
        for field in row.fields
        if field.name in in_path or field in query
    ]
    if elsewhere and row.method != "GET":
        schema = {
            "type": "object",
            "additionalProperties": False,
            "required": [field.name for field in elsewhere if field.required],
            "properties": {
                field.name: {**_schema(field), "description": field.text} for field in elsewhere
            },
        }
        described["requestBody"] = {
            "required": any(field.required for field in elsewhere),
            "content": {"application/json": {"schema": schema}},
        }
    return described


def _response(text: str, schema: Schema) -> Schema:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _schema(field: Field, *, in_text: bool = False) -> Schema:
    """What an argument may be; in a path or a query everything is a text."""
    kinds = _kinds_of(field)
    names = ["string"] if in_text else list(dict.fromkeys(_NAMES[kind] for kind in kinds))
    found: Schema = {"type": names[0] if len(names) == 1 else names}
    if field.choices:
        found["enum"] = list(field.choices)
    if field.least is not None:
        found["minimum"] = field.least
    return found
