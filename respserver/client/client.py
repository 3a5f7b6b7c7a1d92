"""One server, over both transports."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from respserver.client.connection import Connection
from respserver.client.dial import dropping, open_nursery
from respserver.client.http import HttpSession
from respserver.client.rollout import Rollout
from respserver.client.upgrade import upgrade
from respserver.client.wire import Item, ServerMessage, authorization, responses_url
from respserver.http11 import open_stream
from respserver.schema.response import Response


class Client:
    """Talks to one server.

    ``base_url`` is what the SDKs take, as in ``http://127.0.0.1:8080/v1``; ``ssl_context`` replaces the default one
    for ``https``. Enter it as a context manager, or call ``aclose``, if you use the HTTP methods: their connections are
    kept for the next request. Raises ``ConfigError`` for a URL that isn't HTTP's, or a key that no header can carry.

    Connecting has a deadline. An answer has none, since a model may think for as long as it likes: put
    ``trio.fail_after`` around what shall not take longer.
    """

    def __init__(self, base_url: str, api_key: str | None = None, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.base_url = base_url
        self._websocket_url = responses_url(base_url, websocket=True)
        self._headers = authorization(api_key)
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

        Raises ``ApiError`` if the server refuses the upgrade, ``ConnectionLost`` if there is no answer, or none of a
        WebSocket.
        """
        stream = await open_stream(self._websocket_url, self._ssl_context)
        async with open_nursery() as nursery, dropping(stream):
            ws = await upgrade(stream, self._websocket_url, self._headers)
            nursery.start_soon(ws.run)
            connection = Connection(ws)
            try:
                yield connection
            finally:
                await connection.aclose()

    async def create(self, **fields: Any) -> Response:  # Any: the server's to judge, as below
        """POST a request and wait for the whole response.

        Raises ``ApiError`` for an error answer, an ``InvalidRequest`` if what came is no Response that the schema
        knows, ``ConnectionLost`` if nothing whole came, ``AnswerTooLarge`` past a gigabyte.
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
