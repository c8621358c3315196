"""How long requests take, by code and answer (`RemotingMetricsManager` of Apache).

Stands in front of all handlers of a server. Requests that arrive together are served in
one turn, and their answers leave when it ends; so the clock is read twice in a turn,
and what was served in it is counted at its end. An answer that comes later is counted
when it is given to the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.request import Wait
from rocketmq_sdk.broker_embedded.tables.figures import RPC_BOUNDS, Distributions
from rocketmq_sdk.codes import RequestCode, ResponseCode, request_name, response_name
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.names import is_system_topic
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.tables.figures import Figures
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.channel import (
        Channel,
        Continuation,
        Handler,
        Reply,
        Together,
        Turn,
    )

SUCCESS: Final = "success"
ONEWAY: Final = "oneway"
Key = tuple[int, int, bool, str]
"""Request code, response code, whether it waited for messages, and the result."""
_WAITS_FOR_MESSAGES: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
    }
)
_CREATE_TOPICS: Final = frozenset(
    {RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST}
)
_CREATE_GROUPS: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
)
_CREATES: Final = _CREATE_TOPICS | _CREATE_GROUPS
PROCESSORS: Final = (
    "send",
    "async_put",
    "pull",
    "ack",
    "query_message",
    "client_manager",
    "heartbeat",
    "lite_pull",
    "transaction",
    "consumer_manager",
    "admin",
    "reply",
)
"""The thread pools of Apache's broker."""
_BY_CODE: Final = {
    RequestCode.QUERY_MESSAGE: "query_message",
    RequestCode.VIEW_MESSAGE_BY_ID: "query_message",
    RequestCode.HEART_BEAT: "heartbeat",
    RequestCode.UNREGISTER_CLIENT: "client_manager",
    RequestCode.CHECK_CLIENT_CONFIG: "client_manager",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "consumer_manager",
    RequestCode.UPDATE_CONSUMER_OFFSET: "consumer_manager",
    RequestCode.QUERY_CONSUMER_OFFSET: "consumer_manager",
    RequestCode.SEND_REPLY_MESSAGE: "reply",
    RequestCode.SEND_REPLY_MESSAGE_V2: "reply",
}
_BY_WAIT: Final = {
    Wait.SEND: "send",
    Wait.PULL: "pull",
    Wait.LITE_PULL: "lite_pull",
    Wait.HEARTBEAT: "heartbeat",
    Wait.TRANSACTION: "transaction",
    Wait.ACK: "ack",
}


