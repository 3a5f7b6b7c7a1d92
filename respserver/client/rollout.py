"""The tool loop, in whichever design the server speaks and over either transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from respserver.client.connection import LIMIT_REACHED, Connection
from respserver.client.dial import open_nursery
from respserver.client.history import History
from respserver.client.road import Given, Road
from respserver.client.tools import Approve, Tool, definitions, find_calls, find_requests, run_tools
from respserver.client.wire import END_TYPES, Item, Json, ServerMessage, event_type
from respserver.errors import ApiError, ConnectionLost
from respserver.schema.codec import decode, encode
from respserver.schema.events import ResponseFailed

LOSSES = frozenset({"previous_response_not_found", LIMIT_REACHED, "server_shutting_down"})
"""Codes that say that what the server had kept of the rollout is gone, or is about to go with its socket."""


class Rollout:
    """Runs turns and tools until the model calls no more of them; iterating gives all events on the way.

    Made by ``Client.rollout``, which says how it is entered and left, or by hand on a connection of one's own.
    ``tools`` has a function for each tool name (``namespace.name`` in a namespace). ``tool_definitions`` is what the
    model is told of them; without it, function tools that take any object. ``fields`` go into every create.

    The design that the server speaks is seen from what it sends: after ``response.done`` the outputs are appended,
    after ``response.completed`` with calls that nobody has answered the next response is created: on top of it if
    ``chained``, else with all items so far. No pause asks for the output of an async call: it comes in the next create.
    The calls of one pause run side by side, between two steps of the iteration. ``approve`` is asked beside them
    whether the server may call a hosted tool that needs it; without it, the rollout ends where approval is asked for.

    **Losses.** A rollout of ``Client.rollout`` with ``reconnects`` survives the loss of what the server has kept of
    it, between two turns or at a pause: the connection is gone before any event of the new request has come, or the
    request is answered with one of ``LOSSES``. Then it connects anew, several times if need be, sends all items so far
    once, and goes on from there; a suspended response is gone, so another one begins. No tool is run for it. If that
    fails as well, or a connection is lost in the middle of a turn, the error is raised.

    Raises what ``Turn`` raises, ``ToolNotFound``, an ``InvalidRequest`` for arguments that are no JSON object, and an
    ``ExceptionGroup`` of what tools raised, or of a ``TypeError`` for an output that is neither text nor a list. Then
    nothing has been sent, the other calls of the pause are cancelled, and the rollout is over: no call is run twice.
    What the model shall know of a failure, a tool returns. The pause is still open, for ``resume`` or ``turn``.

    Tools aren't cancelled when the connection is lost while they work: what they do may not bear it. They finish, and
    if nothing can be sent any more, ``ConnectionLost`` is raised, and ``outputs`` has what they said. On a connection
    of one's own that is already lost they don't start.
    """

    outputs: Sequence[Json]
    """What the tools of the latest pause said, as items; empty as long as it hasn't been answered."""
    renewals: int
    """How often all items were sent again after a loss."""

    def __init__(
        self,
        road: Connection | Road,
        input: str | Sequence[Item],
        *,
        model: str,
        tools: Mapping[str, Tool],
        tool_definitions: Sequence[Item] | None = None,
        approve: Approve | None = None,
        chained: bool = True,
        reconnects: bool = True,
        **fields: Any,  # Any: the server's to judge
    ) -> None:
        self._road: Road = Given(road) if isinstance(road, Connection) else road
        self._renews = reconnects and self._road.is_ours
        self._chains = chained
        self._tools = tools
        self._approve = approve
        self._fields: Json = {
            **fields,
            "model": model,
            "tools": definitions(tools) if tool_definitions is None else tool_definitions,
        }
        self._first: Json | None = {**self._fields, "input": input}
        self._history = History(input)
        self._answered: set[tuple[str, str]] = set()
        """Calls and requests, each by its response and its id: there are servers that give ids twice."""
        self._step: AsyncIterator[ServerMessage] | None = None
        self._has_begun = True
        self._end: ServerMessage | None = None
        self._stack = AsyncExitStack()
        self.outputs = []
        self.renewals = 0

    @property
    def history(self) -> Sequence[Item]:
        """All items up to the latest step of which the iteration has gone on: the input, what the model said, what the
        tools said. They can be sent to any server that reads what is sealed in them."""
        return self._history.items

    async def __aenter__(self) -> Rollout:
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(open_nursery())
            stack.push_async_callback(self.aclose)
            await self._road.open(nursery)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:  # Any: the three of any exit
        await self._stack.__aexit__(*raised)

    async def aclose(self) -> None:
        """Close the connection, and with it a turn that still runs. Iterating gives nothing more."""
        self._first = self._step = self._end = None
        await self._road.aclose()

    def __aiter__(self) -> Rollout:
        return self

    async def __anext__(self) -> ServerMessage:
        try:
            event = await self._advance()
        except Exception:
            await self.aclose()  # it is over, also if that is no error
            raise
        self._end = event if event_type(event) in END_TYPES else None
        return event

    async def _advance(self) -> ServerMessage:
        if self._first is not None:
            await self._road.open()
            first, self._first = self._first, None
            self._step = self._road.turn(**first)
        end, self._end = self._end, None
        if end is not None:
            await self._go_on(end)
        if self._step is None:
            raise StopAsyncIteration
        return await self._next(self._step)

    async def _next(self, step: AsyncIterator[ServerMessage]) -> ServerMessage:
        """The step's next event; if it has none for a loss, the first one of another step in its place."""
        try:
            event = await anext(step)
        except (ConnectionLost, ApiError) as error:
            if self._has_begun or not _is_loss(error):
                raise
        else:
            if self._has_begun or not _tells_a_loss(event):
                self._has_begun = True
                return event
        self._has_begun = True
        if self._step is step:
            await self._road.renew()
        if self._step is not step:  # closed meanwhile, by another task
            await self._road.aclose()
            raise StopAsyncIteration
        self.renewals += 1
        self._step = self._road.turn(**self._whole())
        return await anext(self._step)

    async def _go_on(self, end: ServerMessage) -> None:
        """Answer the open calls; without any, the old step is left in place, and that has nothing more to give."""
        if (kind := event_type(end)) not in ("response.done", "response.completed", "response.incomplete"):
            return
        response = decode(_end, encode(end)).response
        self._history.add_output(response.id, response.output)
        if kind == "response.incomplete":
            return
        answered = {id for response_id, id in self._answered if response_id == response.id}
        calls = [call for call in find_calls(response.output) if call.call_id not in answered]
        if kind == "response.done":
            calls = [call for call in calls if not call.is_async]
        requests = [item for item in find_requests(response.output) if item["id"] not in answered]
        if not calls and not requests:
            return
        if self._approve is None and requests:
            return
        if not self._renews:
            self._road.check()
        self.outputs = []
        self.outputs = await run_tools(self._tools, calls, self._approve, requests)
        if self._step is None:  # closed meanwhile, by another task
            return
        self._answered.update((response.id, call.call_id) for call in calls)
        self._answered.update((response.id, item["id"]) for item in requests)
        self._history.items += self.outputs
        self._has_begun = not self._renews
        self._step = self._continued(kind, response.id)

    def _continued(self, kind: str, response_id: str) -> AsyncIterator[ServerMessage]:
        if kind == "response.done" and self._road.appends:
            return self._road.resume(self.outputs, response_id, self._fields.get("stream_id"))
        if self._chains:
            return self._road.turn(**{**self._fields, "previous_response_id": response_id}, input=self.outputs)
        return self._road.turn(**self._whole())

    def _whole(self) -> Json:
        """A request that leans on nothing but what the caller's own fields name."""
        return {**self._fields, "input": list(self._history.items)}


class _EndResponse(msgspec.Struct):
    id: str
    output: list[Json] = []


class _End(msgspec.Struct):
    response: _EndResponse


_end = msgspec.json.Decoder(_End)


def _is_loss(error: ConnectionLost | ApiError) -> bool:
    return isinstance(error, ConnectionLost) or error.code in LOSSES


def _tells_a_loss(event: ServerMessage) -> bool:
    """Whether a response has failed while it stood suspended, since its connection must end."""
    return (
        isinstance(event, ResponseFailed) and event.response.error is not None and event.response.error.code in LOSSES
    )
