"""Messages and control frames on one stream, on wsproto's frames.

Ours and not trio-websocket's, because a peer that is judged may do anything: it may ping during the close, ping without
reading the pongs, say goodbye and stay, go without a word. Whoever waits here is woken by all of that.
One task reads and never waits for the peer to read; writing needs the lock, and a write that was cut ends the socket.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import trio
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason

from respserver.client.dial import open_nursery
from respserver.client.wire import MESSAGE_BYTES
from respserver.errors import ConnectionLost
from respserver.http11 import Stream

CLOSE_SECONDS = 5.0
"""How long a server may take to answer a close, or to hang up after its own, before it is left without."""
RECEIVE_BYTES = 1 << 18
"""What a burst has brought is read at once."""
QUEUED_MESSAGES = 64
"""Messages parsed ahead of the reader, so that a burst doesn't switch tasks for every message."""


class Farewell(NamedTuple):
    """How a socket was closed: by the first close frame of either side, or by breaking (1006)."""

    code: int
    reason: str | None = None


BROKEN = Farewell(CloseReason.ABNORMAL_CLOSURE, "the connection broke")


class WebSocket:
    """One open WebSocket. ``run`` must run beside its users; the stream is its caller's to close."""

    def __init__(self, stream: Stream, behind: bytes = b"") -> None:
        self.closed: Farewell | None = None
        """None while it is open."""
        self._stream = stream
        self._frames = Frames(ConnectionType.CLIENT, trailing_data=behind)
        self._put, self._messages = trio.open_memory_channel[str | bytes](QUEUED_MESSAGES)
        self._parts: list[str | bytes | bytearray] = []
        self._size = 0
        self._writing = trio.StrictFIFOLock()
        self._pong = Pong()
        self._pong_is_due = trio.Event()
        self._is_over = trio.Event()

    async def run(self) -> None:
        """Read and answer until the socket has ended, by whomever."""
        try:
            async with open_nursery() as nursery:
                nursery.start_soon(self._answer_pings)
                with self._put:
                    end = await self._read()
                    self.closed = self.closed or Farewell(end.code, end.reason or None)
                with trio.move_on_after(CLOSE_SECONDS):
                    await self._leave(end)
                nursery.cancel_scope.cancel()
        finally:
            self._is_over.set()
            await trio.aclose_forcefully(self._stream)  # wakes a writer whom the server has stopped to listen to

    def check(self) -> None:
        """Raise ``ConnectionLost`` if it is closed."""
        if self.closed is not None:
            raise self._lost()

    async def send(self, text: str) -> None:
        """Send one message. Raises ``ConnectionLost``; if it is cancelled while it waits, the socket is broken."""
        await self._write(TextMessage(data=text))

    async def receive(self) -> str | bytes:
        """The next message. Raises ``ConnectionLost`` once there are no more."""
        try:
            return await self._messages.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError) as error:
            raise self._lost() from error

    async def aclose(self, code: int, reason: str) -> None:
        """Say goodbye and wait for the answer, for a few seconds; messages that nobody has received are dropped."""
        self._messages.close()
        with trio.move_on_after(CLOSE_SECONDS), suppress(ConnectionLost):
            if self.closed is None:
                self.closed = Farewell(code, reason or None)
                await self._write(CloseConnection(code=code, reason=reason))
            await self._is_over.wait()
        await trio.aclose_forcefully(self._stream)

    async def _read(self) -> CloseConnection:
        """Take in frames; gives what ends them: a frame of the peer's, or the one that it should be sent."""
        while True:
            for event in self._frames.events():
                if isinstance(event, CloseConnection):
                    return event
                if isinstance(event, TextMessage | BytesMessage):
                    self._size += len(event.data)
                    if self._size > MESSAGE_BYTES:
                        return CloseConnection(code=CloseReason.MESSAGE_TOO_BIG, reason=f"over {MESSAGE_BYTES} bytes")
                    await self._take(event)
                elif isinstance(event, Ping):
                    self._pong = event.response()
                    self._pong_is_due.set()
                    await trio.lowlevel.checkpoint()  # a flood of small frames must not keep everybody waiting
            if not (data := await self._receive()):
                return CloseConnection(code=BROKEN.code, reason=BROKEN.reason)
            self._frames.receive_data(data)

    async def _take(self, event: TextMessage | BytesMessage) -> None:
        if event.data:
            self._parts.append(event.data)
        if not event.message_finished:
            await trio.lowlevel.checkpoint()
            return
        # wsproto gives one type a message.
        message = b"".join(self._parts) if isinstance(event, BytesMessage) else "".join(self._parts)  # type: ignore[arg-type]
        self._parts, self._size = [], 0
        with suppress(trio.BrokenResourceError):  # we have said goodbye: only the answer is still of interest
            await self._put.send(message)

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(RECEIVE_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _leave(self, end: CloseConnection) -> None:
        """Answer the peer's close, then let it hang up first: closing with bytes unread could reset what we wrote."""
        if end.code != BROKEN.code:
            with suppress(ConnectionLost):
                await self._write(end.response())
        self._is_over.set()
        while await self._receive():
            pass

    async def _answer_pings(self) -> None:
        """The latest ping only, as RFC 6455 section 5.5.3 allows, when the peer is slower than its pings."""
        while True:
            await self._pong_is_due.wait()
            self._pong_is_due = trio.Event()
            with suppress(ConnectionLost):
                await self._write(self._pong)

    async def _write(self, event: Event) -> None:
        async with self._writing:
            if isinstance(event, CloseConnection):
                may_go = self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING)
            else:
                may_go = self.closed is None
            if not may_go:
                raise self._lost()
            data = self._frames.send(event)
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise self._lost() from error
            except BaseException:
                await trio.aclose_forcefully(self._stream)  # it may have been cut in the middle of a frame
                raise

    def _lost(self) -> ConnectionLost:
        code, reason = self.closed or BROKEN
        return ConnectionLost(f"the WebSocket is closed: {code} {reason or ''}".rstrip(), code)
