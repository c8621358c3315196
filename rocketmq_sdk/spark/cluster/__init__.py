"""How drivers and workers reach the cluster: access, trio thread, retries, view."""

from __future__ import annotations
