"""How the requests of a rollout reach the server: over a connection of the caller's, over sockets that are replaced
when they are lost, or as HTTP requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Protocol

import trio

from respserver.client.connection import Connection
from respserver.client.http import HttpSession
from respserver.client.wire import END_TYPES, Item, Json, ServerMessage, api_error, event_type
from respserver.errors import ApiError, ConnectionLost, RespserverError
from respserver.http11 import FINISH_SECONDS
from respserver.schema.codec import encode

DIAL_PAUSES = (0.0, 0.25, 1.0, 3.0)
"""Seconds before each attempt to reach a server again: some four in all, in which one that is restarted is back."""
PASSING_STATUSES = (429, 502, 503, 504)
"""Refusals of a connection that another attempt may not meet."""


class Road(Protocol):
    """The way to the server. A turn or an append is sent at the first step of the iteration that it gives."""

    is_ours: bool
    """Whether another connection may be made in place of a lost one."""
    appends: bool
    """Whether a suspended response can be answered."""

    async def open(self, nursery: trio.Nursery | None = None) -> None:
        """Connect, if that hasn't been done; what has to run beside the caller runs in the nursery."""

    async def renew(self) -> None:
        """Connect anew, patiently: the last of several attempts raises what ``open`` raises. ``aclose`` ends it."""

    def check(self) -> None:
        """Raise ``ConnectionLost`` if all is lost already."""

    def turn(self, **fields: Any) -> AsyncIterator[ServerMessage]:  # Any: the server's to judge
        """Create a response; gives its events."""

    def resume(
        self, outputs: Sequence[Item], response_id: str | None = None, stream_id: str | None = None
    ) -> AsyncIterator[ServerMessage]:
        """Append to a suspended one; gives its events."""

    async def aclose(self) -> None:
        """Leave what this road has opened."""


class Given:
    """A connection of the caller's: it is neither replaced nor closed."""

    is_ours = False
    appends = True

    def __init__(self, connection: Connection) -> None:
        self.check = connection.check
        self.turn = connection.turn
        self.resume = connection.resume

    async def open(self, nursery: trio.Nursery | None = None) -> None:
        """It is open."""

    async def renew(self) -> None:
        """It is the caller's."""

    async def aclose(self) -> None:
        """As above."""


class Sockets:
    """One WebSocket at a time. Each is held by a task in a nursery that outlives it, so that it is left where it was
    entered. ``open_roads`` has it as long as there is something to close.
    """

    is_ours = True
    appends = True

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Connection]],
        home: Callable[[], trio.Nursery],
        open_roads: set[Road],
    ) -> None:
        self._connect = connect
        self._home = home
        self._open_roads = open_roads
        self._connection: Connection | None = None
        self._leave = trio.Event()
        self._is_left = trio.Event()
        self._dialling = trio.CancelScope()

    async def open(self, nursery: trio.Nursery | None = None) -> None:
        """Dial, unless a socket is there."""
        if nursery is not None:
            self._home = lambda: nursery
        if self._connection is None:
            self._leave, self._is_left = trio.Event(), trio.Event()
            self._connection = await self._home().start(self._hold, self._leave, self._is_left)
            self._open_roads.add(self)

    async def renew(self) -> None:
        """Leave the socket, whatever its state, and dial."""
        self._forget()
        with trio.CancelScope() as self._dialling:
            await patiently(self.open)

    def check(self) -> None:
        """Raise ``ConnectionLost`` if the present socket is known to be closed."""
        self._current().check()

    def turn(self, **fields: Any) -> AsyncIterator[ServerMessage]:  # Any: as in Road
        """A turn on the present socket."""
        return self._current().turn(**fields)

    def resume(
        self, outputs: Sequence[Item], response_id: str | None = None, stream_id: str | None = None
    ) -> AsyncIterator[ServerMessage]:
        """An append on the present socket."""
        return self._current().resume(outputs, response_id, stream_id)

    async def aclose(self) -> None:
        """Say goodbye and wait for the end of it."""
        self._open_roads.discard(self)
        self._dialling.cancel()
        if self._connection is not None:
            self._forget()
            await self._is_left.wait()

    def _current(self) -> Connection:
        if self._connection is None:
            raise ConnectionLost("the rollout was closed")
        return self._connection

    def _forget(self) -> None:
        """The task says goodbye by itself; nothing need wait for a server that may be silent."""
        self._leave.set()
        self._connection = None

    async def _hold(self, leave: trio.Event, is_left: trio.Event, task_status: trio.TaskStatus[Connection]) -> None:
        try:
            async with self._connect() as connection:
                task_status.started(connection)
                await leave.wait()
        finally:
            is_left.set()


