"""Clients made of bytes on blocking sockets: next to no work of their own, so that the times they take are the
server's. They trust the server and check nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

TARGET = "/v1/responses"
ENDS = (b'{"type":"response.completed"', b'{"type":"response.done"')
FAULTS = (b'{"type":"error"', b'{"type":"response.failed"')
RECEIVE_BYTES = 1 << 18
PATIENCE_SECONDS = 30.0

_UPGRADE = (
    f"GET {TARGET} HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Answer(NamedTuple):
    """Seconds from the first byte sent to the first and the last one received, and the last message."""

    first: float
    end: float
    last: bytes


class Peer(Protocol):
    """One connection; ``ask`` sends a message and waits for the whole answer."""

    def ask(self, message: bytes) -> Answer: ...


class WebSocketPeer:
    """A WebSocket. An answer is over with the event that leaves the turn to the client; an echo's with any message."""

    def __init__(self, connection: socket.socket, *, echo: bool = False) -> None:
        self._socket = connection
        self._ends = (b"",) if echo else ENDS
        self._received = bytearray()
        self._socket.sendall(_UPGRADE.encode())
        self._read_head()

    def ask(self, message: bytes) -> Answer:
        """Send one text message. Raises ``RuntimeError`` if the server fails the turn or refuses it."""
        frame = _client_frame(message)
        began = time.perf_counter()
        self._socket.sendall(frame)
        self._receive()
        first = time.perf_counter()
        while True:
            last = self._message()
            if last.startswith(FAULTS):
                raise RuntimeError(last.decode())
            if last.startswith(self._ends):
                return Answer(first - began, time.perf_counter() - began, last)

    def _read_head(self) -> None:
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, rest = self._received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise RuntimeError(head.decode())
        self._received = rest

    def _message(self) -> bytes:
        """The next message; a server's frames are whole and not masked."""
        while (bounds := _bounds(self._received)) is None:
            self._receive()
        start, end = bounds
        message = bytes(self._received[start:end])
        del self._received[:end]
        return message

    def _receive(self) -> None:
        self._received += _some(self._socket)


class HttpPeer:
    """A kept-alive HTTP connection that POSTs; an answer is a whole body of known length."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def ask(self, message: bytes) -> Answer:
        """POST one body. Raises ``RuntimeError`` for an answer that is not a 200."""
        head = f"POST {TARGET} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(message)}\r\n\r\n".encode() + message
        began = time.perf_counter()
        self._socket.sendall(request)
        received = bytearray(_some(self._socket))
        first = time.perf_counter()
        while (start := received.find(b"\r\n\r\n") + 4) < 4:
            received += _some(self._socket)
        head = received[:start].decode().lower()
        end = start + int(head.split("content-length:")[1].split("\r\n")[0])
        while len(received) < end:
            received += _some(self._socket)
        if not head.startswith("http/1.1 200"):
            raise RuntimeError(received.decode())
        return Answer(first - began, time.perf_counter() - began, bytes(received[start:end]))


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A connection to a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise RuntimeError("the server has closed the connection")
    return data


def _client_frame(message: bytes) -> bytes:
    """A masked text frame. A key of zeros leaves the bytes as they are; the server has the same work with any key."""
    size = len(message)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + struct.pack("!H", size)
    else:
        length = b"\xff" + struct.pack("!Q", size)
    return b"\x81" + length + bytes(4) + message


def _bounds(received: bytearray) -> tuple[int, int] | None:
    """Where the first frame's payload begins and ends; None while the frame is not whole."""
    if len(received) < 2:
        return None
    size, start = received[1], 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(received) < start:
            return None
        size = int.from_bytes(received[2:start], "big")
    return (start, start + size) if len(received) >= start + size else None