class RequestTimes:
    """Counts what the servers of a broker serve. A `Turn` around another one."""

    def __init__(self, figures: Figures, clock: Clock, inner: Turn) -> None:
        self._figures = figures
        self._clock = clock
        self._inner = inner
        self._in_turn = False
        self._began = 0.0
        self._turn: dict[Key, int] = {}
        self._open: dict[int, dict[int, tuple[Command, float, bool]]] = {}
        self._answered: Command | None = None
        self._processors: dict[int, str] = {}
        self.times: Distributions[Key] = Distributions(RPC_BOUNDS, figures.most)
        """Milliseconds."""
        self.working: dict[str, int] = dict.fromkeys(PROCESSORS, 0)
        """Requests that are worked on, by the pool that Apache's broker has for them.

        Those that wait for messages are not among them.
        """

    def know(self, rows: Iterable[Request]) -> None:
        """Take note of all requests."""
        self._processors = {
            int(row.code): _BY_CODE.get(row.code) or _BY_WAIT.get(row.wait, "admin") for row in rows
        }

    def begin(self) -> None:
        """Requests are about to be served."""
        self._began = self._clock.monotonic()
        self._in_turn = True
        self._inner.begin()

    def end(self) -> None:
        """They are served. Raises what the inner turn raises."""
        self._in_turn = False
        turn = self._turn
        try:
            self._inner.end()
        except RocketMQError:
            failed: dict[Key, int] = {}
            for (code, _answer, waited, result), number in turn.items():
                key = code, int(ResponseCode.SYSTEM_ERROR), waited, result
                failed[key] = failed.get(key, 0) + number
            turn = failed
            raise
        finally:
            if turn:
                milliseconds = (self._clock.monotonic() - self._began) * 1000
                times = self.times
                for key, number in turn.items():
                    times.of(key).add(milliseconds, number)
                self._turn = {}

    def in_front_of(self, handler: Handler) -> Handler:
        """A handler that counts what another one serves."""
        return _Front(self, handler)

    def opened(self, channel: Channel) -> None:
        """A connection was opened."""
        channel.answered_late = self._late

    def closed(self, channel: Channel) -> None:
        """A connection has ended; what it waited for is answered nowhere."""
        for request, _began, waits in self._open.pop(channel.channel_id, {}).values():
            if not waits:
                self._work(request.code, -1)

    def served(self, channel: Channel, command: Command, handler: Handler) -> object:
        """Serve a request that came alone."""
        began = self._began if self._in_turn else self._clock.monotonic()
        answer = handler(channel, command)
        oneway = command.flag & FLAG_ONEWAY
        if isinstance(answer, Command):
            self._count(command, answer.code, began, ONEWAY if oneway else SUCCESS)
            if command.code in _CREATES:
                self._created(command, answer, began)
        elif oneway:
            if answer is None:
                self._count(command, 0, began, ONEWAY)
        elif self._answered is not command:
            self._keep(channel, command, began, waits=answer is None)
        self._answered = None
        return answer

    def _count(self, command: Command, answer: int, began: float, result: str) -> None:
        """Count a request that its handler has answered."""
        key = command.code, answer, False, result
        if self._in_turn:
            turn = self._turn
            turn[key] = turn[key] + 1 if key in turn else 1
        else:
            self.times.of(key).add((self._clock.monotonic() - began) * 1000)

    def _keep(self, channel: Channel, command: Command, began: float, *, waits: bool) -> None:
        waits = waits and command.code in _WAITS_FOR_MESSAGES
        requests = self._open.get(channel.channel_id)
        if requests is None:
            requests = self._open[channel.channel_id] = {}
        requests[id(command)] = command, began, waits
        if not waits:
            self._work(command.code, 1)

    def _work(self, code: int, more: int) -> None:
        self.working[self._processors.get(code, "admin")] += more

    def _late(self, channel: Channel, request: Command, response: Command) -> None:
        """An answer is given to a connection that was not returned by the handler."""
        known = self._open.get(channel.channel_id, {}).pop(id(request), None)
        if known is None:
            self._answered = request
            began, waits = self._began, False
        else:
            _request, began, waits = known
            if not waits:
                self._work(request.code, -1)
        key = request.code, response.code, waits, SUCCESS
        self.times.of(key).add((self._clock.monotonic() - began) * 1000)
        if request.code in _CREATES:
            self._created(request, response, began)

    def _created(self, request: Command, response: Command, began: float) -> None:
        """A request to create topics or groups is over."""
        status = "failure" if response.code else "success"
        milliseconds = (self._clock.monotonic() - began) * 1000
        if request.code in _CREATE_GROUPS:
            self._figures.created_groups.of((status,)).add(milliseconds)
        else:
            system = is_system_topic(request.ext_fields.get("topic") or "")
            key = status, "true" if system else "false"
            self._figures.created_topics.of(key).add(milliseconds)

    def together(
        self,
        channel: Channel,
        commands: Sequence[Command],
        answers: Sequence[Reply],
    ) -> None:
        """The first of some requests of a code were served together."""
        turn, code = self._turn, commands[0].code
        # Nearly always there are frames, which say success; the loop below costs as
        # much as all the rest.
        if all(answers) and Command not in {*map(type, answers)}:
            key = code, 0, False, SUCCESS
            turn[key] = turn.get(key, 0) + len(answers)
            return
        for command, answer in zip(commands, answers, strict=False):
            oneway = command.flag & FLAG_ONEWAY
            if answer is None and not oneway:
                self._keep(channel, command, self._began, waits=False)
                continue
            told = answer.code if isinstance(answer, Command) else 0
            key = code, told, False, ONEWAY if oneway else SUCCESS
            turn[key] = turn.get(key, 0) + 1


class _Front:
    """A `Handler` in front of another one."""

    __slots__ = ("_handler", "_several", "_times")

    def __init__(self, times: RequestTimes, handler: Handler) -> None:
        self._times = times
        self._handler = handler
        self._several: dict[Together, Together] = {}

    def __call__(self, channel: Channel, command: Command) -> Command | Continuation | None:
        return self._times.served(channel, command, self._handler)  # type: ignore[return-value]

    def together(self, code: int) -> Together | None:
        """What serves several requests of a code at once; None for one by one."""
        find = getattr(self._handler, "together", None)
        inner: Together | None = None if find is None else find(code)
        if inner is None:
            return None
        found = self._several.get(inner)
        if found is None:
            found = self._several[inner] = self._counted(inner)
        return found

    def _counted(self, inner: Together) -> Together:
        times = self._times

        def serve(channel: Channel, commands: Sequence[Command]) -> Sequence[Reply]:
            frames = inner(channel, commands)
            if frames:
                times.together(channel, commands, frames)
            return frames

        return serve


def labels_of(key: Key) -> tuple[str, str, str, str]:
    """Request code, response code, long polling and result as Apache writes them."""
    code, answer, waited, result = key
    return (
        request_name(code).lower(),
        response_name(answer).lower(),
        "true" if waited else "false",
        result,
    )
