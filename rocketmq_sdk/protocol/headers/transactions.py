"""Transactions: ending them and checking half messages."""

from __future__ import annotations

import attrs

from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.protocol.header import (
    Header,
    Long,
    RpcRequestHeader,
)


@attrs.define(kw_only=True)
class ResumeCheckHalfMessageRequestHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE (323): `msg_id` is the offset id of a half message."""

    topic: str | None = None
    msg_id: str | None = None


@attrs.define(kw_only=True)
class EndTransactionRequestHeader(RpcRequestHeader):
    """END_TRANSACTION (37): the outcome of a half message.

    `commit_or_rollback` is 8 for commit, 12 for roll back, 0 for unknown.
    """

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None

    def check(self) -> None:
        """Refuse an outcome that does not exist."""
        if self.commit_or_rollback not in (0, 8, 12):
            raise FieldError(
                "EndTransactionRequestHeader: the field commitOrRollback is "
                f"{self.commit_or_rollback}, not 0, 8 or 12"
            )


@attrs.define(kw_only=True)
class EndTransactionResponseHeader(Header):
    """Answer to END_TRANSACTION, without fields."""


@attrs.define(kw_only=True)
class CheckTransactionStateRequestHeader(RpcRequestHeader):
    """CHECK_TRANSACTION_STATE (39), from broker to producer.

    It asks for the outcome of a half message. `topic` is the half topic.
    """

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@attrs.define(kw_only=True)
class CheckTransactionStateResponseHeader(Header):
    """Legacy answer to CHECK_TRANSACTION_STATE."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
