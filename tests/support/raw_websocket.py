"""A WebSocket client made of bytes: tests decide each frame, also the ones that no library would send."""

from __future__ import annotations

import struct
from typing import NamedTuple

import trio

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

UPGRADE = {
    "Host": "server.test",
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
ACCEPT_KEY = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The answer to the key above (RFC 6455 section 1.3)."""


class Frame(NamedTuple):
    """One frame as received."""

    opcode: int
    payload: bytes
    final: bool = True


def request(method: str = "GET", target: str = "/v1/responses", **changes: str | None) -> bytes:
    """An upgrade request; ``changes`` replace header fields (``Sec_WebSocket_Key="x"``), None leaves one out."""
    fields = {**UPGRADE, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [
        f"{method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in fields.items() if value is not None),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def client_frame(opcode: int, payload: bytes = b"", *, final: bool = True, masked: bool = True) -> bytes:
    """A client's frame, masked with zeros, so that the payload stays readable."""
    mask_bit = 0x80 if masked else 0
    size = len(payload)
    head = bytes([(0x80 if final else 0) | opcode])
    if size < 126:
        head += bytes([mask_bit | size])
    elif size < 1 << 16:
        head += bytes([mask_bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([mask_bit | 127]) + struct.pack("!Q", size)
    return head + (bytes(4) if masked else b"") + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """A client's close frame."""
    return client_frame(CLOSE, struct.pack("!H", code) + reason.encode())


class RawClient:
    """The client's end of a connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    async def head(self) -> bytes:
        """The next HTTP response head."""
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return bytes(head)

    async def open(self, behind: bytes = b"") -> None:
        """Shake hands, with bytes behind the request in the same segment."""
        await self.stream.send_all(request() + behind)
        head = await self.head()
        assert head.startswith(b"HTTP/1.1 101 ")
        assert ACCEPT_KEY in head

    async def frame(self) -> Frame:
        """The next frame."""
        first, second = await self.take(2)
        assert not second & 0x80, "a server's frame must not be masked"
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self.take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.take(8))
        return Frame(first & 0x0F, await self.take(size), bool(first & 0x80))

    async def closed(self) -> int | None:
        """Read to the end of the connection; the close frame's code, which must be the last frame, or None."""
        code = None
        try:
            while True:
                frame = await self.frame()
                assert code is None, "a frame after the close frame"
                if frame.opcode == CLOSE:
                    (code,) = struct.unpack("!H", frame.payload[:2])
        except (EOFError, trio.BrokenResourceError):
            return code

    async def rest(self) -> bytes:
        """Everything to the end of the connection."""
        try:
            while True:
                await self._more()
        except EOFError:
            return bytes(self._buffer)

    async def take(self, size: int) -> bytes:
        """The next bytes, exactly so many."""
        while len(self._buffer) < size:
            await self._more()
        taken, self._buffer = bytes(self._buffer[:size]), self._buffer[size:]
        return taken

    async def _more(self) -> None:
        data = await self.stream.receive_some(1 << 16)
        if not data:
            raise EOFError
        self._buffer += data
