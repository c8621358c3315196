"""Name servers and brokers that do not answer, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_REASON: Final = 300
"""The most characters of a foreign text (of a broker or listener) in a reason."""
LOOK_AGAIN: Final = 30.0
"""Seconds after which a name server that did not answer is asked again.

While another one answers, nothing else would show that it is back.
"""


class Troubles:
    """The last failures of name servers and of heartbeats to brokers.

    A success takes them out. An address None is the name server of an in-process
    broker.
    """

    __slots__ = ("_brokers", "_name_servers", "_servers")

    def __init__(self, servers: Callable[[], tuple[str | None, ...]]) -> None:
        self._servers = servers
        self._name_servers: dict[str | None, tuple[float, str]] = {}
        self._brokers: dict[str, tuple[float, str]] = {}

    def name_server_failed(self, address: str | None, error: Exception) -> None:
        """A name server has not answered."""
        self._name_servers[address] = trio.current_time(), str(error)

    def name_server_answered(self, address: str | None) -> None:
        """A name server has answered."""
        if self._name_servers:
            self._name_servers.pop(address, None)

    def broker_failed(self, address: str, error: Exception) -> None:
        """A broker has not answered a heartbeat."""
        self._brokers[address] = trio.current_time(), str(error)

    def broker_answered(self, address: str) -> None:
        """A broker has answered."""
        if self._brokers:
            self._brokers.pop(address, None)

    def silent_name_servers(self) -> list[str | None]:
        """Those that failed so long ago that they should be asked again."""
        failures, now = self._name_servers, trio.current_time()
        return [
            address
            for address in (self._servers() if failures else ())
            if address in failures and now - failures[address][0] >= LOOK_AGAIN
        ]

    @property
    def no_name_server_answers(self) -> bool:
        """Whether each one has failed the last time."""
        return all(address in self._name_servers for address in self._servers())

    def of_name_servers(self) -> Iterator[str]:
        """A sentence for each name server that did not answer the last time."""
        for address in self._servers():
            if found := self._name_servers.get(address):
                yield f"the name server {address or 'of this process'} {_since(*found)}"

    def of_broker(self, address: str) -> str:
        """What is wrong with a broker by its last heartbeat; empty for nothing."""
        found = self._brokers.get(address)
        return "" if found is None else _since(*found)


def _since(moment: float, text: str) -> str:
    return f"did not answer {trio.current_time() - moment:.0f} s ago: {one_line(text)}"


def route_reason(topic: str, problem: str, *, known: bool, use: str = "readable") -> str:
    """What is wrong with the route of a topic, of which queues are known or not."""
    if not problem:
        return f"no name server knows a {use} queue of topic {topic}"
    return f"the route of topic {topic} cannot be asked for" + (
        f", the last one known is used: {one_line(problem)}" if known else f": {one_line(problem)}"
    )


def one_line(text: str) -> str:
    """A foreign text on one line of bounded length, without control characters."""
    line = " ".join(
        "".join(
            letter if letter.isprintable() else " " for letter in text[: 4 * LONGEST_REASON]
        ).split()
    )
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."
