"""Stored records as rows: from the bytes of a pull to Arrow record batches."""

from __future__ import annotations
