"""Text to UTF-8 as Java does it."""

from __future__ import annotations


def encode_text(text: str) -> bytes:
    """UTF-8: two halves of a surrogate pair are joined, a lone one becomes `?`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return join_surrogates(text).encode("utf-8", "replace")


def join_surrogates(text: str) -> str:
    """The text with each pair of surrogates joined to its character; lone ones stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
