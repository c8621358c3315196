"""Pulling the queues that a member owns, and what is cached of each."""

from __future__ import annotations
