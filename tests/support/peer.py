"""A WebSocket client for soaks: it costs little, and dies in every way that there is."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from typing import Any

import trio

from tests.support.live import ENDS, Frame
from tests.support.raw_websocket import CLOSE, PING, PONG, TEXT, RawClient, client_frame, close_frame, request

HOWS = ("with a close frame", "with a reset", "without a word")
HUNG_UP = struct.pack("ii", 1, 0)
"""``SO_LINGER`` of a socket whose close is a reset."""


class Gone(Exception):
    """The server has ended the connection, or takes no more of them. ``code`` is its close code."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code


class Peer:
    """A client on one socket that says and hears whole messages, and can die in every way there is. One task hears, any
    task may say something."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._raw = RawClient(stream)
        self._writing = trio.Lock()

    async def shake_hands(self) -> None:
        """Raises ``Gone``."""
        try:
            await self._stream.send_all(request())
            head = await self._raw.head()
        except (EOFError, trio.BrokenResourceError):
            raise Gone from None
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Gone

    async def say(self, kind: str, **fields: Any) -> None:
        message = {"type": kind, "model": "sim", **fields} if kind == "response.create" else {"type": kind, **fields}
        try:
            async with self._writing:
                await self._stream.send_all(client_frame(TEXT, json.dumps(message).encode()))
        except trio.BrokenResourceError:
            raise Gone from None

    async def hear(self) -> Frame:
        """The next event. Raises ``Gone``."""
        while True:
            try:
                frame = await self._raw.frame()
            except (EOFError, trio.BrokenResourceError):
                raise Gone from None
            if frame.opcode == CLOSE:
                raise Gone(int.from_bytes(frame.payload[:2], "big"))
            if frame.opcode == PING:
                async with self._writing:
                    await self._stream.send_all(client_frame(PONG, frame.payload))
            if frame.opcode == TEXT:
                event: Frame = json.loads(frame.payload)
                return event

    async def hear_step(self) -> Frame:
        """The event that ends the step."""
        while (event := await self.hear())["type"] not in ENDS:
            pass
        return event

    async def die(self, how: str) -> None:
        if how == "with a close frame":
            with contextlib.suppress(trio.BrokenResourceError):
                await self._stream.send_all(close_frame(1000))
        elif how == "with a reset":
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HUNG_UP)
        await self._stream.aclose()
