"""Compression of bodies: zlib, LZ4 frames and Zstandard frames.

Three bits of the system flag tell them apart.

`CompressionType` and the `Compressor` classes of Apache RocketMQ 5.4.0. LZ4 and
Zstandard need libraries that are extras of this package; they are imported when a body
first asks for them. All readers work with a bound on their output, so that a small body
cannot fill the memory.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import CodecMissingError, ConfigurationError, RemoteProtocolError

if TYPE_CHECKING:
    from types import ModuleType

DEFAULT_LIMIT: Final = 256 * 1024 * 1024
"""How many bytes one body may inflate to."""
COMPRESSION_SHIFT: Final = 8
COMPRESSION_MASK: Final = 0x700
DEFAULT_LEVEL: Final = 5
# A Zstandard block of 4 bytes can stand for 128 KiB; reading 1 KiB at a time bounds
# what one step can produce to 32 MiB.
_ZSTD_STEP: Final = 1024
_LZ4_STEP: Final = 64 * 1024


class CompressionType(IntEnum):
    """A compression method.

    The number is what the system flag holds in bits 8 to 10.
    """

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag_bits(self) -> int:
        """The method's bits in place."""
        return self.value << COMPRESSION_SHIFT

    @classmethod
    def from_sys_flag(cls, sys_flag: int) -> CompressionType:
        """The method that a system flag names.

        0 means zlib, which is what clients before 4.9.4 mean by it.

        Raises `RemoteProtocolError` for a number without meaning.
        """
        value = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
        if value == 0:
            return cls.ZLIB
        if value > cls.ZLIB:
            raise RemoteProtocolError(
                f"the system flag {sys_flag:#x} names the unknown compression type {value}"
            )
        return cls(value)

    @classmethod
    def of(cls, name: str) -> CompressionType:
        """The method of a name in any case.

        Raises `ConfigurationError` for another name.
        """
        try:
            return cls[name.strip().upper()]
        except KeyError:
            raise ConfigurationError(
                f"{name!r} is not a compression type; there are ZLIB, LZ4 and ZSTD"
            ) from None


@cache
def _library(module: str, extra: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise CodecMissingError(
            f"{extra.upper()} bodies need a library that is not installed: pip install "
            f"'rocketmq-trio[{extra}]'"
        ) from error


def check_method(compression_type: CompressionType, level: int) -> None:
    """Raise what `compress` would for a method without library, or an unknown level."""
    if compression_type == CompressionType.ZLIB:
        most = zlib.Z_BEST_COMPRESSION
    elif compression_type == CompressionType.ZSTD:
        most = _library("zstandard", "zstd").MAX_COMPRESSION_LEVEL
    else:
        _library("lz4.frame", "lz4")
        return  # it has no levels
    if level > most:
        raise ConfigurationError(
            f"compression_level is {level}; {compression_type.name} has the levels 0 to {most}"
        )


def compress(
    body: bytes,
    compression_type: CompressionType = CompressionType.ZLIB,
    level: int = DEFAULT_LEVEL,
) -> bytes:
    """The compressed body.

    LZ4 has no levels here, as at Apache's; zlib takes -1 to 9, Zstandard its own
    numbers.

    Raises `ConfigurationError` for a level that the method does not have,
    `CodecMissingError` when its library is not installed.
    """
    if compression_type == CompressionType.ZLIB:
        if not -1 <= level <= 9:
            raise ConfigurationError(f"zlib has the levels -1 to 9, not {level}")
        return zlib.compress(body, level)
    if compression_type == CompressionType.LZ4:
        lz4 = _library("lz4.frame", "lz4")
        return bytes(
            lz4.compress(
                body, block_size=lz4.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
            )
        )
    zstd = _library("zstandard", "zstd")
    if level > zstd.MAX_COMPRESSION_LEVEL:
        raise ConfigurationError(f"zstd has levels up to {zstd.MAX_COMPRESSION_LEVEL}, not {level}")
    return bytes(zstd.ZstdCompressor(level=level).compress(body))


def decompress(body: bytes, sys_flag: int, *, limit: int = DEFAULT_LIMIT) -> bytes:
    """The inflated body, by the method that the system flag names.

    The flag's compressed bit is not looked at.

    Raises `RemoteProtocolError` when the body is damaged, cut off, or would grow above
    `limit` bytes, `CodecMissingError` when the library of the method is not installed.
    """
    compression_type = CompressionType.from_sys_flag(sys_flag)
    if compression_type == CompressionType.ZLIB:
        return _inflate_zlib(body, limit)
    if compression_type == CompressionType.LZ4:
        return _inflate_lz4(body, limit)
    return _inflate_zstd(body, limit)


def _too_large(method: str, limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the {method} body inflates to more than {limit} bytes")


def _cut_off(method: str, size: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the {method} body of {size} bytes is cut off")


def _inflate_zlib(body: bytes, limit: int) -> bytes:
    if not body:
        return b""
    inflater = zlib.decompressobj()
    try:
        result = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"the zlib body is damaged: {error}") from error
    if len(result) > limit:
        raise _too_large("zlib", limit)
    if not inflater.eof:
        raise _cut_off("zlib", len(body))
    return result


def _inflate_lz4(body: bytes, limit: int) -> bytes:
    lz4 = _library("lz4.frame", "lz4")
    parts: list[bytes] = []
    produced = 0
    rest = body
    while True:
        reader = lz4.LZ4FrameDecompressor()
        source = rest
        while not reader.eof:
            try:
                part: bytes = reader.decompress(source, max_length=max(_LZ4_STEP, 4 * len(source)))
            except RuntimeError as error:
                raise RemoteProtocolError(f"the lz4 body is damaged: {error}") from error
            source = b""
            produced += len(part)
            parts.append(part)
            if produced > limit:
                raise _too_large("lz4", limit)
            if not reader.eof and (reader.needs_input or not part):
                raise _cut_off("lz4", len(body))
        rest = reader.unused_data
        if not rest:
            return b"".join(parts)


def _inflate_zstd(body: bytes, limit: int) -> bytes:
    zstd = _library("zstandard", "zstd")
    parts: list[bytes] = []
    produced = 0
    position = 0
    size = len(body)
    context = zstd.ZstdDecompressor()
    while position < size:
        reader = context.decompressobj()
        while not reader.eof:
            if position >= size:
                raise _cut_off("zstd", size)
            try:
                part: bytes = reader.decompress(body[position : position + _ZSTD_STEP])
            except zstd.ZstdError as error:
                raise RemoteProtocolError(f"the zstd body is damaged: {error}") from error
            position = min(position + _ZSTD_STEP, size)
            produced += len(part)
            parts.append(part)
            if produced > limit:
                raise _too_large("zstd", limit)
        position -= len(reader.unused_data)
    return b"".join(parts)
