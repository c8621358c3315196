"""Push consumers: messages go to a listener."""

from __future__ import annotations
