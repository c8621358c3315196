"""The classes of `rocketmq_sdk.aio`, written by `python -m tools.doors`."""

from __future__ import annotations
