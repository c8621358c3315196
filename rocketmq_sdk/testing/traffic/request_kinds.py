"""Requests by number, name or kind, as tests name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spelling import meant

KINDS: Final[dict[str, tuple[RequestCode, ...]]] = {
    "send": (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    ),
    "reply": (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    "pull": (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
    "pop": (RequestCode.POP_MESSAGE,),
    "ack": (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),
    "send_back": (RequestCode.CONSUMER_SEND_MSG_BACK,),
    "commit": (RequestCode.UPDATE_CONSUMER_OFFSET,),
    "end_transaction": (RequestCode.END_TRANSACTION,),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "lock": (RequestCode.LOCK_BATCH_MQ,),
    "route": (RequestCode.GET_ROUTEINFO_BY_TOPIC,),
}
"""Short names for requests that do the same; any name of `RequestCode` is one too."""


def codes_of(code: int | str | Sequence[int | str] | None) -> frozenset[int] | None:
    """The codes that are meant; None for all.

    Raises `ConfigurationError` for a name that does not exist, with the nearest one.
    """
    if code is None:
        return None
    if isinstance(code, int):
        return frozenset((int(code),))
    if isinstance(code, str):
        return _named(code)
    if not isinstance(code, Sequence):
        raise ConfigurationError(f"a code is {code!r}; give a name, a number or a list of these")
    return frozenset(one for part in code for one in codes_of(part) or ())


def _named(name: str) -> frozenset[int]:
    kind = KINDS.get(name.lower())
    if kind is not None:
        return frozenset(int(code) for code in kind)
    if name.upper() in RequestCode.__members__:
        return frozenset((int(RequestCode[name.upper()]),))
    hint = meant(name, known=[*RequestCode.__members__, *KINDS], most=1)
    raise ConfigurationError(
        f"there is no request {name!r}{hint} Name one of RequestCode, or a kind: {', '.join(KINDS)}"
    )


def response_code_of(code: int | str) -> int:
    """The code of an answer. Raises `ConfigurationError` for an unknown name."""
    if isinstance(code, int):
        if not -(2**31) <= code < 2**31:
            raise ConfigurationError(f"there is no answer {code}: a code has 32 bits")
        return int(code)
    if code.upper() in ResponseCode.__members__:
        return int(ResponseCode[code.upper()])
    hint = meant(code, known=ResponseCode.__members__, most=1)
    raise ConfigurationError(f"there is no answer {code!r}{hint}")
