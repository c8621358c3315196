"""Requests that waited too long are refused instead of served (`BrokerFastFailure` of
Apache RocketMQ 5.4.0).

Under too much load it is better to tell a client at once than to serve what it has
given up. Apache looks at the queues in front of its thread pools each 10 ms. Here
requests are served as they are read, so what waits are those that arrived in one chunk
behind others, while other connections have their turn. Limits, code and text are
Apache's; what was begun is never given up, and a lone pause of the machine fails
nobody. The page cache of appends cannot be busy here: an append is over before anything
else can look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig

_LIMITS: Final[dict[int, Callable[[BrokerConfig], int]]] = {
    **dict.fromkeys(
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.RECALL_MESSAGE,
        ),
        lambda config: config.wait_time_mills_in_send_queue,
    ),
    **dict.fromkeys(
        (
            RequestCode.PULL_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.PEEK_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
        ),
        lambda config: config.wait_time_mills_in_pull_queue,
    ),
    RequestCode.LITE_PULL_MESSAGE: lambda config: config.wait_time_mills_in_lite_pull_queue,
    RequestCode.HEART_BEAT: lambda config: config.wait_time_mills_in_heartbeat_queue,
    RequestCode.END_TRANSACTION: lambda config: config.wait_time_mills_in_transaction_queue,
    **dict.fromkeys(
        (
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        ),
        lambda config: config.wait_time_mills_in_ack_queue,
    ),
}
_WITHOUT_LIMIT: Final = frozenset(
    {
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""What Apache serves by pools that nobody cleans."""


class FastFailure:
    """Judges a request that had to wait; all others are none of its business."""

    __slots__ = ("_config", "failed")

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self.failed = 0
        """Requests refused so far."""

    def __call__(self, request: Command, waited: float, behind: int) -> Command | None:
        """The answer to a request that waited for too many seconds; None for one that
        is to be served. `behind` others wait behind it.
        """
        config = self._config.current
        if not config.broker_fast_failure_enable or request.code in _WITHOUT_LIMIT:
            return None
        limit = _LIMITS.get(request.code)
        waited_ms = int(waited * 1000)
        if waited_ms < (
            config.wait_time_mills_in_admin_broker_queue if limit is None else limit(config)
        ):
            return None
        self.failed += 1
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
            f"{waited_ms}ms, size of queue: {behind}"
        )
        return Command.response(ResponseCode.SYSTEM_BUSY, remark=remark)
