"""What `tools.doors` cannot read from the classes for trio: which classes have faces,
and where a door does something of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from textwrap import dedent, fill
from typing import Final

import attrs

from tools.door_words import AIO_REPLACED, SYNC_IN_PROGRAMS, SYNC_REPLACED


@attrs.frozen
class Method:
    """One method or property of a class for trio."""

    name: str
    module: str
    kind: str
    """`async`, `plain`, `property`, `block` (an async context manager), `stream` (an
    async generator).
    """
    arguments: ast.arguments
    returns: str
    docstring: str

    @classmethod
    def read(cls, node: ast.FunctionDef | ast.AsyncFunctionDef, module: str) -> Method:
        """A method from its source."""
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        if "property" in decorators:
            kind = "property"
        elif "asynccontextmanager" in decorators:
            kind = "block"
        elif isinstance(node, ast.FunctionDef):
            kind = "plain"
        else:
            kind = "stream" if any(isinstance(n, ast.Yield) for n in ast.walk(node)) else "async"
        returns = "None" if node.returns is None else ast.unparse(node.returns)
        return cls(node.name, module, kind, node.args, returns, ast.get_docstring(node) or "")

    def passed_on(self, converted: dict[str, str] | None = None) -> str:
        """The arguments as a call passes them on; `converted` says how some are."""
        converted = converted or {}

        def value(name: str) -> str:
            return converted.get(name, "{}").format(name)

        arguments = self.arguments
        given = [value(a.arg) for a in [*arguments.posonlyargs, *arguments.args][1:]]
        if arguments.vararg is not None:
            given.append(f"*{arguments.vararg.arg}")
        given += [f"{a.arg}={value(a.arg)}" for a in arguments.kwonlyargs]
        if arguments.kwarg is not None:
            given.append(f"**{arguments.kwarg.arg}")
        return ", ".join(given)

    @property
    def call(self) -> str:
        """The method of the object for trio, and what it is called with."""
        given = self.passed_on()
        return f"self._inner.{self.name}{', ' if given else ''}{given}"

    @property
    def item(self) -> str:
        """What a block or a stream gives: the `T` of `AsyncIterator[T]`."""
        return self.returns.partition("[")[2].removesuffix("]")


@attrs.frozen
class Face:
    """A class that has a face in each door, and the module of the face."""

    name: str
    module: str
    file: str
    base: str
    """What it is made from: `Entered`, `Face`, or another face."""
    entered: bool = False
    """Whether users make it; other faces are made by their owner."""
    attributes: Mapping[str, tuple[str, str]] = attrs.field(factory=dict)
    """What the constructor sets: name to type and docstring."""
    also: tuple[tuple[str, str], ...] = ()
    """Base classes (module, name) that have no face of their own."""
    mixed_in: tuple[str, ...] = ()
    """Faces that are bases besides."""
    left_out: frozenset[str] = frozenset()
    """Public names that belong to the machinery, not to users."""
    public: bool = False
    settable: frozenset[str] = frozenset()
    """Attributes that users set."""

    def bases(self, door: Door) -> list[str]:
        """The base classes of the face."""
        return [*self.mixed_in, door.bases.get(self.base, self.base)]


@attrs.frozen
class Door:
    """A package of faces."""

    package: str
    title: str
    text: str
    users: str
    own: dict[str, str]
    """Names that mean something of the door's own: name to module."""
    bases: dict[str, str]
    bodies: dict[str, str]
    returns: dict[str, str]
    conversions: dict[str, dict[str, str]]
    names: dict[str, str]
    templates: dict[str, str]
    heads: dict[str, str]
    replaced: tuple[tuple[str, str], ...]
    in_programs: tuple[tuple[str, str], ...]
    docs: dict[str, str]

    def home(self, name: str) -> str | None:
        """Where the door has a class or a type of that name."""
        if name in self.own:
            return self.own[name]
        for face in FACES:
            if face.name == name:
                return f"{self.package}.faces.{face.file}"
        return None

    def body(self, method: Method) -> str:
        """The body of a method."""
        if method.name == "messages":
            return "return self._adopt(MessageQueries(self._inner.messages))"
        return self.templates[method.kind].format(
            call=method.call, name=method.name, given=method.passed_on()
        )

    def head(self, method: Method) -> tuple[str, str]:
        """`def` or `async def`, and the type of the result."""
        head, _, returns = self.heads[method.kind].partition(" -> ")
        return head, returns.format(returns=method.returns, item=method.item)

    def name_of(self, method: Method) -> str:
        """The name of a method in this door."""
        return self.names.get(method.name, method.name)

    def converted(self, name: str) -> dict[str, str]:
        """How arguments of a constructor are passed to the object for trio."""
        common = {"namesrv": "inner_of({})", "client": "inner_client({})"}
        return common | self.conversions.get(name, {})

    def attached(self, face: Face) -> list[str]:
        """Statements of a constructor that make the faces of what belongs to it."""
        return list(ATTACHED.get(face.name, ()))

    def words(self, key: str, docstring: str) -> str:
        """A docstring in the door's words."""
        if key in self.docs:
            return dedent(self.docs[key]).strip()
        return "\n\n".join(map(self._paragraph, docstring.split("\n\n")))

    def _paragraph(self, text: str) -> str:
        """A paragraph in the words of the door, in even lines if that changes it."""
        if "```" in text or text.startswith("    "):
            for old, new in self.in_programs:
                text = text.replace(old, new)
            return text
        joined = changed = " ".join(text.split())
        for old, new in self.replaced:
            changed = changed.replace(old, new)
        return text if changed == joined else fill(changed, 80, break_on_hyphens=False)


