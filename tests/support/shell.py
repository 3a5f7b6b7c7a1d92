"""A shell without a socket or a clock: it obeys the rules' commands as the session does and writes down each answer."""

from __future__ import annotations

import json
from collections import deque

from respserver.config import Mode
from respserver.errors import ApiError, ServerError
from respserver.protocol.chain import Context, Latest, Pause, pair
from respserver.protocol.commands import AwaitOutputs, Create, Ignore, Reject, ResumeTurn, StartTurn
from respserver.protocol.connection import Connection, Delivery
from respserver.protocol.emitter import Emitter
from respserver.protocol.lane import error_frame
from respserver.protocol.states import LaneState
from respserver.schema.codec import encode
from respserver.schema.events import Event
from respserver.schema.items import FunctionCallItem
from respserver.tokens.parse import Delta
from tests.support.pure import NOW, USAGE, Ids, Json, calling, context, message, response
from tests.support.replay import TERMINALS


class Shell:
    """One connection and its single running turn. ``frames`` is what the client got.

    ``answers`` counts what became of each message: exactly one error frame, one turn, one silent acceptance.
    """

    def __init__(self, mode: Mode, *, max_waiting: int = 2, strict: bool = False) -> None:
        self.connection = Connection(mode, "websocket", max_waiting=max_waiting, strict=strict)
        self.lane = self.connection.lane
        self.frames: list[Json] = []
        self.answers = 0
        self._waiting: deque[Create] = deque()
        self._emitter: Emitter | None = None
        self._context: Context = context()
        self._new_id = Ids()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs or waits."""
        return self._emitter is None and not self._waiting

    def message(self, text: str) -> None:
        """The client sends something."""
        answer = self.connection.receive_message(text, 0.0)
        match answer:
            case Reject(error=error):
                self._refuse(encode(error_frame(error)))
            case Ignore():
                self.answers += 1
            case Delivery(event=Create() as create):
                self._waiting.append(create)
            case Delivery(lane=lane, event=append):
                self._append(lane.begin(append))

    def step(self, end: str) -> None:
        """Start the next turn if none runs, or end the one that does: ``complete``, ``fail``, ``call``."""
        if self._emitter is None:
            self._start()
        elif self.lane.state is LaneState.SUSPENDED:
            if end == "fail":
                self._finish(self._emitter, ServerError())
        elif end == "call":
            self._call(self._emitter)
        else:
            self._finish(self._emitter, ServerError() if end == "fail" else None)

    def drain(self) -> None:
        """End everything that runs, waits or is suspended."""
        while not self.is_quiet:
            self.step("fail" if self.lane.state is LaneState.SUSPENDED else "complete")

    def _start(self) -> None:
        if not self._waiting:
            return
        command = self.lane.begin(self._waiting.popleft())
        if isinstance(command, Reject):
            self._refuse(self.lane.error_frame(command.error))
            self.lane.pending -= 1
            return
        assert isinstance(command, StartTurn)
        self._context = command.parent.context.fork() if command.parent else context()
        try:
            items = pair(self._context, command.request.items)
        except ApiError as error:
            self._refuse(self.lane.refuse(error))
            self.lane.pending -= 1
            return
        self._context.open_calls = {}
        self._context.item_ids |= {item.id for item in items if item.id}
        self._context.call_ids |= {item.call_id for item in items if isinstance(item, FunctionCallItem)}
        self._emitter = Emitter(response(self._new_id("resp")), self._new_id)
        self._send(self._emitter.begin())

    def _call(self, emitter: Emitter) -> None:
        """The model calls two tools: a pause in prototype mode, the turn's end in shipped mode."""
        self._feed(emitter, [*calling("look", "{}"), *calling("exec", "ls", custom=True)])
        if not self.lane.suspends:
            self._finish(emitter, None)
            return
        done = emitter.pause(USAGE)
        self.lane.pause = Pause(
            response_id=emitter.response.id, open_calls=emitter.open_calls, emitted=emitter.since_pause
        )
        self._send([done])

    def _append(self, command: object) -> None:
        match command:
            case ResumeTurn():
                assert self._emitter is not None
                self._emitter.resume()
                self.answers += 1
            case AwaitOutputs():
                self.answers += 1
            case Reject(error=error):
                self._refuse(encode(error_frame(error)))

    def _finish(self, emitter: Emitter, error: ApiError | None) -> None:
        if error is not None:
            self.lane.evict()
            self._send(emitter.fail(error))
        else:
            self._feed(emitter, message("Done."))
            self._context.open_calls = dict(emitter.open_calls)
            self._context.item_ids |= set(emitter.item_ids)
            self._context.call_ids |= set(emitter.call_ids)
            self.lane.publish(Latest(response_id=emitter.response.id, context=self._context))
            self._send(emitter.complete(USAGE, NOW))
        self._emitter = None
        self.lane.pending -= 1

    def _feed(self, emitter: Emitter, deltas: list[Delta]) -> None:
        self._send([event for delta in deltas for event in emitter.feed(delta)])

    def _send(self, events: list[Event]) -> None:
        for event in events:
            frame = json.loads(self.lane.send_event(event))
            self.answers += frame["type"] in TERMINALS
            self.frames.append(frame)

    def _refuse(self, frame: bytes) -> None:
        self.answers += 1
        self.frames.append(json.loads(frame))