class Posts:
    """A streaming HTTP request for each turn. ``open_roads`` as with ``Sockets``."""

    is_ours = True
    appends = False

    def __init__(self, http: HttpSession, open_roads: set[Road]) -> None:
        self._http = http
        self._open_roads = open_roads
        self._turn: StreamedTurn | None = None
        self._dialling = trio.CancelScope()

    async def open(self, nursery: trio.Nursery | None = None) -> None:
        """Each request finds its connection."""

    async def renew(self) -> None:
        """Make sure that the server is there."""
        with trio.CancelScope() as self._dialling:
            await patiently(self._http.open)

    def check(self) -> None:
        """There is nothing that could be lost."""

    def turn(self, **fields: Any) -> StreamedTurn:  # Any: as in Road
        """A request of its own."""
        self._open_roads.add(self)
        self._turn = StreamedTurn(self._http.stream(fields))
        return self._turn

    def resume(
        self, outputs: Sequence[Item], response_id: str | None = None, stream_id: str | None = None
    ) -> AsyncIterator[ServerMessage]:
        """Never asked for."""
        raise NotImplementedError("nothing is suspended over HTTP")

    async def aclose(self) -> None:
        """Leave the request that still runs."""
        self._open_roads.discard(self)
        self._dialling.cancel()
        if self._turn is not None:
            await self._turn.aclose()


class StreamedTurn:
    """The events of one streaming request, as ``Turn`` gives those of a WebSocket.

    The ``error`` that HTTP alone has in front of ``response.failed`` is left out; without a terminal event behind it,
    it is raised. Not a generator, so that one that is left early can be closed from outside.
    """

    def __init__(self, opening: AbstractAsyncContextManager[AsyncIterator[ServerMessage]]) -> None:
        self._opening: AbstractAsyncContextManager[AsyncIterator[ServerMessage]] | None = opening
        self._events: AsyncIterator[ServerMessage] | None = None
        self._stack = AsyncExitStack()
        self._asking = trio.CancelScope()

    def __aiter__(self) -> StreamedTurn:
        return self

    async def __anext__(self) -> ServerMessage:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            with trio.CancelScope() as self._asking:
                self._events = await self._stack.enter_async_context(opening)
            if self._asking.cancelled_caught:
                raise ConnectionLost("the request was closed")
        if self._events is None:
            raise StopAsyncIteration
        try:
            event = await _next(self._events)
        except (ApiError, ConnectionLost):
            await self.aclose()
            raise
        except trio.ClosedResourceError as error:
            raise ConnectionLost("the request was closed") from error
        if event_type(event) in END_TYPES:
            await self._finish(self._events)
        return event

    async def aclose(self) -> None:
        """Leave the request; a turn that still runs ends with it."""
        self._opening = self._events = None
        self._asking.cancel()
        await self._stack.aclose()

    async def _finish(self, events: AsyncIterator[ServerMessage]) -> None:
        """Read to the end, which is near, so that the connection can be kept. The turn's own end has come: what goes
        wrong behind it loses nothing."""
        with trio.move_on_after(FINISH_SECONDS), suppress(RespserverError):
            async for _ in events:
                pass
        await self.aclose()


async def patiently(connect: Callable[[], Awaitable[None]]) -> None:
    """Try again what failed in a way that may pass, a few times; the last failure is raised."""
    for pause in DIAL_PAUSES:
        await trio.sleep(pause)
        try:
            await connect()
            break
        except (ConnectionLost, ApiError) as error:
            if pause == DIAL_PAUSES[-1] or (isinstance(error, ApiError) and error.status not in PASSING_STATUSES):
                raise


async def _next(events: AsyncIterator[ServerMessage]) -> ServerMessage:
    """The next event that is no ``error``. Raises what that told, if it was the last."""
    told: Json | ServerMessage | None = None
    async for event in events:
        if event_type(event) != "error":
            return event
        told = event
    raise api_error(encode(told), 500) if told is not None else ConnectionLost("the stream ended before its response")
