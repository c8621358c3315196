"""What the operations of the control endpoint take, and checks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.testing.waits import WITHIN

if TYPE_CHECKING:
    from collections.abc import Mapping

Arguments = dict[str, Any]


class Field(NamedTuple):
    """One argument: a member of the body, of the query, or a part of the path."""

    name: str
    kind: type | tuple[type, ...]
    text: str
    required: bool = False
    choices: tuple[str, ...] = ()
    """All that it may be, if these are some words."""
    least: int | None = None
    """The least number that it may be."""


NUMBER: Final = (int, float)
TOPIC: Final = Field("topic", str, "a topic; * stands for anything in faults")
GROUP: Final = Field("group", str, "a group; * stands for anything in faults")
CLIENT: Final = Field("client", str, "a client id or host; * stands for anything")
CODE: Final = Field("code", (str, int, list), "requests: a kind such as send, a name, a number")
SELECTION: Final = (
    CODE,
    TOPIC,
    GROUP,
    CLIENT,
    Field("queue", int, "a queue id", least=0),
    Field("times", int, "how many requests or operations it meets; without it all", least=1),
    Field("after", int, "how many pass first", least=0),
)
_REQUESTS: Final = tuple(field.name for field in SELECTION)
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "error": (*_REQUESTS, "error", "remark", "served"),
    "refuse": _REQUESTS,
    "delay": (*_REQUESTS, "seconds", "served"),
    "drop_request": _REQUESTS,
    "drop_answer": _REQUESTS,
    "close_connection": (*_REQUESTS, "served"),
    "out_of_order": (*_REQUESTS, "within"),
    "full_disk": ("path", "times", "after"),
    "slow_disk": ("path", "times", "after", "seconds"),
    "unreadable_disk": ("path", "times", "after"),
    "wrong_clock": ("seconds",),
}
"""What a fault may do, and the arguments that each takes."""
ACTION: Final = (
    Field(
        "action",
        str,
        "what happens: to requests "
        + ", ".join(name for name, takes in ACTIONS.items() if "code" in takes)
        + "; the others are about the disk, with path, times and after, and the clock",
        required=True,
        choices=tuple(ACTIONS),
    ),
    Field("error", (str, int), "the answer's code, of ResponseCode, by name or number"),
    Field("remark", str, "the answer's remark"),
    Field(
        "seconds",
        NUMBER,
        "of a delay, or of an operation of a slow disk; by which a clock is wrong",
    ),
    Field("served", bool, "of error, delay, close_connection: the broker does what is asked first"),
    Field("within", NUMBER, "seconds in which the second of two must come; 1 without it", least=0),
    Field("path", str, "files of the disk, such as commitlog/*"),
)
WAITS: Final[Mapping[str, tuple[str, ...]]] = {
    "stored": ("topic", "count"),
    "group": ("group", "count"),
    "lag": ("group", "topic", "most"),
    "committed": ("group", "topic", "offsets"),
    "dead_letter": ("group", "count"),
    "settled": (),
    "hit": ("fault", "count"),
}
"""What can be waited for, and the arguments that each takes beside `within`."""
WAIT: Final = (
    Field("for", str, "what is waited for", required=True, choices=tuple(WAITS)),
    Field("topic", str, "of stored, committed; of lag: this one only"),
    Field("group", str, "of group, lag, committed, dead_letter"),
    Field("count", int, "messages, members, dead letters or hits; 1 without it", least=0),
    Field("most", int, "of lag: messages that may be left", least=0),
    Field("offsets", dict, "of committed: offsets by queue; without it the ends"),
    Field("fault", int, "of hit: the fault's id"),
    Field("within", NUMBER, f"seconds, of the broker's clock; {WITHIN:g} without it", least=0),
)


SEED: Final = (
    Field("topics", (dict, list), "numbers of queues by name, or names"),
    Field("groups", list, "names"),
    Field("messages", dict, "by topic: texts, JSON, or objects with body, tags, keys, queue, ..."),
    Field("offsets", dict, "by group and topic: one for all queues, or a list"),
)


def in_path(name: str) -> Field:
    return Field(name, str, f"the {name}", required=True)


def number_of(text: str) -> int:
    """The number that a text is; -1 for another text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


def by_queue(offsets: Mapping[str, Any]) -> dict[int, int]:
    """Offsets by the numbers of queues, which JSON has as texts."""
    found = {number_of(queue): at for queue, at in offsets.items()}
    if -1 in found or not all(type(at) is int for at in found.values()):
        raise ConfigurationError(f"offsets is {offsets}; give whole numbers by queue ids")
    return found


def check_taken(
    name: str,
    arguments: Arguments,
    table: Mapping[str, tuple[str, ...]],
    always: tuple[str, ...] = (),
) -> None:
    """Refuse what would have no effect."""
    what = arguments[name]
    if what not in table:
        raise ConfigurationError(f"{name} is {what!r}; it is one of {', '.join(table)}")
    takes = (*table[what], *always)
    for given in arguments:
        if given != name and given not in takes:
            there = ", ".join(takes) or "nothing"
            raise ConfigurationError(f"{what} takes no {given}; it takes {there}")


def needed(value: Any, name: str) -> Any:
    if value is None:
        raise ConfigurationError(f"{name} is missing")
    return value
