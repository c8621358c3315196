"""Every public call of every client, with arguments that it accepts.

A test that goes through the table also finds a method that is not in it.
"""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from rocketmq_sdk import (
    Admin,
    Client,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
MESSAGE = Message(TOPIC, b"42 bananas")
RECEIVED = ReceivedMessage(TOPIC, b"42 bananas")
POPPED = PoppedMessage(TOPIC, b"42 bananas")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
INTERNAL = {
    *("check_run", "on_check_transaction", "on_reply", "on_route_changed"),
    *("register_consumer", "register_producer", "unregister_consumer", "unregister_producer"),
    *("broker_address", "heartbeat_data", "knows", "begin", "poll_limits"),
}
"""What the package itself calls, and what only reads a table."""


@attrs.frozen
class Call:
    """One public method of a client, reached by a path of attributes."""

    path: str
    named: dict[str, Any] = attrs.field(factory=dict)
    rest: tuple[object, ...] = ()

    def of(self, client: object) -> Callable[..., Any]:
        """The bound method."""
        found = client
        for name in self.path.split("."):
            found = getattr(found, name)
        assert callable(found)
        return found


def call(path: str, *rest: object, **named: object) -> Call:
    """A row of the table."""
    return Call(path, named, rest)


async def _commits(_message: object) -> TransactionState:
    return TransactionState.COMMIT


async def _listener(_message: ReceivedMessage) -> None:
    """Every message is fine."""


def _any_queue(queues: list[MessageQueue], _message: Message, _key: object) -> MessageQueue:
    return queues[0]


_AIMS: list[dict[str, object]] = [{"queue": QUEUE}, {"selector": _any_queue, "key": 1}]
_SENDING = [
    *(
        call(name, message=MESSAGE, timeout=1.0, **aim)
        for name in ("send", "submit", "send_oneway", "request")
        for aim in _AIMS
    ),
    *(
        call(name, messages=[MESSAGE], timeout=1.0, **aim)
        for name in ("send_batch", "submit_batch")
        for aim in _AIMS
    ),
    call("send_encoded_batch", topic=TOPIC, body=b"x", queue=QUEUE),
    call("recall", handle="handle", timeout=1.0),
    call("flush"),
    call("health"),
    call("warm_up", TOPIC, timeout=1.0),
    call("publish_queues", topic=TOPIC),
    call("learn_topic_type", topic=TOPIC),
]
_TRANSACTIONS = [
    call("transaction", message=MESSAGE, check_immunity=1, rollback_on=ValueError, timeout=1.0),
    call(
        "send_in_transaction",
        message=MESSAGE,
        local_work=_commits,
        check_immunity=1,
        rollback_on=ValueError,
        timeout=1.0,
    ),
]
_MEMBER = [call("health"), call("statistics")]
_SUBSCRIBER = [
    *_MEMBER,
    call("group_lag"),
    call("subscribe", topic=TOPIC, expression="paid"),
    call("unsubscribe", topic=TOPIC),
]
_QUEUES = [
    call("message_queues", topic=TOPIC),
    *(
        call(name, queue=QUEUE)
        for name in ("begin_offset", "end_offset", "earliest_message_time", "committed")
    ),
    call("offset_for_timestamp", queue=QUEUE, moment=MOMENT),
]
_FOUND = [
    call("messages.by_offset_id", offset_id="0" * 32, topic=TOPIC, timeout=1.0),
    call("messages.by_unique_id", topic=TOPIC, unique_id="id", begin=1, end=MOMENT, timeout=1.0),
    call("messages.by_id", topic=TOPIC, message_id="id", timeout=1.0),
    call("messages.by_key", topic=TOPIC, key="k", limit=1, begin=1, end=MOMENT, timeout=1.0),
    call("messages.by_tag", topic=TOPIC, tag="t", limit=1, begin=1, end=MOMENT, timeout=1.0),
    call("messages.copies", topic=TOPIC, unique_id="id", stored_in=TOPIC, timeout=1.0),
    call("messages.queues", topic=TOPIC),
    call("messages.at", queue=QUEUE, offset=0, timeout=1.0),
    call("messages.from_offset", queue=QUEUE, offset=0, count=1, timeout=1.0),
    call("messages.in_time", topic=TOPIC, begin=1, end=MOMENT, timeout=1.0),
]
_ADDRESS = "127.0.0.1:9"
_SUBJECT: dict[str, object] = {"address": _ADDRESS, "timeout": 1.0}
_ACL: dict[str, object] = {
    "subject": "User:a",
    "resources": ["Topic:orders"],
    "actions": ["Pub"],
    "decision": "Allow",
    "source_ips": ["10.0.0.1"],
    "policy_type": "Custom",
}
_ACCESS = [
    *(call(f"users.{name}", username="a", **_SUBJECT) for name in ("delete", "get")),
    call("users.create", username="a", password="b", user_type="Normal", **_SUBJECT),
    call(
        "users.update",
        username="a",
        password="b",
        user_type="Normal",
        user_status="enable",
        **_SUBJECT,
    ),
    call("users.list", containing="a", **_SUBJECT),
    call("users.copy", source=_ADDRESS, target=_ADDRESS, usernames=["a"], timeout=1.0),
    *(call(f"acls.{name}", **_ACL, **_SUBJECT) for name in ("create", "update")),
    call("acls.delete", subject="User:a", resource="Topic:orders", policy_type="x", **_SUBJECT),
    call("acls.get", subject="User:a", **_SUBJECT),
    call("acls.list", subject="User:a", resource="Topic:orders", **_SUBJECT),
    call("acls.copy", source=_ADDRESS, target=_ADDRESS, subjects=["User:a"], timeout=1.0),
]
_ADMIN = [
    *_FOUND,
    *_ACCESS,
    call("messages.follow", topic=TOPIC, begin=1, tags="*", sql="a > 1"),
    call("dead_letters.of", group="billing", begin=1, end=MOMENT, timeout=1.0),
    call("dead_letters.purge", group="billing", timeout=1.0),
    call("dead_letters.resend", message=RECEIVED, group="billing", timeout=1.0),
    call("dead_letters.topics", timeout=1.0),
    call("cluster.brokers", cluster="c", timeout=1.0),
    call("cluster.masters", cluster="c", timeout=1.0),
    call("cluster.runtime_info", address=_ADDRESS, timeout=1.0),
    call("cluster.settings", address=_ADDRESS, timeout=1.0),
    call(
        "cluster.change_settings",
        address=_ADDRESS,
        settings={"a": "b"},
        unknown=True,
        timeout=1.0,
    ),
    call(
        "topics.create",
        topic=TOPIC,
        queues=1,
        read_queues=1,
        perm=6,
        order=False,
        attributes={"message.type": "NORMAL"},
        cluster="c",
        timeout=1.0,
    ),
    call("topics.delete", topic=TOPIC, cluster="c", timeout=1.0),
    call("topics.names", system=True, timeout=1.0),
    *(call(f"topics.{name}", topic=TOPIC, timeout=1.0) for name in ("exists", "route", "offsets")),
    call("groups.create", config="billing", cluster="c", timeout=1.0),
    call("groups.delete", group="billing", clean_offsets=True, cluster="c", timeout=1.0),
    call("groups.config", group="billing", timeout=1.0),
    call("groups.names", system=True, timeout=1.0),
    call("groups.progress", group="billing", topic=TOPIC, timeout=1.0),
    call("groups.members", group="billing", timeout=1.0),
    call("groups.reset_offsets", group="billing", topic=TOPIC, to=MOMENT, timeout=1.0),
    call("groups.reset_offsets", group="billing", topic=TOPIC, queue=QUEUE, offset=1),
    call("groups.clone_offsets", source="a", target="b", topic=TOPIC, offline=True, timeout=1.0),
    call("messages.stored_copies", topic=TOPIC, unique_id="id", timeout=1.0),
    call(
        "messages.trace",
        message_id="id",
        topic=TOPIC,
        trace_topic="T",
        begin=1,
        end=MOMENT,
        timeout=1.0,
    ),
    call("messages.traces", key="k", trace_topic="T", begin=1, end=MOMENT, timeout=1.0),
    call("messages.track", message=RECEIVED, timeout=1.0),
]
CALLS: dict[type, list[Call]] = {
    Producer: [*_SENDING, *_FOUND],
    TransactionProducer: [*_SENDING, *_TRANSACTIONS],
    PushConsumer: [
        *_SUBSCRIBER,
        call("suspend"),
        call("resume"),
        call("set_concurrency", concurrency=3),
    ],
    SimpleConsumer: [
        *_SUBSCRIBER,
        call("receive", max_messages=1, invisible_duration=30.0, await_duration=1.0),
        call("ack", message=POPPED),
        call("batch_ack", messages=[POPPED]),
        call("change_invisible_duration", message=POPPED, invisible_duration=30.0),
        call("processing", message=POPPED, invisible_duration=30.0),
    ],
    LitePullConsumer: [
        *_SUBSCRIBER,
        *_QUEUES,
        call("poll", timeout=1.0, max_messages=1),
        call("__anext__"),
        call("done", RECEIVED),
        call("assign", queues=[QUEUE]),
        call("assignment"),
        call("pause", QUEUE),
        call("resume", QUEUE),
        call("position", queue=QUEUE),
        call("seek", queue=QUEUE, offset=0),
        call("seek_to_begin", queue=QUEUE),
        call("seek_to_end", queue=QUEUE),
        call("seek_to_timestamp", queue=QUEUE, moment=MOMENT),
        call("commit", offsets={QUEUE: 0}),
    ],
    PullConsumer: [
        *_QUEUES,
        call("pull", queue=QUEUE, offset=0, max_messages=1, expression="*", wait=0.0, timeout=1.0),
        call("commit", queue=QUEUE, offset=0),
        call("send_back", messages=[RECEIVED], delay_level=1),
    ],
    Admin: _ADMIN,
    Client: [
        call("route", topic=TOPIC, refresh=True),
        call("call_name_server", command=Command(RequestCode.GET_KV_CONFIG), timeout=1.0),
        call("call_address", address=_ADDRESS, command=Command(1), timeout=1.0),
        call("call_addresses", requests=[(_ADDRESS, Command(1))], timeout=1.0),
        call("call_broker", broker_name="broker-a", command=Command(1), timeout=1.0),
        call("oneway_broker", broker_name="broker-a", command=Command(1), timeout=1.0),
        call("heartbeat_now"),
    ],
    EmbeddedBroker: [
        call("health"),
        call("open_channel", address=None, handler=None, nursery=None, through_codec=False),
    ],
}


def client_of(kind: type, broker: EmbeddedBroker) -> Any:
    """A client of a kind, not entered yet."""
    if kind is TransactionProducer:
        return TransactionProducer("billing", _commits, namesrv=broker)
    if kind is PushConsumer:
        return PushConsumer(
            "billing", namesrv=broker, subscriptions={TOPIC: "*"}, listener=_listener
        )
    if kind is LitePullConsumer:
        return LitePullConsumer("billing", namesrv=broker, subscriptions={TOPIC: "*"})
    if kind is SimpleConsumer:
        return SimpleConsumer("billing", namesrv=broker, subscriptions={TOPIC: "*"})
    if kind is Admin:
        return Admin(namesrv=broker)
    if kind is Client:
        return Client(broker)
    if kind is EmbeddedBroker:
        return EmbeddedBroker()
    return kind("billing", namesrv=broker)


def public_methods(kind: type) -> Iterator[str]:
    """The paths of the methods that users call."""
    yield from _methods(kind)
    if kind is Admin:
        admin = Admin(namesrv=_ADDRESS)
        for part, value in vars(admin).items():
            if not part.startswith("_") and part != "client":
                yield from (f"{part}.{name}" for name in _methods(type(value)))


def _methods(kind: type) -> Iterator[str]:
    for name, value in inspect.getmembers(kind, callable):
        if not name.startswith("_") and name not in INTERNAL and not isinstance(value, type):
            yield name
