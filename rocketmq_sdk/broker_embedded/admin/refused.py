"""Requests that Apache's broker serves and this one refuses, with the reason.

The reason is sent with code 3.
"""

from __future__ import annotations

from typing import Final

from rocketmq_sdk.broker_embedded.request import Refusal
from rocketmq_sdk.codes import RequestCode

_CONTROLLER: Final = "belongs to controller mode; this broker runs alone"
_CONTAINER: Final = "belongs to broker containers; open one broker for each configuration"
_ACTING: Final = "belongs to slaves that act as masters, which this broker does not do"
_ROCKSDB: Final = "belongs to RocksDB; this broker keeps files in Apache's default format only"
_LITE: Final = "belongs to lite topics, which this broker does not keep"
_STATIC: Final = "belongs to static topics, which this broker does not keep"

_REASONS: Final[dict[str, tuple[RequestCode, ...]]] = {
    _CONTROLLER: (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
    ),
    _CONTAINER: (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER),
    _ACTING: (RequestCode.EXCHANGE_BROKER_HA_INFO, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE),
    _ROCKSDB: (
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.POP_ROLLBACK,
    ),
    _LITE: (
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.ACK_LITE_MESSAGE,
        RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
        RequestCode.GET_BROKER_LITE_INFO,
        RequestCode.GET_PARENT_TOPIC_INFO,
        RequestCode.GET_LITE_TOPIC_INFO,
        RequestCode.GET_LITE_CLIENT_INFO,
        RequestCode.GET_LITE_GROUP_INFO,
        RequestCode.TRIGGER_LITE_DISPATCH,
    ),
    _STATIC: (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,),
}

REFUSED: Final[tuple[Refusal, ...]] = tuple(
    Refusal(code, reason) for reason, codes in _REASONS.items() for code in codes
)
"""Rows of the requests that are refused."""
REFUSED_REMARKS: Final = {int(row.code): row.remark for row in REFUSED}
"""The remark of each answer, by code."""
