"""The sink: rows of a DataFrame become messages."""

from __future__ import annotations
