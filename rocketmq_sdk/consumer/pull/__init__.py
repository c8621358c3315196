"""Pulling the queues that a member owns, and what it holds of each."""

from __future__ import annotations
