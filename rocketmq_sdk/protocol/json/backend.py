"""The one place that decides which JSON library reads and writes.

orjson is used when it is installed, else the standard library; the environment variable
`ROCKETMQ_SDK_JSON` (`orjson` or `stdlib`) forces one of them. Both are driven to the
same behaviour: compact UTF-8 out, strict JSON in, `ValueError` for broken texts (half a
surrogate pair is one),
`TypeError` or `ValueError` for values that cannot be written. Users look the functions
up at each call (`json_backend.loads(...)`), so a change takes effect at once.
"""

from __future__ import annotations

import json
import json.encoder
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

try:
    import orjson
except ImportError:  # the extra "speed" is not installed
    orjson = None  # type: ignore[assignment]

Mode = Literal["orjson", "stdlib"]
ENVIRONMENT_VARIABLE: Final = "ROCKETMQ_SDK_JSON"
INSTALLED: Final[tuple[Mode, ...]] = ("stdlib",) if orjson is None else ("orjson", "stdlib")
"""What can be selected, best first."""


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_scan: Callable[[str, int], tuple[object, int]] = _decoder.scan_once  # type: ignore[attr-defined]
_plain_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_make_encoder = getattr(json.encoder, "c_make_encoder", None)
_escape = json.encoder.encode_basestring


# An escaped half of a surrogate pair without the other half beside it. A backslash that
# is itself escaped makes one too many: the careful reader finds out.
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def _stdlib_loads(data: bytes) -> object:
    text = str(data, "utf-8")
    if b"\\u" in data and _LONE_SURROGATE.search(data):
        raise ValueError("the text holds half a surrogate pair")
    try:
        value, end = _scan(text, 0)
        if end == len(text):
            return value
        return _decoder.decode(text)
    except StopIteration:
        return _decoder.decode(text)
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None


def _unwritable(value: object) -> object:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


# The C encoder object is made once: `JSONEncoder.encode` makes a new one, with a table
# against cycles, for each call.
if _make_encoder is None:

    def write_text(value: object) -> str:
        """JSON text by the standard library, compact, non-ASCII raw."""
        return _plain_encoder.encode(value)

else:
    _write_chunks: Callable[[object, int], tuple[str, ...]] = _make_encoder(
        None, _unwritable, _escape, None, ":", ",", False, False, False
    )

    def write_text(value: object) -> str:
        """JSON text by the standard library, compact, non-ASCII raw."""
        try:
            return "".join(_write_chunks(value, 0))
        except RecursionError:
            raise ValueError("the value is nested too deeply") from None


def _stdlib_dumps(value: object) -> bytes:
    return write_text(value).encode()


def _choose(mode: str | None) -> Mode:
    if mode is None or not mode:
        return "stdlib" if orjson is None else "orjson"
    if mode == "stdlib":
        return "stdlib"
    if mode == "orjson" and orjson is not None:
        return "orjson"
    raise ConfigurationError(
        f"{ENVIRONMENT_VARIABLE}={mode!r}: write orjson (the extra 'speed' must be installed) or "
        "stdlib"
    )


mode: Mode
loads: Callable[[bytes], object]
dumps: Callable[[object], bytes]


def select(wanted: str | None) -> None:
    """Use one implementation from now on.

    `orjson`, `stdlib`, or None for the best one installed.

    Raises `ConfigurationError` for an unknown or missing one.
    """
    global mode, loads, dumps
    mode = _choose(wanted)
    loads, dumps = (
        (_stdlib_loads, _stdlib_dumps) if mode == "stdlib" else (orjson.loads, orjson.dumps)
    )


@contextmanager
def forced(wanted: str) -> Iterator[None]:
    """Use one implementation inside a `with` block; for tests and measurements."""
    before = mode
    select(wanted)
    try:
        yield
    finally:
        select(before)


select(os.environ.get(ENVIRONMENT_VARIABLE))
