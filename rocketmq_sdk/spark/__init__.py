"""A Spark source and sink for RocketMQ, without a jar.

Start with `from rocketmq_sdk.spark import register`. Importing this package loads
nothing; Spark is needed when one of its names is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_sdk.spark.dedup import deduplicated, in_batch, with_dedup_keys
    from rocketmq_sdk.spark.progress import Lag, LagListener, lag
    from rocketmq_sdk.spark.session import local_session, register, use_packaged_java

_HOMES: Final = {
    "Lag": "progress",
    "LagListener": "progress",
    "deduplicated": "dedup",
    "in_batch": "dedup",
    "lag": "progress",
    "local_session": "session",
    "register": "session",
    "use_packaged_java": "session",
    "with_dedup_keys": "dedup",
}

__all__ = [
    "Lag",
    "LagListener",
    "deduplicated",
    "in_batch",
    "lag",
    "local_session",
    "register",
    "use_packaged_java",
    "with_dedup_keys",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
