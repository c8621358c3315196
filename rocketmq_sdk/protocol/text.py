"""Text to UTF-8 as Java does it, and numbers in texts."""

from __future__ import annotations


def encode_text(text: str) -> bytes:
    """UTF-8: two halves of a surrogate pair are joined, a lone one becomes `?`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return join_surrogates(text).encode("utf-8", "replace")


def valid_text(text: str) -> str:
    """The text as a peer reads it after `encode_text`: no lone surrogate is left."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return encode_text(text).decode()
    return text


def join_surrogates(text: str) -> str:
    """The text with each pair of surrogates joined to its character; lone ones stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def is_number(text: str, digits: int) -> bool:
    """Whether a text is a number without a sign, of at most so many ASCII digits."""
    return len(text) <= digits and text.isascii() and text.isdecimal()
