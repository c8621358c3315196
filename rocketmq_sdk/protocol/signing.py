"""Signatures of requests.

Follows `AclUtils`, `AclSigner`, `AclClientRPCHook` of Apache RocketMQ 5.4.0.

What is signed are the values of all header fields but the signature itself, in the
order of their names, and the body behind them. Sign last: a field that is added or
written differently afterwards breaks the signature.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rocketmq_sdk.protocol.command import Command

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field that clients up to 4.9.3 add behind their signature."""
_VERSION_4_9_3: Final = 399
_SHORT: Final = 1024
"""Characters of names whose order is remembered."""
_BLOCK: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def content_to_sign(ext_fields: Mapping[str, str], body: bytes | None) -> bytes:
    """The bytes that are signed.

    Names are ordered by UTF-16 units, as Java orders texts.
    """
    names = tuple(ext_fields)
    # What anybody may send is not to be remembered, however long it is.
    short = len("".join(names)) <= _SHORT
    values = (_values(names) if short else _values_of(names))(ext_fields)
    return "".join(values).encode("utf-8", "replace") + (body or b"")


def _values_of(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    """What takes the signed values out of fields with these names, in their order."""
    ascii_only = "".join(names).isascii()
    order = sorted(names) if ascii_only else sorted(names, key=_utf16)
    order = [name for name in order if name != SIGNATURE]
    if len(order) > 1:
        return itemgetter(*order)
    return lambda fields: [fields[name] for name in order]


# Sorting the names of each request would take as long as the arithmetic.
_values = lru_cache(maxsize=256)(_values_of)


def sign(ext_fields: Mapping[str, str], body: bytes | None, secret_key: str) -> str:
    """The signature of a request: base64 of HMAC-SHA1.

    A field named `Signature` is left out.

    Raises `ConfigurationError` for an empty secret key.
    """
    if not secret_key:
        raise ConfigurationError("the secret key is empty; a request cannot be signed with it")
    keyed = _keyed(secret_key)
    inner, outer = keyed[0].copy(), keyed[1].copy()
    inner.update(content_to_sign(ext_fields, body))
    outer.update(inner.digest())
    return b64encode(outer.digest()).decode("ascii")


# `hmac.digest` looks its algorithm up and prepares the key each time, which takes as
# long as the bytes of a request.
@lru_cache(maxsize=256)
def _keyed(secret_key: str) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Both hashes of HMAC, with the key in them (RFC 2104)."""
    key = secret_key.encode()
    if len(key) > _BLOCK:
        key = hashlib.sha1(key).digest()
    key = key.ljust(_BLOCK, b"\0")
    return hashlib.sha1(key.translate(_INNER)), hashlib.sha1(key.translate(_OUTER))


def verify(ext_fields: Mapping[str, str], body: bytes | None, secret_key: str) -> bool:
    """Whether the field `Signature` fits the other fields and the body.

    The comparison takes constant time.
    """
    given = ext_fields.get(SIGNATURE)
    return given is not None and hmac.compare_digest(
        given.encode("utf-8", "replace"), sign(ext_fields, body, secret_key).encode("ascii")
    )


def verify_request(command: Command, secret_key: str) -> bool:
    """Whether the signature of a request fits it.

    Clients up to 4.9.3 do not sign the field `_UNIQUE_KEY_QUERY`.
    """
    fields = command.ext_fields
    if command.version <= _VERSION_4_9_3 and UNIQUE_QUERY in fields:
        fields = {name: text for name, text in fields.items() if name != UNIQUE_QUERY}
    return verify(fields, command.body, secret_key)


def sign_in_place(
    ext_fields: dict[str, str],
    body: bytes | None,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> None:
    """Sign a request that is ready to be sent: access key, token and signature.

    A resend is signed again.
    """
    ext_fields[ACCESS_KEY] = access_key
    if security_token:
        ext_fields[SECURITY_TOKEN] = security_token
    ext_fields[SIGNATURE] = sign(ext_fields, body, secret_key)
