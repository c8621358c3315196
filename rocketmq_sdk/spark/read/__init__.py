"""The source: batches and streams read ranges of queues as record batches."""

from __future__ import annotations
