"""The guard: a handler in front of the dispatcher, where access control is on.

Each request is authenticated by its own signature; nothing is remembered of that, so a
request that was seen once does not come back with another body. What a user may do to a
resource is decided once for each connection and remembered there until users or
policies change.

A request is served only if its row names what it needs (`Request.needs`) and the caller
has all of it. Everything else is refused: what fails in here, too.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from rocketmq_sdk.broker_embedded.needs import Need, ResourceType, Rule
from rocketmq_sdk.broker_embedded.request import WHOLE_FRAME, refuse
from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.signing import ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rocketmq_sdk.broker_embedded.access.audit import Audit
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler, Reply, Together
    from rocketmq_sdk.remoting.dispatch import Dispatcher

logger = logging.getLogger(__name__)

UNREADABLE: Final = "parse authorization context error."
FAILED: Final = "Authorization failed. Please verify your access rights and try again."
"""Remarks of Apache's."""
NOT_AUTHENTICATED: Final = "notAuthenticated"
DENIED: Final = "denied"
_SESSION: Final = "access"
_DECISIONS_MAX: Final = 1024
"""Decisions that are remembered for a connection."""
_AT_ONCE: Final = 32 * 1024
"""Bytes of a body that is looked into on the loop."""


class Requester(NamedTuple):
    """Who asks; `name` is None for somebody unknown whose request is let through."""

    name: str | None
    unlimited: bool
    """Whether it needs no permission."""


class Refused(Exception):  # noqa: N818 - a decision
    """A request without an acceptable signature; the text is the remark."""


class Accounts(Protocol):
    """Who may ask for what: the users of ACL 2.0, or the accounts of ACL 1.0."""

    refusal_code: int
    """The code of refusals, as in Apache's."""
    authorizes: bool
    """Whether permissions count, and not only signatures."""

    @property
    def generation(self) -> int:
        """Grows with each change of what is decided."""
        ...

    def identify(self, command: Command, source: str) -> Requester:
        """Who signed a request. Raises `Refused`."""
        ...

    def exempt(self, code: int) -> bool:
        """Whether a request needs no permission."""
        ...

    def refusal(self, caller: Requester, need: Need, source: str, code: int) -> str | None:
        """Why a caller has no permission, or None when there is one."""
        ...


_LetIn = tuple[str | None, bool]
"""Who has sent a request, and whether permissions were looked at."""


class _Session:
    """What is remembered of one connection."""

    __slots__ = ("decisions", "generation", "source")

    def __init__(self, channel: Channel) -> None:
        try:
            self.source = split_address(channel.remote_address)[0]
        except ConfigurationError:
            self.source = channel.remote_address
        self.generation = -1
        self.decisions: dict[tuple[object, ...], str | None] = {}


