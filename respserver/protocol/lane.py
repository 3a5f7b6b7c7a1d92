"""One lane: an ordered line of turns, and the one way out for their events.

``begin`` decides by the table; ``send_event`` numbers, tags and encodes, and moves the lane on when an event pauses or
ends its turn. Nothing here waits.
"""

from __future__ import annotations

from typing import get_args

from respserver.config import Mode
from respserver.errors import ApiError, ResponseNotSuspended, ServerBusy
from respserver.protocol.chain import Latest, Pause
from respserver.protocol.commands import Append, AwaitOutputs, Create, Reject, ResumeTurn, StartTurn
from respserver.protocol.states import TABLES, LaneState, Move, suspends
from respserver.schema.codec import encode
from respserver.schema.events import ErrorDetail, ErrorFrame, Event, ResponseDone, Terminal
from respserver.schema.items import CallOutputItem
from respserver.schema.tools import NO_TOOLS, ToolSet

_MOVES: dict[type[Event], Move] = {
    **dict.fromkeys(get_args(Terminal), Move.TERMINAL),
    ResponseDone: Move.PAUSE,
}
"""What an event on its way out does to the lane; nearly all do nothing, so this costs one look-up a token."""


class Lane:
    """State of one lane. ``latest`` is the connection cache's entry; it lives as long as the socket."""

    def __init__(self, mode: Mode, name: str | None = None) -> None:
        self.name = name
        self.state = LaneState.IDLE
        self.latest: Latest | None = None
        self.pause: Pause | None = None
        self.dropped: list[Latest] = []
        """What left the cache; the shell frees what the engine keeps for it."""
        self.pending = 0
        """Creates delivered and not yet finished: the running one and those that wait."""
        self.pending_size = 0
        """Characters of their frames."""
        self.tools: ToolSet = NO_TOOLS
        """The last request's tools, so that the same bytes are not read twice."""
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
        return encode(event)

    def refuse(self, error: ApiError) -> bytes:
        """End the active turn before it began: one error frame. The parent it named leaves the cache, unless the
        client is told to send the same again."""
        self._move(Move.REFUSE)
        if not isinstance(error, ServerBusy):
            self.evict()
        return self.error_frame(error)

    def error_frame(self, error: ApiError) -> bytes:
        """An error for this lane that changes nothing."""
        frame = error_frame(error)
        if self.name is not None:
            frame.stream_id = self.name
        return encode(frame)

    def take(self) -> None:
        """The running turn goes on from ``latest`` and owns its buffer from now on (design.md section 6)."""
        self.latest = None

    def publish(self, latest: Latest) -> None:
        """A turn ended well: it is now what the lane goes on from."""
        self._drop()
        self.latest = latest

    def evict(self) -> None:
        """The running turn failed: the parent that it continued leaves the cache (protocol.md section 5.2)."""
        if self.latest is not None and self.latest.response_id == self._parent_id:
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
        answers = any(isinstance(item, CallOutputItem) and item.call_id in self.pause.open_calls for item in items)
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
        if event.previous_response_id is None:
            return StartTurn(request=event.request)
        if self.latest is not None and self.latest.response_id == event.previous_response_id:
            return StartTurn(request=event.request, parent=self.latest)
        return StartTurn(request=event.request, hydrate=event.previous_response_id)

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


def error_frame(error: ApiError) -> ErrorFrame:
    """The WebSocket shape: nested, with status; retry hints in both places that clients read."""
    detail = error_detail(error)
    return ErrorFrame(status=error.status, error=detail, headers=detail.headers)


def error_detail(error: ApiError) -> ErrorDetail:
    """The nested error object of frames and events."""
    detail = ErrorDetail(type=error.type, code=error.code, message=error.message, param=error.param)
    if error.headers:
        detail.headers = error.headers
    return detail