_CLIENT: Final = "self.client = self._client_of(client, Client, self._inner.client)"
ATTACHED: Final = {
    "Producer": (_CLIENT,),
    "TransactionProducer": (_CLIENT,),
    "Admin": (
        _CLIENT,
        "owner = self if client is None else self.client",
        "self.cluster = owner._adopt(Cluster(self._inner.cluster))",
        "self.topics = owner._adopt(Topics(self._inner.topics))",
        "self.groups = owner._adopt(Groups(self._inner.groups))",
        "self.messages = owner._adopt(Messages(self._inner.messages))",
        "self.dead_letters = owner._adopt(DeadLetters(self._inner.dead_letters))",
        "self.users = owner._adopt(Users(self._inner.users))",
        "self.acls = owner._adopt(Acls(self._inner.acls))",
    ),
}

GROUP: Final = {"group": ("str", "The group, as it was given.")}


def with_config(kind: str) -> dict[str, tuple[str, str]]:
    """The attributes of an object with a group and settings."""
    return GROUP | {"config": (kind, "The settings.")}


CLIENT_MACHINERY: Final = frozenset(
    {
        *("nursery", "remoting", "register_producer", "register_consumer", "heartbeat_data"),
        *("unregister_producer", "unregister_consumer", "call_name_server", "call_address"),
        *("call_broker", "oneway_broker", "clock", "ids", "namespace", "brokers", "routes"),
        *("troubles", "jobs"),
    }
)

