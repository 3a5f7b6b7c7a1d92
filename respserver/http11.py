"""HTTP/1.1 as a client, on h11: connections to one URL, kept between requests. The floor that the client and the
callers of foreign services share; it knows nothing of what is said.

Small and our own, because under Trio a stream of the usual clients can't be left early without its generators being
found by the garbage collector, which warns. Redirects are not followed, proxies and the environment not looked at:
nothing is reached but the host that the caller names.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import SplitResult

import h11
import trio

from respserver.errors import ConnectionLost, RespserverError

CONNECT_SECONDS = 10.0
FINISH_SECONDS = 1.0
"""How long the end of an answer may come after the last thing that was wanted for the connection to be kept."""
READ_BYTES = 1 << 16
KEPT_LINKS = 64
"""More idle connections than this are closed: a burst should not hold its sockets for ever."""

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
Dial = Callable[[str, int], Awaitable[trio.SocketStream]]
"""Connects to a host and a port; for callers that choose among a name's addresses. Raises as Trio's own does."""


class AnswerTooLarge(RespserverError):
    """The answer's body is over what the caller takes; the connection is not used again."""


def target_of(url: SplitResult) -> str:
    """What a request line names of a URL."""
    path = url.path or "/"
    return f"{path}?{url.query}" if url.query else path


def port_of(url: SplitResult) -> int:
    """The port of a URL, which goes without saying for most."""
    return url.port or (80 if url.scheme in ("http", "ws") else 443)


async def open_stream(
    url: SplitResult, ssl_context: ssl.SSLContext | None = None, dial: Dial = trio.open_tcp_stream
) -> Stream:
    """Connect to the host of a URL, with TLS if its scheme says so. Raises ``ConnectionLost``."""
    host = url.hostname or ""
    try:
        with trio.fail_after(CONNECT_SECONDS):
            plain = await dial(host, port_of(url))
            if url.scheme in ("http", "ws"):
                return plain
            context = ssl_context or ssl.create_default_context()
            stream = trio.SSLStream(plain, context, server_hostname=host, https_compatible=True)
            await _shake_hands(stream)
            return stream
    except (OSError, UnicodeError, trio.BrokenResourceError, trio.TooSlowError) as error:
        raise ConnectionLost(f"cannot connect to {url.netloc}: {error}") from error


