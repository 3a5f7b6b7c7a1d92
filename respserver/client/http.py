"""The HTTP half: requests to one URL over kept connections, whole answers and event streams."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import SplitResult

import msgspec

from respserver.client.refusal import read_refusal
from respserver.client.wire import MESSAGE_BYTES, Json, ServerMessage, read_sse_data
from respserver.http11 import EventData, Link, Links
from respserver.schema.codec import decode, encode
from respserver.schema.response import Response

_response = msgspec.json.Decoder(Response)


class HttpSession:
    """Posts to one URL. Its errors are those of ``Client.create`` and ``Client.stream``."""

    def __init__(self, url: SplitResult, headers: dict[str, str], ssl_context: ssl.SSLContext | None) -> None:
        self._links = Links(url, headers, ssl_context)

    async def create(self, fields: Json) -> Response:
        """The whole response to one request."""
        async with self._exchange(fields) as link:
            body = await link.read(MESSAGE_BYTES)
        return decode(_response, body)

    @asynccontextmanager
    async def stream(self, fields: Json) -> AsyncIterator[AsyncIterator[ServerMessage]]:
        """The events of one request, for the length of an ``async with``."""
        async with self._exchange({**fields, "stream": True}) as link:
            events = _EventStream(link)
            yield events
            if events.is_done:
                await link.finish()

    async def open(self) -> None:
        """Make sure that the next request finds a connection. Raises ``ConnectionLost``."""
        await self._links.open()

    async def aclose(self) -> None:
        """Close the kept connections."""
        await self._links.aclose()

    @asynccontextmanager
    async def _exchange(self, fields: Json) -> AsyncIterator[Link]:
        """Send a request and give the connection with the answer's body still to be read."""
        async with self._links.post(encode(fields)) as (head, link):
            if not 200 <= head.status_code < 300:
                raise await read_refusal(head, link)
            yield link


class _EventStream:
    """SSE: the ``data`` of each block is an event."""

    def __init__(self, link: Link) -> None:
        self.is_done = False
        """Whether ``[DONE]`` has come."""
        self._data: EventData | None = EventData(link, MESSAGE_BYTES)
        """None once there is nothing more to read."""

    def __aiter__(self) -> _EventStream:
        return self

    async def __anext__(self) -> ServerMessage:
        text = await self._data.next() if self._data is not None else None
        if text is None or text == b"[DONE]":
            self.is_done = self.is_done or text is not None
            self._data = None
            raise StopAsyncIteration
        return read_sse_data(text)
