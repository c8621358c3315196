"""Since which release of Apache RocketMQ brokers serve a request.

Read from the sources of 4.2.0 to 5.3.3: the first release whose `BrokerController` or
default processor names it. What is not in the table was served before 4.9.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import RequestCode, request_name

if TYPE_CHECKING:
    from collections.abc import Mapping

Number = tuple[int, int, int]

_LATER: Final[Mapping[Number, tuple[RequestCode, ...]]] = {
    (4, 9, 4): (RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.DELETE_EXPIRED_COMMITLOG),
    (5, 0, 0): (
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    ),
    (5, 1, 2): (
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE,
    ),
    (5, 1, 3): (RequestCode.BATCH_ACK_MESSAGE,),
    (5, 3, 0): (
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    ),
    (5, 3, 1): (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
    ),
    (5, 3, 2): (
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.RECALL_MESSAGE,
        RequestCode.POP_ROLLBACK,
    ),
    (5, 4, 0): (RequestCode.SWITCH_TIMER_ENGINE,),
}
FIRST_SERVED: Final[Mapping[int, Number]] = {
    int(code): number for number, codes in _LATER.items() for code in codes
}
"""The release in which each request came that 4.9.0 did not serve."""


_UNKNOWN: Final = re.compile(r"request type (\d+) not supported")


def why_unknown(remark: str | None) -> str | None:
    """Why a broker does not know a request, by the remark of its answer.

    None when the remark does not tell, or the request is an old one.
    """
    found = _UNKNOWN.search(remark or "")
    if found is not None and int(found[1]) == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        return "only name servers serve it, so namesrv= is the address of a broker"
    number = FIRST_SERVED.get(int(found[1])) if found else None
    if found is None or number is None:
        return None
    release = ".".join(map(str, number))
    return f"brokers serve {request_name(int(found[1]))} since RocketMQ {release}"


_FIRST_REGULAR: Final = 194
_V5: Final = 413
"""The versions in frames (`MQVersion`) of V3_9_0_SNAPSHOT, from which on they are
regular, and of V5_0_0.
"""


def version_in_frames(number: Number) -> int:
    """The version that a release puts into its frames, as `MQVersion` counts."""
    major, minor, patch = number
    return _V5 + 2 * (100 * (major - 5) + 10 * minor + patch)


def version_text(version: int) -> str:
    """The name of a version in frames (`MQVersion`), or its number."""
    if version < _FIRST_REGULAR:
        return f"ordinal_{version}"
    number, snapshot = divmod(version - _V5 + 1, 2)
    number += 500
    text = f"v{number // 100}_{number // 10 % 10}_{number % 10}"
    return text if snapshot else f"{text}_snapshot"
