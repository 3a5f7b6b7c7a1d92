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
EVENT = b"data: {"
LAST_CHUNK = b"0\r\n\r\n"
RECEIVE_BYTES = 1 << 18
LAST_WRITE_BYTES = 1 << 16
"""What fits goes out in one write; of more, so much is left for the last one."""
PATIENCE_SECONDS = 30.0

_UPGRADE = (
    f"GET {TARGET} HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Answer(NamedTuple):
    """``first`` is the seconds from the last write to the first event received, ``end`` those from the first byte sent
    to the last one received, ``sent`` the bytes sent, ``last`` the last event."""

    first: float
    end: float
    sent: int
    last: bytes


class Peer(Protocol):
    """One connection: ``ask`` sends a message and waits for the whole answer, ``leave`` for its first event only."""

    def ask(self, message: bytes) -> Answer: ...

    def leave(self, message: bytes) -> None: ...


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
        sent = _send(self._socket, frame)
        self._receive()
        first = time.perf_counter()
        last = self.hear_end()
        return Answer(first - sent, time.perf_counter() - began, len(frame), last)

    def send(self, message: bytes) -> None:
        """Send one text message and wait for nothing."""
        self._socket.sendall(_client_frame(message))

    def hear_end(self) -> bytes:
        """The next event that ends a turn, whichever lane's. Raises ``RuntimeError`` as ``ask`` does."""
        while not (last := _sound(self._message())).startswith(self._ends):
            pass
        return last

    def leave(self, message: bytes) -> None:
        """Send one text message and read on no further than its first event."""
        self._socket.sendall(_client_frame(message))
        _sound(self._message())

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
    """A kept-alive HTTP connection that POSTs for streams; an answer is over with the last chunk of its body."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def ask(self, message: bytes) -> Answer:
        """POST one body. Raises ``RuntimeError`` if the server fails the turn or refuses it."""
        request = _post(message)
        began = time.perf_counter()
        sent = _send(self._socket, request)
        received = self._first_event()
        first = time.perf_counter()
        while not received.endswith(LAST_CHUNK):
            received += _some(self._socket)
        end = time.perf_counter()
        last = _sound(_last_event(received))
        return Answer(first - sent, end - began, len(request), last)

    def leave(self, message: bytes) -> None:
        """POST one body and read on no further than its first event."""
        self._socket.sendall(_post(message))
        self._first_event()

    def _first_event(self) -> bytearray:
        """What has come once the first event is there, the head included."""
        received = bytearray()
        while EVENT not in received:
            received += _some(self._socket)
            if b"\r\n\r\n" in received and not received.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(received.decode())
        return received


@contextlib.contextmanager
def connected(port: int, *, room: int | None = None) -> Iterator[socket.socket]:
    """A connection to a port of this machine. ``room`` is how many bytes the system may keep for a client that does
    not read; as many as it likes, if left out."""
    with socket.socket() as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if room is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        connection.connect(("127.0.0.1", port))
        yield connection


def _send(connection: socket.socket, data: bytes) -> float:
    """Send everything; the time just before the last write. Just after it, the answer may be there already."""
    view = memoryview(data)
    connection.sendall(view[:-LAST_WRITE_BYTES])
    began = time.perf_counter()
    connection.sendall(view[-LAST_WRITE_BYTES:])
    return began


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise RuntimeError("the server has closed the connection")
    return data


def _sound(event: bytes) -> bytes:
    """The event, unless it says that the turn has failed."""
    if event.startswith(FAULTS):
        raise RuntimeError(event.decode())
    return event


def _post(message: bytes) -> bytes:
    head = f"POST {TARGET} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(message)}\r\n\r\n".encode() + message


def _last_event(answer: bytearray) -> bytes:
    """The last event of a whole answer that came in chunks."""
    body = bytearray()
    start = answer.index(b"\r\n\r\n") + 4
    while True:
        line_end = answer.index(b"\r\n", start)
        size = int(answer[start:line_end], 16)
        if not size:
            break
        body += answer[line_end + 2 : line_end + 2 + size]
        start = line_end + 2 + size + 2
    start = body.rindex(EVENT) + len(EVENT) - 1
    return bytes(body[start : body.index(b"\n", start)])


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
