"""Words of docstrings that the doors say in another way.

Lines are joined before they are compared, so a phrase may be broken anywhere.
"""

from __future__ import annotations

from typing import Final

Words = tuple[tuple[str, str], ...]

AIO_REPLACED: Final[Words] = (
    (
        "the trio run in which the block was entered; use from another run raises",
        "the event loop in which the block was entered; use from another loop raises",
    ),
    ("of the same `trio.run`", "of the same event loop"),
    ("in its `trio.run`", "in its event loop"),
    (
        "or a plain one that runs in a worker thread",
        "which runs in the loop of the caller, or a plain one, which runs in a worker thread",
    ),
)

SYNC_REPLACED: Final[Words] = (
    ("async with", "with"),
    ("async for", "for"),
    (
        (
            "All channels, local ones too, belong to the trio run in which the block was entered;"
            " use from another run raises a `RocketMQError`."
        ),
        "Any thread of the process may use it.",
    ),
    ("ends its tasks and connections", "ends its connections"),
    (", from any task of the same `trio.run`,", ", from any thread,"),
    ("in its `trio.run`", "in the process that opened it"),
    ("Any number of tasks may", "Any number of threads may"),
    ("the same task polls", "the same thread polls"),
    ("when the task requests", "when the thread requests"),
    ("messages to other tasks", "messages to other threads"),
    (" (an async function is awaited)", " in a thread of its own"),
    ("Synchronous, no task.", "Returns at once."),
    (
        "Await the handle for the result. Raises `TooManyRequestsError` when",
        (
            "The handle is a `concurrent.futures.Future`: `result()` waits for the result. Raises"
            " `TooManyRequestsError` when"
        ),
    ),
    ("without anybody awaiting it", "without anybody asking for its result"),
    (
        "It is an async function, or a plain one that runs in a worker thread.",
        "It is a plain function, and runs in worker threads.",
    ),
    (
        "is cancelled (a thread goes on, its result ignored) and its message is",
        "goes on, its result ignored, and its message is",
    ),
    (
        (
            "Leaving it by an exception or cancellation cancels the listeners and takes at most "
            "2. Only a listener that shields itself from cancellation or blocks the event loop "
            "can outlast that: a task cannot be abandoned, so the block ends when it does."
        ),
        (
            "Leaving it by an exception waits for no listener and takes at most 2: a listener "
            "that runs goes on, its result ignored."
        ),
    ),
    ("one after another, for one task", "one after another, for one thread"),
    ("`checker` is an async function that", "`checker` is a function that"),
    ("(60), which is cancelled.", "(60), whose result is ignored then."),
    (
        "Raises `ConfigurationError` for a plain function as the checker.",
        "Raises `ConfigurationError` for an async function as the checker.",
    ),
    ("await `local_work(transaction)`", "call `local_work(transaction)`"),
    (
        (
            "A failure in the background cancels the block and is raised from it as one "
            "`RocketMQError`."
        ),
        (
            "After a failure in the background, calls raise `ClosedError`, and the block raises "
            "the failure as one `RocketMQError` when it is left; `join` waits for one."
        ),
    ),
    ("When cancelled the message is given up", "Ctrl-C gives the message up"),
)

SYNC_IN_PROGRAMS: Final[Words] = (
    ("async with", "with"),
    ("async for", "for"),
    ("async def", "def"),
    ("await ", ""),
)
