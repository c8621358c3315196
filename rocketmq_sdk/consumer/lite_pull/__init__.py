"""Consumers that the program asks for messages: lite pull, and plain pull."""

from __future__ import annotations
