"""The two roads to a WebSocket: an upgrade as a connection's first request, and one behind a request on the same
connection, which reaches another library. Raw bytes on both, so that nothing is hidden by a client library."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import trio

from tests.support.live import addressed, off_lane
from tests.support.raw_websocket import CLOSE, CONTINUATION, PING, PONG, TEXT, RawClient, client_frame, request

FIRST, LATE = "first", "late"
ROADS = [FIRST, LATE]
PATIENCE = 10.0
"""Seconds of real time after which a client that waits has failed."""


class RawWire(RawClient):
    """A raw client that knows the frames of a turn. ``lane`` is the one that it speaks of, as for a ``Wire``."""

    lane: str | None = None

    async def send(self, message: str | bytes, pieces: int = 1) -> None:
        """One text message, in so many fragments, cut anywhere, also inside a character."""
        data = message.encode() if isinstance(message, str) else message
        size = -(-len(data) // pieces)
        cuts = [data[start : start + size] for start in range(0, len(data), size)]
        frames = [
            client_frame(CONTINUATION if index else TEXT, cut, final=index == len(cuts) - 1)
            for index, cut in enumerate(cuts)
        ]
        await self.stream.send_all(b"".join(frames))

    async def create(self, **fields: Any) -> None:
        await self.send(json.dumps(addressed({"type": "response.create", "model": "sim", **fields}, self.lane)))

    async def message(self) -> dict[str, Any]:
        """The next text message, which is JSON; pings on the way to it are answered."""
        while True:
            frame = await self.frame()
            if frame.opcode == TEXT:
                return off_lane(json.loads(frame.payload), self.lane)
            assert frame.opcode in (PING, PONG), frame
            if frame.opcode == PING:
                await self.stream.send_all(client_frame(PONG, frame.payload))

    async def until(self, *kinds: str) -> list[dict[str, Any]]:
        """The messages up to and with the first one of these types."""
        messages = [await self.message()]
        while messages[-1]["type"] not in kinds:
            messages.append(await self.message())
        return messages

    async def close_code(self) -> int | None:
        """Read to the close frame and answer it; its code, or None if the connection ends without one."""
        try:
            while True:
                frame = await self.frame()
                if frame.opcode == CLOSE:
                    await self.stream.send_all(client_frame(CLOSE, frame.payload[:2]))
                    return int.from_bytes(frame.payload[:2], "big")
        except (EOFError, trio.BrokenResourceError):
            return None


@contextlib.asynccontextmanager
async def raw_connection(server: Any, road: str = FIRST) -> AsyncIterator[RawWire]:
    """A connection that is ready for an upgrade by this road. All that happens on it has a deadline."""
    with trio.fail_after(PATIENCE):
        async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
            client = RawWire(stream)
            if road == LATE:
                await stream.send_all(b"GET /healthz HTTP/1.1\r\nHost: server.test\r\n\r\n")
                head = await client.head()
                (length,) = [line[16:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")]
                await client.take(int(length))
            yield client


@contextlib.asynccontextmanager
async def raw_wire(
    server: Any, road: str = FIRST, lane: str | None = None, **headers: str | None
) -> AsyncIterator[RawWire]:
    """An open raw WebSocket by this road."""
    async with raw_connection(server, road) as client:
        client.lane = lane
        await client.stream.send_all(request(**headers))
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        yield client
