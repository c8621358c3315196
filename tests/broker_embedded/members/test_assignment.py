"""Queues shared out by the broker: pulled and popped, for each share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.members.assignment import assign
from rocketmq_sdk.client.api import members as calls
from rocketmq_sdk.errors import GroupNotFoundError, NotPermittedError, TopicNotFoundError
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.members import MessageRequestMode
from support.broker import Peer, heartbeat, open_broker, subscription
from support.popping import make_topic

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command

PULL, POP = MessageRequestMode.PULL, MessageRequestMode.POP
QUEUES = [MessageQueue("T", broker, queue_id) for broker in ("a", "b") for queue_id in range(3)]
MEMBERS = ["c2", "c1", "c3"]


def shares(
    mode: MessageRequestMode, share: int = 0, strategy: str = "AVG", members: list[str] = MEMBERS
) -> dict[str, list[tuple[str, int]]]:
    found = {}
    for member in sorted(members):
        given = assign(
            QUEUES,
            members,
            member,
            mode=mode,
            strategy=strategy,
            model=MessageModel.CLUSTERING,
            share=share,
            balances=True,
        )
        assert given is not None
        assert {entry.mode for entry in given} <= {mode}
        found[member] = [
            (entry.message_queue.broker_name, entry.message_queue.queue_id)
            for entry in given
            if entry.message_queue
        ]
    return found


def test_pulled_queues_are_shared_by_the_named_strategy() -> None:
    assert shares(PULL) == {
        "c1": [("a", 0), ("a", 1)],
        "c2": [("a", 2), ("b", 0)],
        "c3": [("b", 1), ("b", 2)],
    }
    assert shares(PULL, strategy="AVG_BY_CIRCLE")["c1"] == [("a", 0), ("b", 0)]


def test_popped_queues_are_shared_with_the_next_members() -> None:
    everything = [("a", -1), ("b", -1)]
    assert (
        shares(POP, -1)
        == shares(POP, 0)
        == shares(POP, 2)
        == dict.fromkeys(["c1", "c2", "c3"], everything)
    )
    assert shares(POP, 1)["c1"] == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert shares(POP, 1)["c3"] == [("b", 1), ("b", 2), ("a", 0), ("a", 1)]
    crowd = [f"m{number}" for number in range(8)]
    assert list(shares(POP, 1, members=crowd).values()) == [
        [(queue.broker_name, queue.queue_id)] for queue in (QUEUES + QUEUES)[:8]
    ]


def test_who_is_not_known_keeps_what_it_has() -> None:
    options = {
        "mode": PULL,
        "strategy": "AVG",
        "model": MessageModel.CLUSTERING,
        "share": 0,
        "balances": True,
    }
    assert assign(QUEUES, MEMBERS, "stranger", **options) is None  # type: ignore[arg-type]
    assert assign(QUEUES, MEMBERS, "c1", **{**options, "strategy": "MINE"}) is None  # type: ignore[arg-type]
    assert assign([], MEMBERS, "c1", **options) == []  # type: ignore[arg-type]
    for changed in ({"model": MessageModel.BROADCASTING}, {"balances": False}):
        assert len(assign(QUEUES, MEMBERS, "c1", **{**options, **changed}) or ()) == 6  # type: ignore[arg-type]


class OneClient:
    """The typed calls over one connection."""

    client_id = "c@1"

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def call_address(
        self, _address: str, command: Command, timeout: float | None = None
    ) -> Command:
        return await self.peer.ask(command, timeout or 60.0)


async def test_a_mode_is_set_obeyed_and_kept(autojump_clock: MockClock, tmp_path: object) -> None:
    async with open_broker(tmp_path) as (_broker, peer):
        client = OneClient(peer)
        await make_topic(peer, "T", 3)
        assert await calls.query_assignment(client, "b", "T", "G") is None  # type: ignore[arg-type]
        assert (await peer.ask(heartbeat("c@1", "G", subscription("T")))).code == 0
        given = await calls.query_assignment(client, "b", "T", "G")  # type: ignore[arg-type]
        assert [(entry.mode, entry.message_queue) for entry in given or ()] == [
            (PULL, MessageQueue("T", "broker-a", number)) for number in range(3)
        ]
        await calls.set_message_request_mode(client, "b", "T", "G", POP, pop_share_queue_num=8)  # type: ignore[arg-type]
        with pytest.raises(NotPermittedError):
            await calls.set_message_request_mode(client, "b", "%RETRY%G", "G", POP)  # type: ignore[arg-type]
        with pytest.raises(TopicNotFoundError):
            await calls.set_message_request_mode(client, "b", "Nowhere", "G", POP)  # type: ignore[arg-type]
        with pytest.raises(GroupNotFoundError):
            await calls.set_message_request_mode(client, "b", "T", "not legal!", POP)  # type: ignore[arg-type]
    async with open_broker(tmp_path) as (_broker, peer):
        client = OneClient(peer)
        assert (await peer.ask(heartbeat("c@1", "G", subscription("T")))).code == 0
        given = await calls.query_assignment(client, "b", "T", "G")  # type: ignore[arg-type]
        assert [(entry.mode, entry.message_queue) for entry in given or ()] == [
            (POP, MessageQueue("T", "broker-a", -1))
        ]
        modes = await calls.get_all_message_request_modes(client, "b")  # type: ignore[arg-type]
        assert (modes["T"]["G"].mode, modes["T"]["G"].pop_share_queue_num) == (POP, 8)
