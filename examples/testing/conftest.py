"""These programs are projects of their own, which `tests` runs in their folders."""

from __future__ import annotations

collect_ignore = ["orders"]
