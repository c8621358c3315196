"""Transactions: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.part import Part, Service
from rocketmq_sdk.broker_embedded.request import Asked, Request, Wait, Writes
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.broker_embedded.transactions.check import TransactionCheckService
from rocketmq_sdk.broker_embedded.transactions.ending import TransactionProcessor
from rocketmq_sdk.broker_embedded.transactions.half_messages import make_half
from rocketmq_sdk.broker_embedded.transactions.plain_ends import PlainEnds
from rocketmq_sdk.broker_embedded.transactions.ready import ready_of
from rocketmq_sdk.broker_embedded.transactions.table import TransactionTable
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.headers.transactions import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.timers.intake import Intake


class TransactionPart(Part):
    """Half messages, their ends, and questions to producers.

    A slave only stores what its master did.
    """

    __slots__ = ("_core", "_endings", "_intake", "_plain", "checks", "table")

    def __init__(self, core: Core, intake: Intake, members: MemberPart) -> None:
        self._core = core
        self._intake = intake
        self.table = TransactionTable(core.store, core.offsets)
        """Which transactions are open."""
        self.checks = TransactionCheckService(
            core.store,
            self.table,
            core.config,
            members.producers,
            core.topics,
            core.clock,
            core.store_host,
        )
        self._plain = PlainEnds(core, intake, self.table)
        self._endings = TransactionProcessor(core, intake, self.table, self._plain)
        if not core.config.current.is_slave:
            core.offsets.before_write.append(self.table.note_progress)

    def requests(self) -> Iterable[Request]:
        """Commit, roll back, check again."""
        return (
            Request(
                RequestCode.END_TRANSACTION,
                self._endings.end,
                needs.topic(Action.PUB, unnamed=True),
                EndTransactionRequestHeader,
                raw=True,
                together=self._plain.serve,
                asked=Asked.MASTER_BY_NAME,
                wait=Wait.TRANSACTION,
                writes=Writes.LOG,
            ),
            Request(
                RequestCode.RESUME_CHECK_HALF_MESSAGE,
                self._endings.resume,
                needs.topic(Action.UPDATE),
                ResumeCheckHalfMessageRequestHeader,
                writes=Writes.LOG,
            ),
        )

    def services(self) -> Iterable[Service]:
        """The check."""
        if self._core.config.current.is_slave:
            return ()
        checks = self.checks
        return (
            Service(
                "check of transactions",
                checks.run,
                trouble=checks.troubles,
                on_call=checks.begin(),
            ),
        )

    async def load(self) -> None:
        """Find the open half messages in the log."""
        needs = self._core.store.needs
        if needs is not None:
            needs.places.append(self.table.places)
        if not self._core.config.current.is_slave:
            await self._core.store.files.run(self.table.load)

    def put_half(self, message: MessageToStore) -> PutResult:
        """Store a transactional message in the half topic.

        A delay that it asks for begins with its commit.
        """
        if not self._intake.fits(message):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        topic, queue_id = message.topic, message.queue_id
        shown = make_half(message)
        result = self._core.store.put(message)
        if result.ok:
            self.table.added(message, result, ready_of(message, topic, queue_id, shown))
        return result
