"""What one HTTP connection is doing, seen from the requests that pass: it runs one, it takes one in, or it waits.

From this follows when the connection is over: at once or after its answer if the server stops, after a while without
anything to do otherwise. Hypercorn's own timer can't tell: it is started in the request's task, which quart-trio
cancels. Nothing here closes or writes to a connection; ``hosting.py`` does. It knows ASGI messages and no framework.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from respserver.errors import ApiError
from respserver.transport.lifespan import AsgiApp

SLOW_BODY_SECONDS = 120.0
BODY_BYTES_PER_SECOND = 1024
"""A body that goes on coming may take the first, and a second more for each of the second: whoever sends at this rate
has all the time that a body of the greatest size needs (F34), and whoever drips single bytes has two minutes."""

# Any: ASGI messages and scopes are open dictionaries.
Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class BodyTooSlow(ApiError):
    """A request's body did not come, or came too slowly, while its connection was waiting for it."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"

    def __init__(self) -> None:
        super().__init__("The request body took too long to arrive.")


class Requests:
    """An ASGI app around ``app`` for one connection.

    A request *arrives* until its body is complete, then it *runs* to its end; a WebSocket runs from its start. Only
    one that runs holds the connection: ``idle_seconds`` after the last sign of anything else the connection is over,
    and so it is once a body that arrives falls behind its least rate.
    """

    def __init__(self, app: AsgiApp, idle_seconds: float) -> None:
        self._app = app
        self._idle_seconds = idle_seconds
        self._open = 0
        self._running = 0
        self._none_open = trio.Event()
        self._none_open.set()
        self._is_stopping = False
        self._life = trio.CancelScope(deadline=trio.current_time() + idle_seconds)

    @property
    def are_arriving(self) -> bool:
        """Whether a request has begun that is not complete and has no answer yet."""
        return self._open > self._running

    def stop(self) -> None:
        """Take no further request: the connection is over once none runs."""
        self._is_stopping = True
        self._restart_clock()

    async def wait_over(self) -> None:
        """Wait until the connection is to be closed. One task may wait."""
        with self._life:
            await trio.sleep_forever()

    async def wait_none_open(self) -> None:
        """Wait until the app has left every request, also those that merely arrive."""
        await self._none_open.wait()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one scope."""
        runs = False
        body_until = trio.current_time() + SLOW_BODY_SECONDS

        def start_running() -> None:
            nonlocal runs
            self._running += not runs
            runs = True
            self._restart_clock()

        async def receive_here() -> Message:
            nonlocal body_until
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                start_running()
            elif not runs:
                body_until += len(message.get("body", b"")) / BODY_BYTES_PER_SECOND
                self._restart_clock(body_until)
            return message

        async def send_here(message: Message) -> None:
            start_running()
            await send(self._last(message) if self._is_stopping else message)

        self._enter()
        try:
            if scope["type"] == "websocket":
                start_running()
            await self._app(scope, receive_here, send_here)
        finally:
            self._leave(runs=runs)

    def _enter(self) -> None:
        if not self._open:
            self._none_open = trio.Event()
        self._open += 1

    def _leave(self, *, runs: bool) -> None:
        self._open -= 1
        self._running -= runs
        if not self._open:
            self._none_open.set()
        self._restart_clock()

    def _restart_clock(self, latest: float = math.inf) -> None:
        """The deadline moves; no task is woken for it, which would cost each request several scheduler passes."""
        now = trio.current_time()
        if self._running:
            self._life.deadline = math.inf
        else:
            self._life.deadline = now if self._is_stopping else min(now + self._idle_seconds, latest)

    def _last(self, message: Message) -> Message:
        """Say that no further request will be read (RFC 9112 section 9.6)."""
        if message["type"] != "http.response.start":
            return message
        return {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