FACES: Final = (
    Face("MessageQueries", "client.queries", "queries", "Face"),
    Face(
        "Client",
        "client.runtime",
        "client",
        "Entered",
        entered=True,
        attributes={
            "config": ("ClientConfig", "The settings."),
            "client_id": ("str", "The id under which brokers know the client."),
        },
        left_out=CLIENT_MACHINERY,
        public=True,
    ),
    Face(
        "Producer",
        "producer.producer",
        "producer",
        "Entered",
        entered=True,
        also=(("producer.engine", "SendEngine"),),
        attributes=with_config("ProducerConfig"),
        left_out=frozenset(
            ["on_reply", "begin", "client", "on_route_changed", "on_check_transaction"]
        ),
        public=True,
    ),
    Face(
        "TransactionProducer",
        "producer.transaction",
        "transaction_producer",
        "Producer",
        entered=True,
        left_out=frozenset(["on_check_transaction"]),
        public=True,
    ),
    Face(
        "PushConsumer",
        "consumer.push.consumer",
        "push_consumer",
        "Entered",
        entered=True,
        attributes=with_config("PushConfig"),
        public=True,
    ),
    Face("ReceivedMessages", "consumer.simple.consumer", "received_messages", "Face"),
    Face(
        "SimpleConsumer",
        "consumer.simple.consumer",
        "simple_consumer",
        "Entered",
        entered=True,
        attributes=with_config("SimpleConfig"),
        public=True,
    ),
    Face("QueueQueries", "consumer.lite_pull.queue_queries", "queue_queries", "Face"),
    Face(
        "LitePullConsumer",
        "consumer.lite_pull.consumer",
        "lite_pull_consumer",
        "Entered",
        entered=True,
        attributes=with_config("LitePullConfig"),
        mixed_in=("QueueQueries",),
        left_out=frozenset(["poll_limits", "poll_service"]),
        public=True,
    ),
    Face(
        "PullConsumer",
        "consumer.lite_pull.pull_consumer",
        "pull_consumer",
        "Entered",
        entered=True,
        attributes=GROUP,
        mixed_in=("QueueQueries",),
        public=True,
    ),
    Face("Cluster", "admin.cluster", "admin_cluster", "Face"),
    Face("Topics", "admin.topics", "admin_topics", "Face"),
    Face("Groups", "admin.groups", "admin_groups", "Face"),
    Face("Messages", "admin.messages", "admin_messages", "MessageQueries"),
    Face("DeadLetters", "admin.dead_letters", "admin_dead_letters", "Face"),
    Face("Users", "admin.access", "admin_users", "Face"),
    Face("Acls", "admin.access", "admin_acls", "Face"),
    Face("Admin", "admin.client", "admin", "Entered", entered=True, public=True),
    Face(
        "EmbeddedBroker",
        "broker_embedded.broker",
        "embedded_broker",
        "InProcessBroker",
        entered=True,
        attributes={
            "address": ("str | None", "`host:port` of the broker on TCP; None without `listen`."),
            "namesrv_address": (
                "str | None",
                "`host:port` of the name server on TCP; None without `namesrv_listen`.",
            ),
            "ha_address": (
                "str | None",
                "`host:port` for slaves; None without such a port (see `haListenPort`).",
            ),
            "metrics_address": (
                "str | None",
                "`host:port` of metrics and health over HTTP; None if they are not served.",
            ),
            "on_recovery": (
                "Callable[[int, int], None] | None",
                """Progress callback `(done, total)` in log bytes; called from a worker thread.

It reports while a long start reads the log. Set it before the block is entered.""",
            ),
        },
        settable=frozenset(["on_recovery"]),
        left_out=frozenset(["store", "handler", "requests", "knows", "open_channel"]),
        public=True,
    ),
)

