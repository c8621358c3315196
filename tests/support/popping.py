"""Popping from an embedded broker in tests: the SDK's own typed calls over one
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_sdk.client.api import pop
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.headers.pop import NotificationRequestHeader, PopMessageRequestHeader

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.pop import PopResult
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle
    from support.broker import Peer


class Popper:
    """A consumer that pops one topic for one group."""

    client_id = "popper"

    def __init__(self, peer: Peer, topic: str, group: str = "PopGroup", **fields: Any) -> None:
        self.peer = peer
        self.topic = topic
        self.group = group
        self.fields = fields

    async def call_broker(
        self,
        _broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
        any_replica: bool = False,
    ) -> Command:
        """What the typed calls need of a client."""
        assert broker_id == 0
        return await self.peer.ask(command, timeout or 60.0)

    def header(self, **fields: Any) -> PopMessageRequestHeader:
        """A pop of everything there is, invisible for 10 s, from the beginning, not
        held.
        """
        values: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": 10_000,
            **self.fields,
            **fields,
        }
        return PopMessageRequestHeader(**values)

    async def pop(self, **fields: Any) -> PopResult:
        """One pop."""
        return await pop.pop_message(self, "broker-a", self.header(**fields), 60.0)  # type: ignore[arg-type]

    async def bodies(self, **fields: Any) -> list[bytes]:
        """The bodies that one pop brings, sorted."""
        return sorted(message.body for message in (await self.pop(**fields)).messages)

    async def ack(self, handle: ReceiptHandle) -> None:
        """One message is done."""
        await pop.ack_message(self, self.topic, self.group, handle)  # type: ignore[arg-type]

    async def ack_all(self, handles: list[ReceiptHandle]) -> None:
        """Many messages are done."""
        await pop.batch_ack_messages(
            self,  # type: ignore[arg-type]
            "broker-a",
            [(self.topic, self.group, handle) for handle in handles],
        )

    async def change(self, handle: ReceiptHandle, invisible_ms: int) -> ReceiptHandle:
        """Another invisible time."""
        return await pop.change_invisible_time(self, self.topic, self.group, handle, invisible_ms)  # type: ignore[arg-type]

    async def has_messages(self, *, hold: float = 0, **fields: Any) -> bool:
        """Whether there is something to pop."""
        header = NotificationRequestHeader(
            consumer_group=self.group,
            topic=self.topic,
            poll_time=int(hold * 1000),
            **{"queue_id": -1, **fields},
        )
        return (await pop.notification(self, "broker-a", header, 60.0)).has_msg  # type: ignore[arg-type]

    async def waiting(self, queue_id: int = -1) -> int:
        """How many pops wait."""
        return await pop.polling_info(self, "broker-a", self.topic, self.group, queue_id)  # type: ignore[arg-type]


async def make_topic(peer: Peer, topic: str, queues: int = 4, **fields: Any) -> None:
    """A topic with a number of queues."""
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        **fields,
    }
    answer = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **ext)
    assert answer.code == 0, answer
