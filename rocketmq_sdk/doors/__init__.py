"""What the doors have in common: faces of objects for trio, and how blocks end."""

from __future__ import annotations
