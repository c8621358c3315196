"""Popping: receipts, acknowledgements, and the places that a member pops."""

from __future__ import annotations
