"""A socket without a network, for sessions: what a client sends goes in, what the server sends comes out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import trio

from respserver.message_socket import SocketClosed


class FakeSocket:
    """Fulfils ``message_socket.Socket``. ``code`` is set once the session has closed it."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._to_server, self._from_client = trio.open_memory_channel[str](math.inf)
        self._to_client, self._from_server = trio.open_memory_channel[bytes](math.inf)

    async def receive(self) -> str:
        try:
            return await self._from_client.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise SocketClosed(self.code) from None

    def send_many(self, messages: Sequence[bytes]) -> None:
        if self.code is not None:
            raise SocketClosed(self.code)
        for message in messages:
            self._to_client.send_nowait(message)

    async def drain(self) -> None:
        await trio.lowlevel.checkpoint()

    async def close(self, code: int, reason: str = "") -> None:
        self.code = code
        self._to_server.close()
        self._to_client.close()

    # The client's side.

    def say(self, frame: dict[str, Any] | str) -> None:
        self._to_server.send_nowait(frame if isinstance(frame, str) else json.dumps(frame))

    def leave(self) -> None:
        """The peer is gone, without a close frame."""
        self._to_server.close()

    @property
    def unheard(self) -> int:
        """Messages that came and were not heard yet."""
        return self._from_server.statistics().current_buffer_used

    async def hear(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self._from_server.receive())
        return frame

    async def hear_step(self) -> list[dict[str, Any]]:
        """All frames up to the one that ends the step."""
        ends = {"response.completed", "response.failed", "response.incomplete", "response.done", "error"}
        frames = [await self.hear()]
        while frames[-1]["type"] not in ends:
            frames.append(await self.hear())
        return frames