class Links:
    """Posts to one URL, over connections that are kept for the next request and opened as they are needed.

    ``headers`` go with every request; ``ssl_context`` replaces the default one for ``https``, ``dial`` the way to its
    host.
    """

    def __init__(
        self,
        url: SplitResult,
        headers: dict[str, str],
        ssl_context: ssl.SSLContext | None = None,
        dial: Dial = trio.open_tcp_stream,
    ) -> None:
        self._url = url
        self._headers = {"host": url.netloc, "content-type": "application/json", **headers}
        self._ssl_context = ssl_context
        self._dial = dial
        self._idle: list[Link] = []

    @asynccontextmanager
    async def post(
        self, body: bytes, headers: dict[str, str] | None = None, method: str = "POST"
    ) -> AsyncIterator[tuple[h11.Response, Link]]:
        """Send a request, with more headers perhaps; gives the answer's head, and the connection that its body is read
        from.

        A connection whose answer was not read to its end is closed. Raises ``ConnectionLost``, as reading does.
        """
        link = await self._take()
        try:
            await link.send(target_of(self._url), {**self._headers, **(headers or {})}, body, method)
            yield await link.receive_head(), link
        finally:
            if link.start_again() and len(self._idle) < KEPT_LINKS:
                self._idle.append(link)
            else:
                await trio.aclose_forcefully(link.stream)

    async def open(self) -> None:
        """Make sure that there is a connection for the next request. Raises ``ConnectionLost``."""
        self._idle.append(await self._take())

    async def aclose(self) -> None:
        """Close the kept connections; the next request opens new ones."""
        while self._idle:
            await trio.aclose_forcefully(self._idle.pop().stream)

    async def _take(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if not link.is_stale:
                return link
            await trio.aclose_forcefully(link.stream)
        return Link(await open_stream(self._url, self._ssl_context, self._dial))


class Link:
    """One connection and where HTTP stands on it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    @property
    def is_stale(self) -> bool:
        """Whether something waits to be read before anything was asked: the server has closed, or is out of step."""
        below = self.stream.transport_stream if isinstance(self.stream, trio.SSLStream) else self.stream
        return below.socket.is_readable()

    async def send(self, target: str, headers: dict[str, str], body: bytes, method: str = "POST") -> None:
        """Send a whole request at once."""
        head = h11.Request(method=method, target=target, headers=[*headers.items(), ("content-length", str(len(body)))])
        await self._write(head, h11.Data(data=body))

    async def ask(self, target: str, headers: dict[str, str]) -> h11.Response | h11.InformationalResponse:
        """Send a GET whose headers propose another protocol; gives the answer's head, which is 101 or a refusal's."""
        await self._write(h11.Request(method="GET", target=target, headers=[*headers.items()]))
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
                return event

    @property
    def behind(self) -> bytes:
        """What has come behind a 101: it is the other protocol's."""
        return self._http.trailing_data[0]

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

    async def read(self, limit: int | None = None) -> bytes:
        """All that is left of the body. Raises ``AnswerTooLarge`` once it is over ``limit`` bytes."""
        body = bytearray()
        while part := await self.read_some():
            body += part
            if limit is not None and len(body) > limit:
                raise AnswerTooLarge(f"the answer is larger than {limit} bytes")
        return bytes(body)

    async def finish(self) -> None:
        """Read to the end of the answer, if that comes soon, so that the connection can be kept."""
        with trio.move_on_after(FINISH_SECONDS), suppress(ConnectionLost):  # all that was wanted is there
            await self.read()

    def start_again(self) -> bool:
        """Make ready for the next request; False if the connection can't take one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _write(self, *events: h11.Event) -> None:
        data = [self._http.send(event) or b"" for event in (*events, h11.EndOfMessage())]
        with _as_lost():
            await self.stream.send_all(b"".join(data))

    async def _next(self) -> h11.Event:
        with _as_lost():
            while True:
                event = self._http.next_event()
                if not isinstance(event, type):
                    return event
                self._http.receive_data(bytes(await self.stream.receive_some(READ_BYTES)))


class EventData:
    """Reads an event stream (SSE): the data of each block. Names, ids and comments are passed over.

    An event over ``limit`` bytes raises ``AnswerTooLarge``.
    """

    def __init__(self, link: Link, limit: int) -> None:
        self._link = link
        self._limit = limit
        self._received = bytearray()
        self._searched = 0

    async def next(self) -> bytes | None:
        """The next block's data; None at the end, where an unfinished block is dropped."""
        data: list[bytes] = []
        size = 0
        while (line := await self._line(self._limit - size)) is not None:
            if line.startswith(b"data:"):
                data.append(line.removeprefix(b"data:").removeprefix(b" "))
                size += len(line)
            elif not line and data:
                return b"\n".join(data)
        return None

    async def _line(self, limit: int) -> bytes | None:
        while (end := self._received.find(b"\n", self._searched)) < 0:
            self._searched = len(self._received)
            more = await self._link.read_some()
            if not more:
                return None
            self._received += more
            if self._searched > limit:
                raise AnswerTooLarge(f"an event of the answer is larger than {self._limit} bytes")
        line = bytes(self._received[:end]).removesuffix(b"\r")
        del self._received[: end + 1]
        self._searched = 0
        return line


async def _shake_hands(stream: trio.SSLStream[trio.SocketStream]) -> None:
    """Do it here, where failing is failing to connect, not at the first byte."""
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


@contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except (trio.BrokenResourceError, h11.RemoteProtocolError) as error:
        raise ConnectionLost(f"the HTTP connection broke: {error}") from error
