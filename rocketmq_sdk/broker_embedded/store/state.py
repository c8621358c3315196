"""What the parts of an open store share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rocketmq_sdk.errors import StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
    from rocketmq_sdk.errors import StoreError


def _nothing() -> None:
    pass


class StoreState:
    """What services and store share: store times, and why writing ended.

    The times are those of the last append and the last dispatch.
    """

    __slots__ = (
        "deleting",
        "disk_full",
        "dispatched_timestamp",
        "failure",
        "full",
        "gate",
        "index_problem",
        "log_problem",
        "on_full",
        "open",
        "queue_problem",
        "stored_timestamp",
    )

    def __init__(self) -> None:
        self.deleting = Counter[str]()
        """How many deletions of a topic are under way or wait for their turn.

        Nothing is put into it meanwhile.
        """
        self.stored_timestamp = 0
        self.dispatched_timestamp = 0
        self.failure: StoreError | None = None
        """A failed sync; final."""
        self.log_problem: StoreError | None = None
        """The log could not be written, until it can; or `failure`.

        What was appended then is in memory and was not acknowledged.
        """
        self.queue_problem: StoreError | None = None
        """Queue units could not be written; until they can."""
        self.disk_full = False
        """There is too little space left; until there is more."""
        self.full: StoreFullError | None = None
        """The last append found no space; until one does."""
        self.on_full: Callable[[], None] = _nothing
        """Called by `found` when a write finds no space."""
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
        """Whether puts are accepted, as far as is known without one."""
        return self.open and self.problem is None and not self.disk_full

    def found(self, problem: StoreError) -> None:
        """Tell retention, if this is a lack of space.

        For whoever finds it: while units of queues find no space, nothing is appended
        that would find none, and nobody else would ask for some.
        """
        if isinstance(problem, StoreFullError):
            self.on_full()

    @property
    def lacks_space(self) -> bool:
        """Whether some write found no space, or there is too little."""
        problems = (self.log_problem, self.queue_problem, self.index_problem, self.full)
        return self.disk_full or any(isinstance(problem, StoreFullError) for problem in problems)

    @property
    def short_of_space(self) -> bool:
        """Whether nothing but a lack of space keeps puts from being accepted."""
        problem = self.problem or self.full
        return isinstance(problem, StoreFullError) or (problem is None and self.disk_full)

    @property
    def problem(self) -> StoreError | None:
        """Why nothing can be written, for good or for now; None while it can."""
        return self.log_problem or self.queue_problem
