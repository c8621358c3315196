"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

    from rocketmq_sdk.model.received import ReceivedMessage

Value = str | int | float | bool | None | list[str] | dict[str, str]
Row = dict[str, Value]
"""Names of columns and their values; JSON has the same names."""

_Item = TypeVar("_Item")
BODY_FORMATS: Final = ("auto", "text", "json", "hex", "base64", "none")


class Output:
    """Prints the results of one command.

    With `as_json` each row is one line of JSON, so that long lists can be read while
    they come. Otherwise rows are a table: rich's on a terminal if it is installed, else
    columns with two blanks between them.
    """

    def __init__(self, *, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = sys.stdout if stream is None else stream

    def rows(self, rows: Iterable[Row], *, none: str = "nothing found") -> None:
        """Print rows that have the same columns; `none` is said when there is none."""
        found = list(rows)
        if self.as_json:
            for row in found:
                self.line(json.dumps(row, ensure_ascii=False))
        elif not found:
            print(none, file=sys.stderr)
        elif self._stream.isatty() and self._rich(found):
            return
        else:
            for line in _columns(found):
                self.line(line)

    def row(self, row: Row) -> None:
        """Print one thing: a name and a value on each line."""
        if self.as_json:
            self.line(json.dumps(row, ensure_ascii=False))
            return
        width = max(map(len, row), default=0)
        for name, value in row.items():
            self.line(f"{name.ljust(width)}  {_text(value)}".rstrip())

    def done(self, text: str, **facts: Value) -> None:
        """Say that a change was made."""
        self.line(json.dumps({"done": text, **facts}, ensure_ascii=False) if self.as_json else text)

    def line(self, text: str) -> None:
        """Print one line at once, so that who reads along sees it."""
        print(text, file=self._stream, flush=True)

    def _rich(self, rows: Sequence[Row]) -> bool:
        try:
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ModuleNotFoundError:
            return False
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in rows[0]:
            numbers = all(isinstance(row[name], int | float) for row in rows)
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_text(value)) for value in row.values()))
        Console(file=self._stream).print(table)
        return True


def _columns(rows: Sequence[Row]) -> Iterable[str]:
    names = list(rows[0])
    cells = [names, *([_text(row[name]) for name in names] for row in rows)]
    numbers = [all(isinstance(row[name], int | float) for row in rows) for name in names]
    widths = [max(len(line[place]) for line in cells) for place in range(len(names))]
    for line in cells:
        yield "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, numbers, strict=True)
        ).rstrip()


def _text(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(_printable, value))
    if isinstance(value, dict):
        return " ".join(f"{_printable(name)}={_printable(each)}" for name, each in value.items())
    return _printable(value) if isinstance(value, str) else str(value)


def _printable(text: str) -> str:
    """Texts of users without what would change the terminal: escapes, line ends."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def moment(milliseconds: int) -> str | None:
    """A time as ISO 8601 in UTC; None for none."""
    if milliseconds <= 0:
        return None
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def body_text(body: bytes, form: str) -> Value:
    """A body in one of the `BODY_FORMATS`.

    `auto` is the text when the bytes are UTF-8, else hex. `json` is the text written
    again on one line when it is JSON, else as `auto`.
    """
    if form == "none":
        return None
    if form == "base64":
        return base64.b64encode(body).decode()
    if form == "hex":
        return body.hex()
    if form == "text":
        return body.decode("utf-8", "replace")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return body.hex()
    if form == "json":
        try:
            return json.dumps(json.loads(text), ensure_ascii=False)
        except ValueError:
            return text
    return text


def closing(items: AsyncIterator[_Item]) -> AbstractAsyncContextManager[AsyncIterator[_Item]]:
    """A block at whose end an async generator is closed, however far it was read."""
    return aclosing(cast("AsyncGenerator[_Item, None]", items))


def message_row(message: ReceivedMessage, body: str = "auto") -> Row:
    """One message: where it is, who made it, what is in it."""
    row: Row = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.offset,
        "id": message.message_id,
        "offsetId": message.offset_message_id,
        "born": moment(message.born_timestamp),
        "stored": moment(message.store_timestamp),
        "tags": message.tags,
        "keys": list(message.keys),
        "reconsumeTimes": message.reconsume_times,
        "properties": message.properties,
        "size": len(message.body),
    }
    if body != "none":
        row["body"] = body_text(message.body, body)
    return row
