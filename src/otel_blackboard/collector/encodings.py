"""Content-Encoding: bodies out of gzip, deflate and zstd, never to more than a limit.

A body of a few kilobytes can stand for gigabytes, so output is taken in pieces and counted.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Protocol

from otel_blackboard.collector.arrival import DecodeError, TooLarge, UnsupportedEncoding

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

SUPPORTED = ("identity", "gzip", "deflate", "zstd")

_PIECE = 1 << 20
"""Bytes of output taken at a time."""
_SLICE = 1 << 16
"""Bytes of input given at a time: what is not used yet is copied on every call."""
_MOST_MEMBERS = 10_000
"""A stream may be several streams one after the other (pigz, log shippers). Millions of empty ones are an attack."""
_ZSTD_LARGEST_WINDOW_LOG = 26
"""64 MiB, above the usual limit of a request; a frame could ask for a window of gigabytes."""


def decompress(body: bytes, content_encoding: str | None, limit: int) -> bytes:
    """The body as it was before its Content-Encoding. Raises UnsupportedEncoding, DecodeError for a broken or cut
    stream, and TooLarge before more than `limit` bytes are held."""
    encoding = check_encoding(content_encoding)
    match encoding:
        case "identity":
            if len(body) > limit:
                raise TooLarge(limit)
            return body
        case "gzip":
            return _inflate_all(body, lambda: _Zlib(31), limit, encoding)
        case "zstd":
            return _inflate_all(body, _Zstd, limit, encoding)
        case _:
            # By RFC 9110 deflate is a zlib stream; some senders leave zlib's header out.
            try:
                return _inflate_all(body, lambda: _Zlib(15), limit, encoding)
            except DecodeError:
                return _inflate_all(body, lambda: _Zlib(-15), limit, encoding)


def check_encoding(content_encoding: str | None) -> str:
    """The one supported encoding that the header names. Raises UnsupportedEncoding."""
    encoding = (content_encoding or "").strip().lower() or "identity"
    if encoding == "x-gzip":
        return "gzip"
    if encoding not in SUPPORTED:
        raise UnsupportedEncoding(f"Content-Encoding must be one of {', '.join(SUPPORTED)}")
    return encoding


class _Stream(Protocol):
    """One compressed stream."""

    def feed(self, data: bytes) -> bytes:
        """At most _PIECE bytes of output. After it, `more` says whether to feed b"" for the rest."""
        ...

    @property
    def more(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def unused(self) -> bytes:
        """Input after the end of the stream."""
        ...


class _Zlib:
    def __init__(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)
        self.more = False

    def feed(self, data: bytes) -> bytes:
        try:
            output = self._stream.decompress(self._stream.unconsumed_tail + data, _PIECE)
        except zlib.error:
            raise DecodeError from None
        # A full piece may have left output inside zlib though all input was taken.
        self.more = not self.ended and len(output) == _PIECE
        return output

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def unused(self) -> bytes:
        return self._stream.unused_data


class _Zstd:
    def __init__(self) -> None:
        self._stream = ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_LARGEST_WINDOW_LOG})

    def feed(self, data: bytes) -> bytes:
        try:
            return self._stream.decompress(data, _PIECE)
        except ZstdError:
            raise DecodeError from None

    @property
    def more(self) -> bool:
        return not self._stream.eof and not self._stream.needs_input

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def unused(self) -> bytes:
        return self._stream.unused_data


def _inflate_all(body: bytes, new_stream: Callable[[], _Stream], limit: int, encoding: str) -> bytes:
    """All streams of a body, one after the other."""
    pieces: list[bytes] = []
    size = 0
    members = 1
    stream = new_stream()
    position = 0
    try:
        while True:
            data = body[position : position + _SLICE]
            position += len(data)
            while True:
                output = stream.feed(data)
                size += len(output)
                if size > limit:
                    raise TooLarge(limit)
                if output:
                    pieces.append(output)
                if not stream.more:
                    break
                data = b""
            if stream.ended:
                position -= len(stream.unused)
                if position >= len(body):
                    return b"".join(pieces)
                members += 1
                if members > _MOST_MEMBERS:
                    raise DecodeError
                stream = new_stream()
            elif position >= len(body):
                raise DecodeError
    except DecodeError:
        raise DecodeError(f"the body is not a whole {encoding} stream") from None
