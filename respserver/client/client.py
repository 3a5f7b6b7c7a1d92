"""One server, over both transports."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio
import trio_websocket

from respserver.client.connection import Connection
from respserver.client.dial import dropping, open_nursery
from respserver.client.http import HttpSession
from respserver.client.rollout import Rollout
from respserver.client.wire import Item, ServerMessage, api_error, responses_url
from respserver.errors import ConnectionLost
from respserver.http11 import CONNECT_SECONDS, Stream, open_stream, target_of
from respserver.schema.response import Response

MESSAGE_BYTES = 1 << 30
"""Largest message taken: no real one comes near; the terminal event of a long rollout has several MB."""
RECEIVE_BYTES = 1 << 18
"""trio-websocket's 4 KiB cost a system call each; this reads what a burst has brought at once."""
QUEUED_MESSAGES = 64
"""Messages parsed ahead of the reader, so that a burst doesn't switch tasks for every message."""


class Client:
    """Talks to one server.

    ``base_url`` is what the SDKs take, as in ``http://127.0.0.1:8080/v1``; ``ssl_context`` replaces the default one
    for ``https``. Enter it as a context manager, or call ``aclose``, if you use the HTTP methods: their connections are
    kept for the next request. Raises ``ConfigError`` for a URL that isn't HTTP's.
    """

    def __init__(self, base_url: str, api_key: str | None = None, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.base_url = base_url
        self._websocket_url = responses_url(base_url, websocket=True)
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._ssl_context = ssl_context
        self._http = HttpSession(responses_url(base_url, websocket=False), self._headers, ssl_context)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the kept HTTP connections. WebSockets close with their own ``async with``."""
        await self._http.aclose()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Open a WebSocket for the length of an ``async with``.

        Raises ``ApiError`` if the server refuses the upgrade, ``ConnectionLost`` if there is no answer.
        """
        stream = await open_stream(self._websocket_url, self._ssl_context)
        try:
            # The socket is ours to close: the library doesn't do it when the server refuses or is the first to close.
            async with open_nursery() as nursery, dropping(stream):
                connection = Connection(await self._upgrade(nursery, stream))
                try:
                    yield connection
                finally:
                    await connection.aclose()
        except trio_websocket.ConnectionRejected as error:
            raise api_error(error.body or b"", error.status_code, error.headers) from error

    async def create(self, **fields: Any) -> Response:  # Any: the server's to judge, as below
        """POST a request and wait for the whole response.

        Raises ``ApiError`` for an error answer, an ``InvalidRequest`` if what came is no Response that the schema
        knows, ``ConnectionLost`` if nothing whole came.
        """
        return await self._http.create(fields)

    def stream(self, **fields: Any) -> AbstractAsyncContextManager[AsyncIterator[ServerMessage]]:
        """POST a streaming request; gives an iterator of its events, which ends with the stream.

        A context manager, so that leaving early closes the connection and with it the turn. Raises what ``create``
        raises; the iterator raises ``ConnectionLost`` if the stream breaks.
        """
        return self._http.stream(fields)

    @asynccontextmanager
    async def rollout(self, input: str | Sequence[Item], **options: Any) -> AsyncIterator[Rollout]:
        """Open a WebSocket and drive one tool loop on it; arguments are those of ``Rollout``."""
        async with self.connect() as ws:
            yield Rollout(ws, input, **options)

    async def _upgrade(self, nursery: trio.Nursery, stream: Stream) -> trio_websocket.WebSocketConnection:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return await trio_websocket.wrap_client_stream(
                    nursery,
                    stream,
                    self._websocket_url.netloc,
                    target_of(self._websocket_url),
                    extra_headers=[(name.encode(), value.encode()) for name, value in self._headers.items()],
                    message_queue_size=QUEUED_MESSAGES,
                    max_message_size=MESSAGE_BYTES,
                    receive_buffer_size=RECEIVE_BYTES,
                )
        except trio.TooSlowError as error:
            raise ConnectionLost(f"{self._websocket_url.netloc} did not answer the upgrade") from error
