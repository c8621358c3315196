"""The options of the format: their values, their table and how they are parsed."""

from __future__ import annotations
