"""What every member of a group does: its life, and which queues it owns."""

from __future__ import annotations
