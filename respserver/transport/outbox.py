"""``Outbox``: the stream that both libraries see, and the only writer of a connection's socket.

A write is synchronous: the bytes go to the socket at once if it takes them, else into a buffer that a writer task
drains. So a task may be cancelled wherever it waits and never cuts a frame, and a ready event costs a system call
and no scheduler pass (design.md section 4). Nothing here knows HTTP, WebSocket or what the bytes mean.
"""

from __future__ import annotations

import contextlib
import enum
import os
import socket as stdlib_socket
import struct
from typing import TypeAlias

import trio

Data: TypeAlias = bytes | bytearray | memoryview

SLICE_BYTES = 64 << 10
"""What the writer task offers a stream without partial writes (TLS) in one piece; the stall clock runs for each."""
LINGER_SECONDS = 2.0
QUIET_SECONDS = 0.1
"""A socket that is closed with unread input resets the peer, which then loses what we wrote last (a 413, a close
frame). So ``aclose`` reads on for a while: in all at most the first, and no longer than the second in silence."""
RECEIVE_BYTES = 64 << 10
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
WRITES_AT_ONCE = os.name == "posix"
"""Elsewhere a socket is not a file descriptor that ``os.write`` takes."""


class State(enum.Enum):
    """What an outbox still does."""

    OPEN = enum.auto()
    CLOSING = enum.auto()
    """``aclose`` was called: what is pending is written, no more is taken."""
    CLOSED = enum.auto()
    BROKEN = enum.auto()
    """The peer is gone or was given up; what was pending is dropped."""


