"""WebSocket on a connection of our own: trio-websocket reads and answers control frames, we write the data frames.

The handshake is admitted or refused before it is answered. Data frames go to the outbox as ready bytes, past
``send_message`` and its scheduler passes; ping, pong and close frames are the library's and pass the same outbox
through ``ControlStream``, which sees the close frame so that nothing follows it. No extension and no subprotocol is
accepted. What the messages mean is the session's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio
import trio_websocket

from respserver.config import Limits
from respserver.errors import ApiError
from respserver.logger import get_logger
from respserver.message_socket import SocketClosed
from respserver.transport.frame_meter import FrameMeter
from respserver.transport.head import BadHandshake, Head, answer
from respserver.transport.lifetime import (
    CLOSE_SECONDS,
    INTERNAL,
    NO_CLOSE_FRAME,
    NOT_TEXT,
    TOO_BIG,
    UNSUPPORTED,
    Admit,
    Run,
    is_too_far_behind,
    run_to_close,
)
from respserver.transport.outbox import Data, Outbox
from respserver.transport.refusals import log_refusal

log = get_logger("respserver.transport")

T = TypeVar("T")

RECEIVE_BYTES = 1 << 18
"""The library's own default of 4 KiB makes a large message many scheduler passes."""
CONTROL_BYTES = 64 << 10
"""Pongs that may pile up for a peer that pings and reads nothing, before its pings are no longer read."""
CONTROL_PAYLOAD_BYTES = 125
CLOSE_OPCODE_BYTE = 0x88
"""The first byte of a close frame; a data frame's is 0x81, an HTTP answer's an H (RFC 6455 section 5.2)."""


