"""Bringing the store to the disk."""