AIO: Final = Door(
    package="rocketmq_sdk.aio",
    title="The door for asyncio: the same classes as in `rocketmq_sdk`, for an event loop.",
    text=(
        "`from rocketmq_sdk.aio import Producer` is awaited in asyncio as the class of the same\n"
        "name in `rocketmq_sdk` is in trio: one implementation, which runs as a guest in the\n"
        "loop that uses it. All other names are those of `rocketmq_sdk` itself."
    ),
    users="asyncio",
    own={
        "Face": "rocketmq_sdk.aio.life",
        "Entered": "rocketmq_sdk.aio.life",
        "InProcessBroker": "rocketmq_sdk.aio.life",
        "Managed": "rocketmq_sdk.aio.life",
        "inner_of": "rocketmq_sdk.doors.face",
        "inner_client": "rocketmq_sdk.aio.life",
        "Stream": "rocketmq_sdk.aio.life",
        "sent": "rocketmq_sdk.aio.handles",
        "handle_of": "rocketmq_sdk.aio.handles",
        "SendHandle": "rocketmq_sdk.aio.handles",
        "AccumulatedHandle": "rocketmq_sdk.aio.handles",
        "NamesrvSource": "rocketmq_sdk.aio.arguments",
        "PASS": "rocketmq_sdk.aio.run",
        "polled_by_task": "rocketmq_sdk.aio.polling",
        "poll": "rocketmq_sdk.aio.polling",
        "AbstractAsyncContextManager": "contextlib",
        "AsyncIterator": "collections.abc",
        "checked_checker": "rocketmq_sdk.producer.transaction",
        "TransactionResult": "rocketmq_sdk.producer.transaction",
        "TransactionState": "rocketmq_sdk.model.enums",
    },
    bases={},
    bodies={
        "Producer.send": """\
            run = self._run or self._running()
            run.check()
            handle = self._inner.begin(message, queue, selector, key, timeout)
            if handle is not None:
                return await sent(run, handle)
            return await run.call(
                self._inner.send, message, queue=queue, selector=selector, key=key, timeout=timeout
            )""",
        "Producer.submit": """\
            run = self._run or self._running()
            run.check()
            return handle_of(
                run,
                self._inner.submit(
                    message, queue=queue, selector=selector, key=key, timeout=timeout
                ),
            )""",
        "Producer.submit_batch": """\
            run = self._run or self._running()
            run.check()
            return handle_of(
                run,
                self._inner.submit_batch(
                    messages, queue=queue, selector=selector, key=key, timeout=timeout
                ),
            )""",
        "TransactionProducer.send_in_transaction": """\
            # The local work runs in the task of the caller.
            async with self.transaction(
                message, check_immunity=check_immunity, rollback_on=rollback_on, timeout=timeout
            ) as transaction:
                state = await local_work(transaction)
                if state is not None:
                    transaction.state = TransactionState(state)
            return TransactionResult(transaction.half, transaction.state, transaction.confirmed)""",
        "Messages.follow": """\
            return Managed(
                self._running(),
                lambda: self._inner.follow(topic, begin=begin, tags=tags, sql=sql),
                lambda messages: Stream(self, lambda: messages),
            )""",
        "SimpleConsumer.__aiter__": (
            "return self._adopt(ReceivedMessages(self._inner.__aiter__()))"
        ),
        "ReceivedMessages.__aiter__": "return self",
        "LitePullConsumer.__aiter__": "return self",
        "LitePullConsumer.poll": "return await poll(self, self._inner, timeout, max_messages)",
        "LitePullConsumer.__anext__": "return await polled_by_task(self, self._inner)",
    },
    returns={
        "Messages.follow": "AbstractAsyncContextManager[AsyncIterator[ReceivedMessage]]",
    },
    conversions={
        "PushConsumer": {"listener": "self._listener_in_loop({})"},
        "LitePullConsumer": {"on_assignment_change": "self._change_listener_in_loop({})"},
        "TransactionProducer": {"checker": "self._in_loop(checked_checker({}))"},
    },
    names={},
    templates={
        "async": "return await self._call({call})",
        "plain": "return self._call_now({call})",
        "property": "return self._inner.{name}",
        "block": "return Managed(self._running(), lambda: self._inner.{name}({given}))",
        "stream": "return Stream(self, lambda: self._inner.{name}({given}))",
    },
    heads={
        "async": "async def -> {returns}",
        "plain": "def -> {returns}",
        "property": "def -> {returns}",
        "block": "def -> AbstractAsyncContextManager[{item}]",
        "stream": "def -> AsyncIterator[{item}]",
    },
    replaced=AIO_REPLACED,
    in_programs=(),
    docs={},
)

