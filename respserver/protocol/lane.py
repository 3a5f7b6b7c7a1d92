"""One lane: an ordered line of turns, and the one way out for their events.

``begin`` decides by the table; ``send_event`` numbers, tags and encodes, and moves the lane on when an event pauses or
ends its turn. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec

from respserver.config import Mode
from respserver.errors import ApiError, ResponseNotSuspended
from respserver.protocol.chain import Answer, Latest, Pause
from respserver.protocol.commands import Append, AwaitOutputs, Create, Reject, ResumeTurn, StartTurn
from respserver.protocol.states import TABLES, LaneState, Move, suspends
from respserver.protocol.steering import Steer, Steering
from respserver.schema.codec import encode
from respserver.schema.events import (
    ErrorDetail,
    ErrorFrame,
    Event,
    ResponseCompleted,
    ResponseDone,
    SteerEvent,
    Terminal,
)
from respserver.schema.request import CreateRequest
from respserver.schema.tools import NO_TOOLS, ToolSet

_MOVES: dict[type[Event], Move] = {
    **dict.fromkeys(get_args(Terminal), Move.TERMINAL),
    ResponseDone: Move.PAUSE,
}
"""What an event on its way out does to the lane; nearly all do nothing, so this costs one look-up a token."""


def _nowhere(response_id: str) -> Lane | None:  # noqa: ARG001 - a lane by itself has no neighbours
    return None


class Lane:
    """State of one lane. ``latest`` is the connection cache's entry; it lives as long as the socket.

    ``find_holder`` gives the lane of the same connection whose latest response has an id.
    """

    def __init__(
        self,
        mode: Mode,
        name: str | None = None,
        *,
        find_holder: Callable[[str], Lane | None] = _nowhere,
        max_steers: int = 0,
    ) -> None:
        self.name = name
        self.state = LaneState.IDLE
        self.latest: Latest | None = None
        self.pause: Pause | None = None
        self.dropped: list[Latest] = []
        """What left the cache; the shell frees what the engine keeps for it."""
        self.pending = 0
        """Creates delivered and not yet finished: the running one and those that wait."""
        self.tools: ToolSet = NO_TOOLS
        """The last request's tools, so that the same bytes are not read twice."""
        self.steering = Steering(max_steers)
        self._find_holder = find_holder
        self._table = TABLES[mode]
        self.suspends = suspends(self._table)
        """Whether this lane's turns wait for tools inside themselves (prototype mode)."""
        self._sequence_number = 0
        self._parent_id: str | None = None

    def begin(self, event: Create | Append) -> StartTurn | ResumeTurn | AwaitOutputs | Reject:
        """What to do about an event whose turn it is. Never raises on what a client sent."""
        return self._start(event) if isinstance(event, Create) else self._append(event)

    def send_event(self, event: Event) -> bytes:
        """The event as JSON, with its number and lane; a pause or terminal also moves the lane."""
        event.sequence_number = self._sequence_number
        self._sequence_number += 1
        if self.name is not None:
            event.stream_id = self.name
        move = _MOVES.get(type(event))
        if move is not None:
            self._move(move)
            if move is Move.TERMINAL:
                self.pause = None
                self.steering.end(completed=isinstance(event, ResponseCompleted), next_number=self._sequence_number)
        return encode(event)

    def tell(self, event: SteerEvent, response_id: str) -> bytes:
        """An event about steering input for a response of this lane, with the next number of that one's own, which may
        have ended."""
        if response_id == self.steering.target:
            return self.send_event(event)
        ended = self.steering.ended[response_id]
        event.sequence_number = ended.next_number
        ended.next_number += 1
        if self.name is not None:
            event.stream_id = self.name
        return encode(event)

    def successor(self, request: CreateRequest) -> Create:
        """What follows the response to ``request``, which has just ended, for the steering input that waits: the same
        request with that input (protocol.md section 2.3)."""
        steers = self.steering.queued
        parent = steers[0].response_id
        params = msgspec.structs.replace(request.params, previous_response_id=parent)
        return Create(
            request=msgspec.structs.replace(request, params=params, items=[]),
            previous_response_id=parent,
            steers=list(steers),
        )

    def refuse(self, error: ApiError) -> bytes:
        """Refuse the create whose turn it is: one error frame. The parent it named leaves the cache, unless it never
        began, or the client is told to send the same again."""
        has_begun = self.state is LaneState.ACTIVE
        self._move(Move.REFUSE)
        if has_begun and not error.is_passing:
            self.evict()
        return self.error_frame(error)

    def error_frame(self, error: ApiError) -> bytes:
        """An error for this lane that changes nothing."""
        return encode(error_frame(error, self.name))

    def take(self) -> None:
        """The running turn goes on from ``latest`` and owns its buffer from now on (design.md section 6)."""
        self.latest = None

    def holds(self, response_id: str) -> bool:
        """Whether the connection cache has this response, as the lane's latest."""
        return self.latest is not None and self.latest.response_id == response_id

    def find(self, response_id: str) -> Latest | None:
        """The connection cache's entry of this id, whichever lane holds it."""
        holder = self if self.holds(response_id) else self._find_holder(response_id)
        return holder.latest if holder is not None else None

    def publish(self, latest: Latest) -> None:
        """A turn ended well: it is now what the lane goes on from."""
        self._drop()
        self.latest = latest

    def evict(self) -> None:
        """The running turn failed: the parent that it continued leaves the cache (protocol.md section 5.2). That of a
        fork is another lane's and stays."""
        if self._parent_id is not None and self.holds(self._parent_id):
            self._drop()

    def _drop(self) -> None:
        if self.latest is not None:
            self.dropped.append(self.latest)
            self.latest = None

    def suspended_by(self, event: Create) -> str | None:
        """The id of the suspended response that a create tries to go on from in the shipped way, if it does."""
        if self.state is not LaneState.SUSPENDED or self.pause is None:
            return None
        items = event.request.items if event.request else []
        answers = any(isinstance(item, Answer) and item.call_id in self.pause.open_calls for item in items)
        if answers or event.previous_response_id == self.pause.response_id:
            return self.pause.response_id
        return None

    def _start(self, event: Create) -> StartTurn | Reject:
        self._parent_id = event.previous_response_id
        if event.request is None or event.error is not None:
            self.evict()
            return Reject(error=event.error or ApiError("The request is empty."), create=event)
        self._move(Move.CREATE)
        self._sequence_number = 0
        self.tools = event.request.tools
        parent_id = event.previous_response_id
        if parent_id is None:
            return StartTurn(request=event.request)
        steers = self.steers_for(event)
        parent = self.find(parent_id)
        if parent is not None:
            return StartTurn(request=event.request, parent=parent, is_fork=parent is not self.latest, steers=steers)
        return StartTurn(request=event.request, hydrate=parent_id, steers=steers)

    def steers_for(self, event: Create) -> list[Steer]:
        """The steering input that a create takes with it; a warm-up samples nothing, and takes none."""
        if event.steers or (event.request is not None and event.request.warm_up):
            return event.steers
        return self.steering.owed(event.previous_response_id)

    def _append(self, event: Append) -> ResumeTurn | AwaitOutputs | Reject:
        request = event.request
        if self.state is not LaneState.SUSPENDED or self.pause is None:
            return Reject(error=ResponseNotSuspended(request.response_id))
        if request.response_id is not None and request.response_id != self.pause.response_id:
            return Reject(error=ResponseNotSuspended(request.response_id))
        try:
            items = self.pause.take(request.items)
        except ApiError as error:
            return Reject(error=error)
        if items is None:
            self._move(Move.APPEND)
            return AwaitOutputs(missing=self.pause.missing)
        self._move(Move.RESUME)
        self.pause = None
        return ResumeTurn(items=items)

    def _move(self, move: Move) -> None:
        self.state = self._table[self.state, move]


def error_frame(error: ApiError, stream_id: str | None = None) -> ErrorFrame:
    """The WebSocket shape: nested, with status; retry hints in both places that clients read."""
    detail = error_detail(error)
    frame = ErrorFrame(status=error.status, error=detail, headers=detail.headers)
    if stream_id is not None:
        frame.stream_id = stream_id
    return frame


def error_detail(error: ApiError) -> ErrorDetail:
    """The nested error object of frames and events."""
    detail = ErrorDetail(type=error.type, code=error.code, message=error.message, param=error.param)
    if error.headers:
        detail.headers = error.headers
    return detail
