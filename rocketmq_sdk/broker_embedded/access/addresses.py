"""White lists of addresses as `plain_acl.yml` writes them (`RemoteAddressStrategy`).

`*` is everybody; `10.0.0.{1,2}` and a list with commas name addresses; `10.0.0.1-9`,
`10.0.*.*` and `fe80:*` are ranges. An empty text is nobody.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from rocketmq_sdk.errors import ConfigurationError

Matcher = Callable[[str], bool]
_EVERYBODY: Final = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
_GROUPS: Final = 8


def matcher(text: str | None) -> Matcher:
    """What tells whether an address is on the list.

    Raises `ConfigurationError` for something that is no list of addresses.
    """
    text = (text or "").strip()
    if not text:
        return lambda _address: False
    if text in _EVERYBODY:
        return lambda _address: True
    if text.endswith("}"):
        head, _brace, last = text[:-1].partition("{")
        return _one_of(text, [head + part.strip() for part in last.split(",")])
    if "," in text:
        return _one_of(text, text.split(","))
    if "*" in text or "-" in text:
        return _in_range(text)
    return _one_of(text, [text])


def _problem(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"{text!r} is no list of addresses; write 10.0.0.1, 10.0.0.{{1,2}}, 10.0.0.1-9 or 10.0.*.*"
    )


def _address(text: str) -> str | None:
    """An address in its one spelling; an IPv4 address in IPv6 is the former."""
    try:
        found = ipaddress.ip_address(text.strip().strip("[]"))
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found.exploded)


def _one_of(text: str, parts: list[str]) -> Matcher:
    wanted = {_address(part) for part in parts}
    if None in wanted:
        raise _problem(text)
    return lambda address: _address(address) in wanted


def _in_range(text: str) -> Matcher:
    separator, base = (":", 16) if ":" in text else (".", 10)
    most = 0xFFFF if base == 16 else 255
    bounds = []
    for part in text.split(separator):
        if part == "*":
            bounds.append((0, most))
            continue
        low, _minus, high = part.partition("-")
        try:
            limits = int(low, base), int(high or low, base)
        except ValueError:
            raise _problem(text) from None
        if not 0 <= limits[0] <= limits[1] <= most:
            raise _problem(text)
        bounds.append(limits)
    size = _GROUPS if base == 16 else 4
    if len(bounds) > size or (len(bounds) < size and not text.endswith("*")):
        raise _problem(text)

    def matches(address: str) -> bool:
        spelled = _address(address)
        if spelled is None or separator not in spelled:
            return False
        numbers = [int(part, base) for part in spelled.split(separator)]
        return all(
            low <= number <= high for number, (low, high) in zip(numbers, bounds, strict=False)
        )

    return matches
