"""One WebSocket and one turn on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from respserver.client.websocket import WebSocket
from respserver.client.wire import (
    END_TYPES,
    Item,
    Json,
    ServerMessage,
    api_error,
    event_type,
    read_frame,
)
from respserver.errors import ConnectionLost
from respserver.schema.codec import encode

CLEAN_CODES = (1000, 1001)
"""Closes that end an iteration; any other one cuts it."""
LIMIT_REACHED = "websocket_connection_limit_reached"
"""The code that says that a socket is too old."""


class Connection:
    """One WebSocket, made by ``Client.connect``. Iterating gives every event until the socket closes.

    An iteration ends with a server that is done or going away (close codes 1000 and 1001), or with your own ``aclose``;
    any other end, above all a broken connection (1006), raises ``ConnectionLost``.

    There is one stream of events: read it from one task, by one of iteration, ``turn`` and ``Rollout`` at a time.
    To run lanes side by side, ``send`` creates with a ``stream_id`` each and sort what iteration gives by theirs.
    """

    def __init__(self, ws: WebSocket) -> None:
        self._ws = ws
        self._is_left = False

    @property
    def close_code(self) -> int | None:
        """The close code, or None while the socket is open."""
        closed = self._ws.closed
        return closed.code if closed else None

    @property
    def close_reason(self) -> str | None:
        """The text that came with the close code."""
        closed = self._ws.closed
        return closed.reason if closed else None

    def check(self) -> None:
        """Raise ``ConnectionLost`` if the socket is already known to be closed."""
        self._ws.check()

    async def send(self, event: Item) -> None:
        """Send one client event. Raises ``ConnectionLost``."""
        await self.send_text(encode(event).decode())

    async def send_text(self, text: str) -> None:
        """Send a text message as it is, also one that is no event. Raises ``ConnectionLost``.

        If it is cancelled while the server doesn't read, the connection is lost: half a message may be out.
        """
        await self._ws.send(text)

    async def receive(self) -> ServerMessage:
        """The next event.

        Raises ``ConnectionLost`` once the socket is closed, an ``InvalidRequest`` for what is no JSON object.
        """
        return read_frame(await self._ws.receive())

    def __aiter__(self) -> AsyncIterator[ServerMessage]:
        return self

    async def __anext__(self) -> ServerMessage:
        try:
            return await self.receive()
        except ConnectionLost as lost:
            if lost.code not in CLEAN_CODES and not self._is_left:
                raise
            raise StopAsyncIteration from None

    async def create(self, **fields: Any) -> None:  # Any: the server's to judge
        """Send ``response.create`` and don't wait for anything."""
        await self.send({"type": "response.create", **fields})

    async def append(
        self, outputs: Sequence[Item], response_id: str | None = None, stream_id: str | None = None
    ) -> None:
        """Send ``response.append`` with items, the outputs of pending calls first, and don't wait for anything."""
        await self.send(_append(outputs, response_id, stream_id))

    def turn(self, **fields: Any) -> Turn:  # Any: as above
        """Create a response and iterate over its events."""
        return Turn(self, {"type": "response.create", **fields})

    def resume(self, outputs: Sequence[Item], response_id: str | None = None, stream_id: str | None = None) -> Turn:
        """Append what is still missing of a pause (prototype mode) and iterate over the events until the next."""
        return Turn(self, _append(outputs, response_id, stream_id))

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close with this code and wait a few seconds for the answer; leaving ``Client.connect`` closes with 1000."""
        self._is_left = True
        await self._ws.aclose(code, reason)


class Turn:
    """The events of one request, sent at the first step, up to and with the one after which the server waits.

    An error frame raises ``ApiError``, a socket that closes in between ``ConnectionLost``. One that says in the middle
    of the turn that the socket is too old is passed over: the turn may have time to end, and else there is a failed
    response or a close. It takes every event for its
    own, also what an earlier turn that was left early has still to come: then leave the connection as well.
    Not a generator: one that is left early would need closing, and there is nothing to close.
    """

    def __init__(self, connection: Connection, request: Json) -> None:
        self._connection = connection
        self._request: Json | None = request
        self._has_begun = False
        self._has_ended = False

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> ServerMessage:
        if self._has_ended:
            raise StopAsyncIteration
        if self._request is not None:
            request, self._request = self._request, None
            self._has_ended = True  # what could not be sent has no events to wait for
            await self._connection.send(request)
            self._has_ended = False
        event = await self._receive()
        self._has_begun = True
        self._has_ended = event_type(event) in END_TYPES
        return event

    async def _receive(self) -> ServerMessage:
        while event_type(event := await self._connection.receive()) == "error":
            error = api_error(encode(event), 500)
            if error.code != LIMIT_REACHED or not self._has_begun:
                self._has_ended = True
                raise error
        return event


def _append(outputs: Sequence[Item], response_id: str | None, stream_id: str | None) -> Json:
    event = {"type": "response.append", "input": outputs, "response_id": response_id, "stream_id": stream_id}
    return {name: value for name, value in event.items() if value is not None}