SYNC: Final = Door(
    package="rocketmq_sdk.sync",
    title="The door for threads: the same classes as in `rocketmq_sdk`, without async.",
    text=(
        "`from rocketmq_sdk.sync import Producer` is used with `with` and called from any thread:\n"
        "one implementation, which runs in a thread of its own as long as something is open. All\n"
        "other names are those of `rocketmq_sdk` itself."
    ),
    users="threads",
    own={
        **dict.fromkeys(
            ("Face", "Entered", "Managed", "Stream", "InProcessBroker", "inner_client", "next_of"),
            "rocketmq_sdk.sync.life",
        ),
        "inner_of": "rocketmq_sdk.doors.face",
        **dict.fromkeys(
            ("send", "submit", "submit_batch", "SendHandle", "AccumulatedHandle"),
            "rocketmq_sdk.sync.futures",
        ),
        **dict.fromkeys(
            (
                *("NamesrvSource", "Listener", "MessageListener", "BatchListener"),
                *("Checker", "LocalWork", "ChangeListener"),
            ),
            "rocketmq_sdk.sync.arguments",
        ),
        "poll": "rocketmq_sdk.sync.polling",
        "polled_by_thread": "rocketmq_sdk.sync.polling",
        "AbstractContextManager": "contextlib",
        "Iterator": "collections.abc",
        "TransactionResult": "rocketmq_sdk.producer.transaction",
        "TransactionState": "rocketmq_sdk.model.enums",
    },
    bases={},
    bodies={
        "Producer.send": """\
            run = self._run or self._running()
            return send(run, self._inner, message, (queue, selector, key, timeout))""",
        "Producer.submit": """\
            run = self._run or self._running()
            return submit(run, self._inner, message, (queue, selector, key, timeout))""",
        "Producer.submit_batch": """\
            run = self._run or self._running()
            return submit_batch(run, self._inner, messages, (queue, selector, key, timeout))""",
        "TransactionProducer.send_in_transaction": """\
            # The local work runs in the thread of the caller.
            with self.transaction(
                message, check_immunity=check_immunity, rollback_on=rollback_on, timeout=timeout
            ) as transaction:
                state = local_work(transaction)
                if state is not None:
                    transaction.state = TransactionState(state)
            return TransactionResult(transaction.half, transaction.state, transaction.confirmed)""",
        "Messages.follow": """\
            return Managed(
                self._running(),
                lambda: self._inner.follow(topic, begin=begin, tags=tags, sql=sql),
                lambda messages: Stream(self, lambda: messages),
            )""",
        "SimpleConsumer.__aiter__": (
            "return self._adopt(ReceivedMessages(self._inner.__aiter__()))"
        ),
        "ReceivedMessages.__aiter__": "return self",
        "ReceivedMessages.__anext__": "return next_of(self, self._inner)",
        "LitePullConsumer.__aiter__": "return self",
        "LitePullConsumer.poll": "return poll(self, self._inner, timeout, max_messages)",
        "LitePullConsumer.__anext__": "return polled_by_thread(self, self._inner)",
    },
    returns={
        "Messages.follow": "AbstractContextManager[Iterator[ReceivedMessage]]",
        "Producer.submit": "SendHandle",
    },
    conversions={
        "PushConsumer": {"listener": "self._listener_in_thread({})"},
        "LitePullConsumer": {"on_assignment_change": "self._change_listener_in_thread({})"},
        "TransactionProducer": {"checker": "self._in_thread({}, 'checker')"},
    },
    names={"__aiter__": "__iter__", "__anext__": "__next__"},
    templates={
        "async": "return self._call({call})",
        "plain": "return self._call_now({call})",
        "property": "return self._inner.{name}",
        "block": "return Managed(self._running(), lambda: self._inner.{name}({given}))",
        "stream": "return Stream(self, lambda: self._inner.{name}({given}))",
    },
    heads={
        "async": "def -> {returns}",
        "plain": "def -> {returns}",
        "property": "def -> {returns}",
        "block": "def -> AbstractContextManager[{item}]",
        "stream": "def -> Iterator[{item}]",
    },
    replaced=SYNC_REPLACED,
    in_programs=SYNC_IN_PROGRAMS,
    docs={},
)

DOORS: Final = (AIO, SYNC)