async def serve_websocket(
    outbox: Outbox,
    head: Head,
    *,
    limits: Limits,
    admit: Admit[T],
    run: Run[T],
) -> None:
    """Serve one upgrade from its handshake to its end.

    ``admit`` gets the request target and the headers (lower-case names) and decides before the 101: an error is
    answered as plain HTTP, anything else is handed to ``run`` with the socket. The connection ends when ``run`` does:
    with 1000, or with 1011 if it raised, which is logged and goes no further.
    """
    admitted = admit(head.target, head.headers)
    if isinstance(admitted, ApiError):
        await outbox.send_all(answer(admitted))
        return
    stream = ControlStream(outbox, head.raw, limits.message_bytes)
    async with trio.open_nursery() as nursery:
        reading: trio.Nursery = await nursery.start(_host_reader, stream)
        connection = await _shake_hands(reading, stream, limits)
        if connection is not None:
            socket = WebSocket(connection, stream, limits)
            nursery.start_soon(socket.keep_alive)
            await run_to_close(run, socket, admitted)
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def _host_reader(stream: ControlStream, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """A nursery for the library's reader task, whose faults end the socket and leave the session to notice.

    It raises on a ping behind a close frame, and on a host name that it cannot decode.
    """
    try:
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await stream.accepted.wait()
    except* Exception as faults:  # noqa: BLE001 - see above; nothing that a client sends may end more than its socket
        stream.fail(faults)


async def _shake_hands(
    nursery: trio.Nursery, stream: ControlStream, limits: Limits
) -> trio_websocket.WebSocketConnection | None:
    """The open connection, or None if the library has refused the handshake: then it closes and never returns.

    None, too, if the peer has gone while it was answered.
    """
    gone = contextlib.suppress(trio_websocket.ConnectionClosed)
    with trio.move_on_after(limits.handshake_seconds) as scope, gone:
        stream.on_close = scope.cancel
        request = await trio_websocket.wrap_server_stream(
            nursery, stream, max_message_size=limits.message_bytes, receive_buffer_size=RECEIVE_BYTES
        )
        connection = await request.accept()
        stream.on_close = None
        stream.accepted.set()
        return connection
    return None


def frame(message: bytes) -> bytes:
    """A whole text message as one server frame: final, unmasked (RFC 6455 section 5.2)."""
    size = len(message)
    if size < 126:
        return b"\x81" + size.to_bytes(1, "big") + message
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + message
    return b"\x81\x7f" + size.to_bytes(8, "big") + message


def close_frame(code: int, reason: str) -> bytes:
    """A server's close frame; a reason that is too long for a control frame is left out."""
    payload = code.to_bytes(2, "big") + reason.encode()
    if len(payload) > CONTROL_PAYLOAD_BYTES:
        payload = payload[:2]
    return bytes((CLOSE_OPCODE_BYTE, len(payload))) + payload


class ControlStream(trio.abc.Stream):
    """The outbox as the library sees it: the head first, what is behind it only once the handshake is accepted.

    The library would drop bytes that come before that. Its writes wait only when very many pile up, so that its reader
    stays with the peer while the outbox is full.
    """

    def __init__(self, outbox: Outbox, head: bytes, message_bytes: int) -> None:
        self.outbox = outbox
        self.accepted = trio.Event()
        self.ended = trio.Event()
        self.closing = False
        """A close frame was sent, or the stream closed: no data frame may follow."""
        self.heard_at = trio.current_time()
        self.on_close: Callable[[], None] | None = None
        self._head = head
        self._piled_up = 0
        self._meter = FrameMeter(message_bytes)
        self._received, self._start = b"", 0

    @property
    def excess(self) -> str:
        """Over which limit a message of the peer's was, if one was."""
        return self._meter.excess

    async def send_all(self, data: Data) -> None:
        """Write; wait only if too many control frames are pending."""
        if data[0] == CLOSE_OPCODE_BYTE:
            self.closing = True
        self.outbox.write(data)
        crowded = self.outbox.pending_bytes > self.outbox.limit_bytes
        self._piled_up = self._piled_up + len(data) if crowded else 0
        if self._piled_up > CONTROL_BYTES:
            await self.outbox.drain()
        await trio.lowlevel.checkpoint()

    def fail(self, faults: ExceptionGroup[Exception]) -> None:
        """End the connection after a fault of the reader, with a last word if none was said."""
        if self.closing:
            return
        if self.accepted.is_set():
            log.info("websocket_fault", error=repr(faults.exceptions))
            last_word = close_frame(INTERNAL, "")
        else:
            refusal = BadHandshake()
            log_refusal(refusal, "GET")
            last_word = answer(refusal)
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            self.outbox.write(last_word)
        self.end()

    def end(self) -> None:
        """Let nothing more be written but what is pending."""
        if self.on_close is not None:
            self.on_close()
        self.closing = True
        self.ended.set()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait as the outbox does."""
        await self.outbox.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The head, then the peer's bytes."""
        if self._head:
            await trio.lowlevel.checkpoint()
            head, self._head = self._head, b""
            return head
        await self.accepted.wait()
        if self._received:
            await trio.lowlevel.checkpoint()
        else:
            self._received = await self.outbox.receive_some(max_bytes)
            self.heard_at = trio.current_time()
        start, self._start = self._start, self._meter.portion(self._received, self._start)
        if self.excess:
            self.end()
            return b""
        portion = self._received[start : self._start]
        if self._start == len(self._received):
            self._received, self._start = b"", 0
        return portion

    async def aclose(self) -> None:
        """Close the outbox in order, in a few seconds at most."""
        self.end()
        with trio.move_on_after(CLOSE_SECONDS):
            await self.outbox.aclose()


class WebSocket:
    """An open connection as the session sees it (``message_socket.Socket``)."""

    def __init__(self, connection: trio_websocket.WebSocketConnection, stream: ControlStream, limits: Limits) -> None:
        self._connection = connection
        self._stream = stream
        self._outbox = stream.outbox
        self._limits = limits
        self._closed: SocketClosed | None = None
        stream.on_close = self._say_why

    async def receive(self) -> str:
        """The next text message. A binary one closes with 1003, one over a limit with 1009."""
        try:
            message = await self._connection.get_message()
        except trio_websocket.ConnectionClosed:
            if self._connection.closed is None:  # the reader has failed, and ``_host_reader`` is about to say so
                await self._stream.ended.wait()
            raise self._end() from None
        if isinstance(message, bytes):
            await self.close(UNSUPPORTED, NOT_TEXT)
            raise self._end()
        return message

    def send_many(self, messages: Sequence[bytes]) -> None:
        """Frame messages and write them in one go. A peer that is too far behind is given up instead."""
        if self._stream.closing or self._connection.closed is not None:
            raise self._end()
        if is_too_far_behind(self._outbox.pending_bytes, self._limits):
            log.info("connection_dropped", reason="too far behind")
            self._outbox.abort()
        try:
            self._outbox.write(b"".join(map(frame, messages)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise self._end() from None

    async def drain(self) -> None:
        """Wait while more than the outbox's limit is pending."""
        try:
            await self._outbox.drain()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise self._end() from None

    async def close(self, code: int, reason: str = "") -> None:
        """Send a close frame, wait a few seconds for the answer, close the connection."""
        if self._stream.closing or self._connection.closed is not None:
            return
        self._closed = SocketClosed(code, reason)
        with trio.move_on_after(CLOSE_SECONDS):  # in the end the library closes the stream, which is at once then
            await self._connection.aclose(code, reason or None)

    async def keep_alive(self) -> None:
        """Ping the peer at intervals and give it up if it neither answers nor sends anything else for too long.

        A peer with bytes still pending is not judged here: the outbox does that.
        """
        while self._limits.ping_seconds:
            await trio.sleep(self._limits.ping_seconds)
            with trio.move_on_after(self._limits.pong_seconds) as scope:
                try:
                    await self._connection.ping()
                except trio_websocket.ConnectionClosed:
                    return
            silence = trio.current_time() - self._stream.heard_at
            if scope.cancelled_caught and silence >= self._limits.pong_seconds and not self._outbox.pending_bytes:
                log.debug("connection_dropped", reason="no pong in time")
                self._outbox.abort()
                return

    def _say_why(self) -> None:
        """After a message over a limit, or when the library closes without a word because the peer breaks the
        protocol, the close frame is ours."""
        if self._stream.closing:
            return
        if self._stream.excess:
            self._closed = SocketClosed(TOO_BIG, self._stream.excess)
        closed = self._closed or self._connection.closed
        if closed is None or closed.code is None or closed.code == NO_CLOSE_FRAME:
            return
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            self._outbox.write(close_frame(closed.code, closed.reason or ""))

    def _end(self) -> SocketClosed:
        """Why the connection is over."""
        if self._closed is not None:
            return self._closed
        closed = self._connection.closed
        if closed is None or closed.code == NO_CLOSE_FRAME:
            return SocketClosed()
        return SocketClosed(closed.code, closed.reason or "")
