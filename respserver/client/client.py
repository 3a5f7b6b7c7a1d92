"""One server, over both transports."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import trio

from respserver.client.connection import Connection
from respserver.client.dial import dropping, open_nursery
from respserver.client.http import HttpSession
from respserver.client.road import Posts, Road, Sockets
from respserver.client.rollout import Rollout
from respserver.client.tools import Approve, Tool
from respserver.client.upgrade import upgrade
from respserver.client.wire import Item, ServerMessage, authorization, responses_url
from respserver.errors import ConfigError
from respserver.http11 import open_stream
from respserver.schema.response import Response


class Client:
    """Talks to one server.

    ``base_url`` is what the SDKs take, as in ``http://127.0.0.1:8080/v1``; ``ssl_context`` replaces the default one
    for ``https``. Enter it as a context manager, or call ``aclose``, if you use HTTP: its connections are kept for the
    next request. Rollouts that aren't entered themselves need the context manager, which closes them. Raises
    ``ConfigError`` for a URL that isn't HTTP's, or a key that no header can carry.

    Connecting has a deadline. An answer has none, since a model may think for as long as it likes: put
    ``trio.fail_after`` around what shall not take longer.
    """

    def __init__(self, base_url: str, api_key: str | None = None, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.base_url = base_url
        self._websocket_url = responses_url(base_url, websocket=True)
        self._headers = authorization(api_key)
        self._ssl_context = ssl_context
        self._http = HttpSession(responses_url(base_url, websocket=False), self._headers, ssl_context)
        self._roads: set[Road] = set()
        self._nursery: trio.Nursery | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Client:
        async with AsyncExitStack() as stack:
            self._nursery = await stack.enter_async_context(open_nursery())
            stack.push_async_callback(self.aclose)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:  # Any: the three of any exit
        await self._stack.__aexit__(*raised)

    async def aclose(self) -> None:
        """Close rollouts that are still open, and the kept HTTP connections. What ``connect`` gives closes itself."""
        self._nursery = None
        while self._roads:
            await self._roads.pop().aclose()
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

    def rollout(
        self,
        input: str | Sequence[Item],
        *,
        model: str,
        tools: Mapping[str, Tool],
        tool_definitions: Sequence[Item] | None = None,
        approve: Approve | None = None,
        transport: Literal["websocket", "http"] = "websocket",
        chained: bool = True,
        reconnects: bool = True,
        **fields: Any,  # Any: as above
    ) -> Rollout:
        """Drive one tool loop; iterating what this gives gives all its events.

            async with Client(url) as client:
                async for event in client.rollout("When?", model="demo", tools={"get_tide": get_tide}):
                    ...

        Each rollout has a connection of its own, in either design of the server. It is closed at the end of the
        client's block, or by ``aclose``; enter the rollout as well (``async with client.rollout(…) as events``) to
        have it closed at the end of yours, above all where you may leave the loop early. Then the client need not be
        entered. Steps go on from the response before (``chained``) or bring all items so far; over HTTP with
        ``store=False`` there is nothing to go on from, so they always do. After a loss it ``reconnects``.

        Connects at the first step, or on entering. Raises what ``connect`` raises, ``ConfigError`` for another
        ``transport``, ``RuntimeError`` at the first step if neither was entered, and what ``Rollout`` says, which also
        explains the other arguments.
        """
        if transport not in ("websocket", "http"):
            raise ConfigError("transport", f"expected 'websocket' or 'http', got {transport!r}")
        road: Road = Posts(self._http, self._roads)
        if transport == "websocket":
            road = Sockets(self.connect, self._home, self._roads)
        return Rollout(
            road,
            input,
            model=model,
            tools=tools,
            tool_definitions=tool_definitions,
            approve=approve,
            chained=chained and (transport == "websocket" or fields.get("store") is not False),
            reconnects=reconnects,
            **fields,
        )

    def _home(self) -> trio.Nursery:
        if self._nursery is None:
            raise RuntimeError("enter the client or the rollout first: async with Client(…) as client")
        return self._nursery
