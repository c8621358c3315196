"""The classes of `rocketmq_sdk.sync`, written by `python -m tools.doors`."""

from __future__ import annotations
