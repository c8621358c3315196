"""What the parts of an open store share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
    from rocketmq_sdk.errors import StoreError


class StoreState:
    """What services and store share: store times, and why writing ended.

    The times are those of the last append and the last dispatch.
    """

    __slots__ = (
        "disk_full",
        "dispatched_timestamp",
        "failure",
        "gate",
        "index_problem",
        "log_problem",
        "open",
        "queue_problem",
        "stored_timestamp",
    )

    def __init__(self) -> None:
        self.stored_timestamp = 0
        self.dispatched_timestamp = 0
        self.failure: StoreError | None = None
        """A failed sync; final."""
        self.log_problem: StoreError | None = None
        """The log could not be written; until it can.

        What was appended then is in memory and was not acknowledged.
        """
        self.queue_problem: StoreError | None = None
        """Queue units could not be written; until they can."""
        self.disk_full = False
        """There is too little space left; until there is more."""
        self.index_problem: StoreError | None = None
        """The index could not be written; messages wait in memory to be indexed."""
        self.open = False
        """Whether the store has been entered and not yet left."""
        self.gate: Callable[[MessageToStore], PutStatus | None] | None = None
        """Returns the status that a message is refused with, or None.

        Set when the broker's role or its replicas may forbid puts.
        """

    @property
    def writable(self) -> bool:
        """Whether puts are accepted."""
        return self.open and self.problem is None and not self.disk_full

    @property
    def problem(self) -> StoreError | None:
        """Why nothing can be written, for good or for now; None while it can."""
        return self.failure or self.log_problem or self.queue_problem