class Outbox(trio.abc.HalfCloseableStream):
    """One connection's stream: synchronous writes, bounded waiting, a peer that stalls is given up.

    ``stream`` is the accepted stream (plain TCP, TLS, or any Trio stream); ``limit_bytes`` is how much may be pending
    before ``drain`` waits; ``write_seconds`` is how long the peer may take nothing of what is pending. ``run`` must be
    running in a nursery for what the socket does not take at once.
    """

    def __init__(self, stream: trio.abc.Stream, *, limit_bytes: int, write_seconds: float) -> None:
        self.limit_bytes = limit_bytes
        self._write_seconds = write_seconds
        self._stream = stream
        self._state = State.OPEN
        self._socket = _socket_of(stream)
        self._writes_at_once = WRITES_AT_ONCE and isinstance(stream, trio.SocketStream)
        self._prefix = b""
        self._queue = bytearray()
        self._pending = 0
        self._writer = trio.lowlevel.ParkingLot()
        self._waiters = trio.lowlevel.ParkingLot()
        self._closed = trio.Event()
        self._input_ended = trio.Event()
        self._heard = 0
        self._ended_ours = False
        self._reading = False
        self._scope = trio.CancelScope()

    @property
    def socket(self) -> trio.socket.SocketType:
        """The TCP socket below, also below TLS. Raises ``AttributeError`` for streams that have none."""
        if self._socket is None:
            raise AttributeError("this stream has no socket")
        return self._socket

    @property
    def is_tls(self) -> bool:
        """Whether the stream is encrypted."""
        return isinstance(self._stream, trio.SSLStream)

    @property
    def pending_bytes(self) -> int:
        """Bytes that were written here and that the socket has not taken yet."""
        return self._pending

    async def handshake(self) -> None:
        """Do the TLS handshake, if there is one. Raises ``trio.BrokenResourceError``."""
        if isinstance(self._stream, trio.SSLStream):
            await self._stream.do_handshake()

    # ----------------------------------------------------------------------------------------------- writing

    def write(self, data: Data) -> None:
        """Send bytes, whole, after everything written before; never waits.

        Raises ``trio.BrokenResourceError`` if the peer is gone or was given up, ``trio.ClosedResourceError`` after
        ``aclose``.
        """
        if self._state is not State.OPEN:
            raise self._refusal()
        if self._writes_at_once and not self._pending:
            sent = self._write_now(data)
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
        self._queue += data
        self._pending += len(data)
        self._writer.unpark_all()

    async def drain(self) -> None:
        """Wait while more than ``limit_bytes`` are pending; returns at once, without a checkpoint, if there is room.

        Raises as ``write`` does.
        """
        while self._pending > self.limit_bytes:
            await self._waiters.park()
        if self._state is not State.OPEN:
            raise self._refusal()

    async def flush(self) -> None:
        """Wait until the socket has taken everything. Raises ``trio.BrokenResourceError``."""
        while self._pending:
            await self._waiters.park()
        if self._state is State.BROKEN:
            raise self._refusal()

    async def send_all(self, data: Data) -> None:
        """Write and wait until everything is taken, so that the libraries feel a slow reader. Always a checkpoint."""
        self.write(data)
        if self._pending:
            await self.flush()
        else:
            await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until nothing is pending."""
        await trio.lowlevel.checkpoint()
        await self.flush()

    async def send_eof(self) -> None:
        """Write what is pending and end our side. TLS has no half-close: there it only writes what is pending."""
        await self.flush()
        if self._state is State.OPEN:
            await self._shut_writing()

    async def run(self) -> None:
        """The writer task: drains what the socket did not take at once, until the outbox is closed or broken."""
        try:
            with self._scope:
                while self._state in (State.OPEN, State.CLOSING):
                    if self._queue:
                        await self._write_queue()
                    else:
                        await self._writer.park()
        finally:
            if self._state is not State.CLOSED:
                self.abort()
                await trio.aclose_forcefully(self._stream)

    # ----------------------------------------------------------------------------------------------- reading

    def prepend(self, data: bytes) -> None:
        """Put bytes in front of what is read next, as when a head was peeked at."""
        self._prefix = data + self._prefix

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bytes from the peer; empty at its end. Raises as Trio streams do."""
        if self._state is State.CLOSING:  # ``aclose`` is the reader now
            await self._closed.wait()
            raise trio.ClosedResourceError("this side was closed")
        if self._prefix:
            await trio.lowlevel.checkpoint()
            size = len(self._prefix) if max_bytes is None else max_bytes
            data, self._prefix = self._prefix[:size], self._prefix[size:]
            return data
        self._reading = True
        try:
            return await self._receive_or_discard(max_bytes)
        finally:
            self._reading = False

    async def wait_ended(self) -> None:
        """Wait until nothing more will be read: the peer has ended its side, or the connection is over."""
        await self._input_ended.wait()

    # ------------------------------------------------------------------------------------------------ ending

    async def aclose(self) -> None:
        """Close in order: write what is pending, end our side, let the peer read it, close the socket.

        Takes at most ``write_seconds`` and a little; when cancelled it closes at once. A call beside another waits for
        the socket to be closed.
        """
        if self._state is not State.OPEN:
            if self._state is State.CLOSING:
                await self._closed.wait()
            await trio.lowlevel.checkpoint()
            return
        self._state = State.CLOSING
        try:
            with trio.move_on_after(self._write_seconds):
                await self.flush()
                await self._shut_writing()
                await self._linger()
                if self.is_tls:
                    await self._stream.aclose()  # says so to the peer (close_notify)
        except trio.BrokenResourceError:
            pass  # the peer went first, which is one way of closing
        finally:
            await self._close_stream()

    def abort(self) -> None:
        """Give the peer up: drop what is pending and reset the connection. Every waiter and later write fails."""
        if self._state in (State.CLOSED, State.BROKEN):
            return
        self._state = State.BROKEN
        self._queue.clear()
        self._pending = 0
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_LINGER, RESET_ON_CLOSE)
            self._socket.close()
        self._scope.cancel()
        self._wake()

    # ----------------------------------------------------------------------------------------------- private

    def _write_now(self, data: Data) -> int:
        try:
            return os.write(self.socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.abort()
            raise trio.BrokenResourceError("the peer is gone") from error

    async def _write_queue(self) -> None:
        """Take the whole queue and write it, part by part; ``write`` may fill a new one meanwhile."""
        taken, self._queue = self._queue, bytearray()
        view = memoryview(taken)
        while view:
            sent = await self._write_part(view[:SLICE_BYTES])
            if self._state is State.BROKEN:
                return
            view = view[sent:]
            self._pending -= sent
            self._waiters.unpark_all()

    async def _write_part(self, part: memoryview) -> int:
        with trio.move_on_after(self._write_seconds):
            try:
                if self._writes_at_once:
                    return await self.socket.send(part)
                await self._stream.send_all(part)
                return len(part)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        self.abort()
        return 0

    async def _receive_or_discard(self, max_bytes: int | None) -> bytes:
        """Receive; once ``aclose`` was called beside us, read on for it and hand on nothing but the end."""
        while True:
            data = await self._receive(max_bytes)
            if not data or self._state is not State.CLOSING:
                return data

    async def _receive(self, max_bytes: int | None) -> bytes:
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        except trio.ClosedResourceError:
            if self._state is State.BROKEN:
                raise trio.BrokenResourceError("the connection was given up") from None
            raise
        except trio.BrokenResourceError:
            self._input_ended.set()
            raise
        self._heard += 1
        if not data:
            self._input_ended.set()
        return data

    async def _shut_writing(self) -> None:
        """End our side, once: a close beside another must not meet it inside the stream."""
        if self._ended_ours or not isinstance(self._stream, trio.abc.HalfCloseableStream):
            return
        self._ended_ours = True
        try:
            await self._stream.send_eof()
        except trio.ClosedResourceError:
            raise trio.BrokenResourceError("the connection was given up") from None

    async def _linger(self) -> None:
        """Let the peer take the last bytes: read on until it ends, falls silent, or has had its time."""
        with trio.move_on_after(LINGER_SECONDS):
            quiet = False
            while not quiet and not self._input_ended.is_set():
                heard = self._heard
                with trio.move_on_after(QUIET_SECONDS):
                    await self._read_on()
                quiet = heard == self._heard

    async def _read_on(self) -> None:
        if self._reading:  # another task reads: it discards for us
            await self._input_ended.wait()
        else:
            await self._receive(RECEIVE_BYTES)

    async def _close_stream(self) -> None:
        if self._pending:
            self.abort()
        if self._state is State.CLOSING:
            self._state = State.CLOSED
        self._scope.cancel()
        self._wake()
        try:
            await trio.aclose_forcefully(self._stream)
        finally:
            self._closed.set()

    def _wake(self) -> None:
        self._waiters.unpark_all()
        self._writer.unpark_all()
        self._input_ended.set()
        if self._state is State.BROKEN:
            self._closed.set()

    def _refusal(self) -> trio.BrokenResourceError | trio.ClosedResourceError:
        if self._state is State.BROKEN:
            return trio.BrokenResourceError("the peer is gone or took nothing for too long")
        return trio.ClosedResourceError("this side was closed")


def _socket_of(stream: trio.abc.Stream) -> trio.socket.SocketType | None:
    below = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    return below.socket if isinstance(below, trio.SocketStream) else None
