"""What a job reads, in plain values: offsets, ranges, limits and losses."""

from __future__ import annotations