class Guard:
    """A `Handler` that asks `accounts` before the dispatcher serves."""

    __slots__ = (
        "_accounts",
        "_audit",
        "_body_limits",
        "_cluster",
        "_dispatcher",
        "_handler",
        "_rules",
    )

    def __init__(
        self,
        handler: Handler,
        dispatcher: Dispatcher,
        rows: Iterable[Request],
        accounts: Accounts,
        audit: Audit,
        cluster: str,
    ) -> None:
        """`handler` is what is guarded: the dispatcher, or something in front of it.

        `cluster` is the broker's own. Raises `TypeError` for a row that does not say
        what it needs.
        """
        self._handler = handler
        self._dispatcher = dispatcher
        self._accounts = accounts
        self._audit = audit
        self._cluster = cluster
        rows = tuple(rows)
        for row in rows:
            if not isinstance(row.needs, Rule):
                raise TypeError(f"{row.code.name} does not say what its callers need")
        self._rules: Mapping[int, Rule] = {int(row.code): row.needs for row in rows}
        self._body_limits = {int(row.code): row.body_limit for row in rows}

    @trio.lowlevel.enable_ki_protection
    def __call__(self, channel: Channel, command: Command) -> Command | Continuation | None:
        """Serve a request, or refuse it."""
        accounts, code = self._accounts, command.code
        session = self._session(channel)
        try:
            caller = accounts.identify(command, session.source)
        except Refused as refused:
            return self._refuse(channel, command, NOT_AUTHENTICATED, str(refused))
        counters = self._audit.counters
        counters["authenticated"] += 1
        if caller.unlimited or not accounts.authorizes or accounts.exempt(code):
            self._audit.passed(channel, caller.name, code)
            return self._handler(channel, command)
        rule = self._rules.get(code)
        if rule is None:
            if code in self._dispatcher.codes:
                return self._refuse(channel, command, DENIED, FAILED)
            return self._handler(channel, command)
        if caller.name is None:
            return self._refuse(channel, command, DENIED, FAILED)
        if rule.body:
            return self._by_body(channel, command, caller, session, rule)
        refusal = self._remembered(command, caller, session, rule)
        return self._decided(channel, command, caller, refusal)

    def together(self, code: int) -> Together | None:
        """What serves several requests of a code at once, as the handler behind does;
        None for one by one.
        """
        ask: Callable[[int], Together | None] | None = getattr(self._handler, "together", None)
        serve = None if ask is None else ask(code)
        return None if serve is None else functools.partial(self._serve_together, serve)

    def _serve_together(
        self, serve: Together, channel: Channel, requests: Sequence[Command]
    ) -> Sequence[Reply]:
        """Have the first of the requests served, up to one that is not let in."""
        session, code = self._session(channel), requests[0].code
        admitted: list[Command] = []
        callers: list[_LetIn] = []
        for request in requests:
            if request.code != code or request.is_response:
                break
            caller = self._lets_in(session, request)
            if caller is None:
                break
            admitted.append(request)
            callers.append(caller)
        if not admitted:
            return ()
        answers = serve(channel, admitted)
        counters, served = self._audit.counters, callers[: len(answers)]
        counters["authenticated"] += len(served)
        counters["allowed"] += sum([decided for _name, decided in served])
        if self._audit.tells_all:
            for name, _decided in served:
                self._audit.passed(channel, name, code)
        return answers

    def _lets_in(self, session: _Session, command: Command) -> _LetIn | None:
        """Whose request is to be served; None for one that is not: it is refused when
        it is served alone.
        """
        accounts, code = self._accounts, command.code
        try:
            caller = accounts.identify(command, session.source)
        except Refused:
            return None
        if caller.unlimited or not accounts.authorizes or accounts.exempt(code):
            return caller.name, False
        rule = self._rules.get(code)
        if (
            rule is None
            or rule.body
            or caller.name is None
            or self._remembered(command, caller, session, rule) is not None
        ):
            return None
        return caller.name, True

    @staticmethod
    def _session(channel: Channel) -> _Session:
        session = channel.attributes.get(_SESSION)
        if type(session) is not _Session:
            session = channel.attributes[_SESSION] = _Session(channel)
        return session

    def _remembered(
        self, command: Command, caller: Requester, session: _Session, rule: Rule
    ) -> str | None:
        """Why a caller has no permission, decided once for what the rule depends on."""
        generation = self._accounts.generation
        if session.generation != generation or len(session.decisions) >= _DECISIONS_MAX:
            session.generation, session.decisions = generation, {}
        fields, code = command.ext_fields, command.code
        key = (caller.name, code, *[fields.get(name) for name in rule.fields])
        decisions = session.decisions
        if key in decisions:
            return decisions[key]
        refusal = self._refusal(caller, rule.find(command), session.source, code)
        decisions[key] = refusal
        return refusal

    def _by_body(
        self, channel: Channel, command: Command, caller: Requester, session: _Session, rule: Rule
    ) -> Command | Continuation | None:
        size = len(command.body)
        if size > self._body_limits.get(command.code, WHOLE_FRAME):
            # The row's own limit refuses it before it is looked into.
            return self._handler(channel, command)
        if size > _AT_ONCE:
            return lambda: self._later(channel, command, caller, session, rule)
        return self._looked_into(channel, command, caller, session, rule)

    def _looked_into(
        self, channel: Channel, command: Command, caller: Requester, session: _Session, rule: Rule
    ) -> Command | Continuation | None:
        try:
            needs = tuple(rule.find(command))
        except RocketMQError:
            return self._refuse(channel, command, DENIED, UNREADABLE)
        return self._decided(
            channel, command, caller, self._refusal(caller, needs, session.source, command.code)
        )

    async def _later(
        self, channel: Channel, command: Command, caller: Requester, session: _Session, rule: Rule
    ) -> Command | None:
        try:
            needs = await trio.to_thread.run_sync(lambda: tuple(rule.find(command)))
        except RocketMQError:
            return self._refuse(channel, command, DENIED, UNREADABLE)
        refusal = self._refusal(caller, needs, session.source, command.code)
        answer = self._decided(channel, command, caller, refusal)
        return answer if answer is None or isinstance(answer, Command) else await answer()

    def _refusal(
        self, caller: Requester, needs: Iterable[Need], source: str, code: int
    ) -> str | None:
        """Why one of the needs is not met, or None."""
        for need in needs:
            if not need.name and need.kind is ResourceType.CLUSTER:
                need = need._replace(name=self._cluster)
            refusal = self._accounts.refusal(caller, need, source, code)
            if refusal is not None:
                return refusal
        return None

    def _decided(
        self, channel: Channel, command: Command, caller: Requester, refusal: str | None
    ) -> Command | Continuation | None:
        if refusal is not None:
            return self._refuse(channel, command, DENIED, refusal, caller.name)
        self._audit.counters["allowed"] += 1
        self._audit.passed(channel, caller.name, command.code)
        return self._handler(channel, command)

    def _refuse(
        self, channel: Channel, command: Command, stage: str, remark: str, user: str | None = None
    ) -> Command:
        named = command.ext_fields.get(ACCESS_KEY) if user is None else user
        self._audit.refused(channel, named, command.code, stage, remark)
        return refuse(self._accounts.refusal_code, remark)
