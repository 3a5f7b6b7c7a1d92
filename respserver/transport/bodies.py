"""Request bodies that come compressed: gzip (and deflate) and zstd, bounded after inflation (design.md section 8)."""

from __future__ import annotations

import zlib

import zstandard

from respserver.errors import InvalidRequest, PayloadTooLarge

MAX_ZSTD_WINDOW = 1 << 27
"""128 MiB, zstd's own limit for streams; a frame that asks for more is refused before memory is taken."""

MAX_MEMBERS = 100
"""A body may be several gzip members or zstd frames in a row (RFC 1952 section 2.2, RFC 8878 section 3). Writers that
append make a few; what consists of more is made to keep us busy, since each costs a copy of what is behind it."""


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """The body as it was before ``Content-Encoding``.

    Raises ``PayloadTooLarge`` if more than ``limit`` bytes come out, ``InvalidRequest`` (415 for an unknown coding) if
    the bytes are not what the header says.
    """
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding in ("gzip", "x-gzip"):
        return _zlib(body, 16 + zlib.MAX_WBITS, limit, MAX_MEMBERS)
    if coding == "deflate":
        return _zlib(body, zlib.MAX_WBITS, limit, 1)
    if coding == "zstd":
        return _zstd(body, limit)
    raise InvalidRequest(
        f"Unsupported Content-Encoding '{coding}'. Send identity, gzip, deflate or zstd.",
        code="unsupported_content_encoding",
        status=415,
    )


def _zlib(body: bytes, window: int, limit: int, members: int) -> bytes:
    result = bytearray()
    for _ in range(members):
        stream = zlib.decompressobj(window)
        try:
            result += stream.decompress(body, limit + 1 - len(result))
        except zlib.error as error:
            raise _damaged() from error
        if len(result) > limit:
            raise PayloadTooLarge(limit)
        if not stream.eof:
            raise _damaged()
        body = stream.unused_data
        if not body:
            return bytes(result)
    raise _damaged()


def _zstd(body: bytes, limit: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    try:
        size = len(decompressor.stream_reader(body, read_across_frames=True).read(limit + 1))
        if size > limit:
            raise PayloadTooLarge(limit)
        # The reader is bounded but takes a cut frame for a whole one; frame by frame it shows, and the size is known.
        return _zstd_frames(decompressor, body)
    except zstandard.ZstdError as error:
        raise _damaged() from error


def _zstd_frames(decompressor: zstandard.ZstdDecompressor, body: bytes) -> bytes:
    result = bytearray()
    for _ in range(MAX_MEMBERS):
        stream = decompressor.decompressobj()
        result += stream.decompress(body)
        if not stream.eof:
            raise _damaged()
        body = stream.unused_data
        if not body:
            return bytes(result)
    raise _damaged()


def _damaged() -> InvalidRequest:
    return InvalidRequest("The request body does not match its Content-Encoding.", code="invalid_body")
