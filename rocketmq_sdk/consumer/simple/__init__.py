"""Simple consumers: messages are received, acknowledged or received again."""

from __future__ import annotations
