"""Nothing: a name for the glob of a local program."""

from __future__ import annotations
