"""Typed calls of a client; families as in `protocol.headers`."""
