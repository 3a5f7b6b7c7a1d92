"""The HTTP half, on h11: requests to one URL over kept connections, whole answers and event streams.

A small client of our own, because under Trio a stream of the usual ones can't be left early without its generators
being found by the garbage collector, which warns.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import SplitResult

import h11
import msgspec
import trio

from respserver.client.dial import Stream, open_stream
from respserver.client.wire import ConnectionLost, Json, ServerMessage, api_error, read_sse_data, target_of
from respserver.schema.codec import decode, encode
from respserver.schema.response import Response

READ_BYTES = 1 << 16
FINISH_SECONDS = 1.0
"""How long the end of an answer may come after its ``[DONE]`` for the connection to be kept."""

_response = msgspec.json.Decoder(Response)


class HttpSession:
    """Posts to one URL. Its errors are those of ``Client.create`` and ``Client.stream``."""

    def __init__(self, url: SplitResult, headers: dict[str, str], ssl_context: ssl.SSLContext | None) -> None:
        self._url = url
        self._headers = {"host": self._url.netloc, "content-type": "application/json", **headers}
        self._ssl_context = ssl_context
        self._idle: list[_Link] = []

    async def create(self, fields: Json) -> Response:
        """The whole response to one request."""
        async with self._exchange(fields) as link:
            body = await link.read()
        return decode(_response, body)

    @asynccontextmanager
    async def stream(self, fields: Json) -> AsyncIterator[AsyncIterator[ServerMessage]]:
        """The events of one request, for the length of an ``async with``."""
        async with self._exchange({**fields, "stream": True}) as link:
            events = _EventStream(link)
            yield events
            if events.is_done:
                await link.finish()

    async def aclose(self) -> None:
        """Close the kept connections."""
        while self._idle:
            await trio.aclose_forcefully(self._idle.pop().stream)

    @asynccontextmanager
    async def _exchange(self, fields: Json) -> AsyncIterator[_Link]:
        """Send a request and give the connection with the answer's body still to be read."""
        link = await self._take()
        try:
            await link.send(target_of(self._url), self._headers, encode(fields))
            head = await link.receive_head()
            if not 200 <= head.status_code < 300:
                raise api_error(await link.read(), head.status_code, head.headers)
            yield link
        finally:
            if link.start_again():
                self._idle.append(link)
            else:
                await trio.aclose_forcefully(link.stream)

    async def _take(self) -> _Link:
        while self._idle:
            link = self._idle.pop()
            if not link.is_stale:
                return link
            await trio.aclose_forcefully(link.stream)
        return _Link(await open_stream(self._url, self._ssl_context))


class _Link:
    """One connection and where HTTP stands on it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    @property
    def is_stale(self) -> bool:
        """Whether something waits to be read before anything was asked: the server has closed, or is out of step."""
        below = self.stream.transport_stream if isinstance(self.stream, trio.SSLStream) else self.stream
        return below.socket.is_readable()

    async def send(self, target: str, headers: dict[str, str], body: bytes) -> None:
        """Send a whole request at once."""
        head = h11.Request(method="POST", target=target, headers=[*headers.items(), ("content-length", str(len(body)))])
        events: list[h11.Event] = [head, h11.Data(data=body), h11.EndOfMessage()]
        with _as_lost():
            await self.stream.send_all(b"".join(self._http.send(event) or b"" for event in events))

    async def receive_head(self) -> h11.Response:
        """The answer's status and headers; interim answers (1xx) are passed over."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event

    async def read_some(self) -> bytes:
        """More of the body, empty at its end."""
        event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def read(self) -> bytes:
        """All that is left of the body."""
        parts = []
        while part := await self.read_some():
            parts.append(part)
        return b"".join(parts)

    async def finish(self) -> None:
        """Read to the end of the answer, if that comes soon, so that the connection can be kept."""
        with trio.move_on_after(FINISH_SECONDS):
            await self.read()

    def start_again(self) -> bool:
        """Make ready for the next request; False if the connection can't take one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _next(self) -> h11.Event:
        with _as_lost():
            while True:
                event = self._http.next_event()
                if not isinstance(event, type):
                    return event
                self._http.receive_data(bytes(await self.stream.receive_some(READ_BYTES)))


class _EventStream:
    """SSE: the ``data`` of each block is an event; names, ids and comments tell nothing more."""

    def __init__(self, link: _Link) -> None:
        self.is_done = False
        """Whether ``[DONE]`` has come."""
        self._link = link
        self._received = bytearray()
        self._searched = 0

    def __aiter__(self) -> _EventStream:
        return self

    async def __anext__(self) -> ServerMessage:
        if self.is_done:
            raise StopAsyncIteration
        text = await self._data()
        if text == b"[DONE]":
            self.is_done = True
        if text is None or self.is_done:
            raise StopAsyncIteration
        return read_sse_data(text)

    async def _data(self) -> bytes | None:
        """The next block's data; None at the end, where an unfinished block is dropped."""
        data: list[bytes] = []
        while (line := await self._line()) is not None:
            if line.startswith(b"data:"):
                data.append(line.removeprefix(b"data:").removeprefix(b" "))
            elif not line and data:
                return b"\n".join(data)
        return None

    async def _line(self) -> bytes | None:
        while (end := self._received.find(b"\n", self._searched)) < 0:
            self._searched = len(self._received)
            more = await self._link.read_some()
            if not more:
                return None
            self._received += more
        line = bytes(self._received[:end]).removesuffix(b"\r")
        del self._received[: end + 1]
        self._searched = 0
        return line


@contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except (trio.BrokenResourceError, h11.RemoteProtocolError) as error:
        raise ConnectionLost(f"the HTTP connection broke: {error}") from error
