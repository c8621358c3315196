"""Strategies that know the rooms of brokers and members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeVar

from rocketmq_sdk.consumer.assign.strategy import (
    AllocateStrategy,
    check_arguments,
    check_strategy,
)
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.queue import MessageQueue

RoomOfQueue = Callable[[MessageQueue], str]
RoomOfMember = Callable[[str], str]
_Thing = TypeVar("_Thing")


class MachineRoom:
    """Only the queues of brokers in `rooms` are consumed, shared evenly.

    The brokers must be named `room@name`. Follows `AllocateMessageQueueByMachineRoom`
    of Apache RocketMQ 5.4.0: each member gets a run, and the remainder goes one by one
    to the first members. Raises `ConfigurationError` when no room is given.
    """

    name: ClassVar[str] = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = frozenset([rooms] if isinstance(rooms, str) else rooms)
        if not self.rooms:
            raise ConfigurationError(
                "rooms is empty; name the machine rooms whose queues are to be consumed"
            )

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; none when it is not among `client_ids`.

        Raises `ConfigurationError` when an argument is empty.
        """
        if not check_arguments(client_id, queues, client_ids):
            return []
        kept = [queue for queue in queues if self._is_inside(queue.broker_name)]
        size, remainder = divmod(len(kept), len(client_ids))
        index = client_ids.index(client_id)
        share = kept[size * index : size * (index + 1)]
        return [*share, kept[size * len(client_ids) + index]] if index < remainder else share

    def _is_inside(self, broker_name: str) -> bool:
        parts = broker_name.split("@")
        return len(parts) == 2 and parts[0] in self.rooms


class MachineRoomNearby:
    """Members consume the queues of their own room.

    Queues of rooms without members are shared by all. Follows
    `AllocateMachineRoomNearby` of Apache RocketMQ 5.4.0: `inner` shares the queues of
    one room among its members; `room_of_queue` and `room_of_member` return the room of
    a queue's broker and of a client id. Raises `ConfigurationError`, also from
    `allocate`, when one of them returns no room.
    """

    def __init__(
        self, inner: AllocateStrategy, *, room_of_queue: RoomOfQueue, room_of_member: RoomOfMember
    ) -> None:
        check_strategy("inner", inner)
        if not callable(room_of_queue) or not callable(room_of_member):
            raise ConfigurationError(
                "MachineRoomNearby needs two functions that give the room of a queue and of a "
                "member"
            )
        self.inner = inner
        self._room_of_queue = room_of_queue
        self._room_of_member = room_of_member

    @property
    def name(self) -> str:
        """Apache's name, which includes that of the inner strategy."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; none when it is not among `client_ids`.

        Raises `ConfigurationError` when an argument is empty or something has no room.
        """
        if not check_arguments(client_id, queues, client_ids):
            return []
        queues_of, members_of = (
            _grouped(queues, self._room_of_queue),
            _grouped(client_ids, self._room_of_member),
        )
        own_room = self._room_of_member(client_id)
        near = queues_of.pop(own_room, [])
        share = self.inner.allocate(client_id, near, members_of[own_room]) if near else []
        for room in sorted(queues_of):
            if room not in members_of:
                share += self.inner.allocate(client_id, queues_of[room], client_ids)
        return share


def _grouped(things: Iterable[_Thing], room_of: Callable[[_Thing], str]) -> dict[str, list[_Thing]]:
    grouped: defaultdict[str, list[_Thing]] = defaultdict(list)
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ConfigurationError(f"the machine room of {thing!r} is not known")
        grouped[room].append(thing)
    return grouped
