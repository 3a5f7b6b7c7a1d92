"""A shell without a socket or a clock: it obeys the rules' commands as the session does and writes down each answer."""

from __future__ import annotations

import json
from collections import deque

from respserver.config import Mode
from respserver.errors import ApiError, ServerError
from respserver.protocol.chain import Context, Latest, Pause, left_open, pair
from respserver.protocol.commands import AwaitOutputs, Create, Ignore, Reject, ResumeTurn, StartTurn
from respserver.protocol.connection import Connection, Delivery
from respserver.protocol.emitter import Emitter
from respserver.protocol.lane import Lane, error_frame
from respserver.protocol.states import LaneState
from respserver.schema.codec import encode
from respserver.schema.events import Event
from respserver.schema.items import FunctionCallItem, InputItem
from respserver.tokens.parse import Delta
from tests.support.pure import NOW, USAGE, Ids, Json, calling, context, message, response
from tests.support.replay import TERMINALS


class Shell:
    """One connection and the running turn of each of its lanes. ``frames`` is what the client got.

    ``answers`` counts what became of each message: exactly one error frame, one turn, one silent acceptance.
    """

    def __init__(self, mode: Mode, *, max_waiting: int = 2, strict: bool = False) -> None:
        self.connection = Connection(mode, "websocket", max_waiting=max_waiting, strict=strict)
        self.lane = self.connection.lane
        """The default lane."""
        self.frames: list[Json] = []
        self.answers = 0
        self.new_id = Ids()
        self._plays: dict[Lane, Play] = {}

    def make_play(self, lane: Lane) -> Play:
        """What a new lane's turns are played by."""
        return Play(self, lane)

    def _play_of(self, lane: Lane) -> Play:
        if lane not in self._plays:
            self._plays[lane] = self.make_play(lane)
        return self._plays[lane]

    @property
    def busy(self) -> list[Play]:
        """The lanes where something runs or waits."""
        return [play for play in self._plays.values() if not play.is_quiet]

    def message(self, text: str) -> None:
        """The client sends something."""
        answer = self.connection.receive_message(text, 0.0)
        match answer:
            case Reject(error=error, stream_id=stream_id):
                self.refuse(encode(error_frame(error, stream_id)))
            case Ignore():
                self.answers += 1
            case Delivery(lane=lane, event=Create() as create):
                self._play_of(lane).wait(create)
            case Delivery(lane=lane, event=append):
                self._play_of(lane).append(lane.begin(append))

    def step(self, end: str, pick: int = 0) -> None:
        """On one of the busy lanes, start the next turn if none runs, or end the one that does: ``complete``, ``fail``,
        ``call``."""
        if busy := self.busy:
            busy[pick % len(busy)].step(end)

    def drain(self) -> None:
        """End everything that runs, waits or is suspended."""
        while busy := self.busy:
            busy[0].step("fail" if busy[0].lane.state is LaneState.SUSPENDED else "complete")

    def send(self, frame: bytes) -> None:
        """The client gets an event."""
        event = json.loads(frame)
        self.answers += event["type"] in TERMINALS
        self.frames.append(event)

    def refuse(self, frame: bytes) -> None:
        """The client gets an error instead of whatever it wanted."""
        self.answers += 1
        self.frames.append(json.loads(frame))


class Play:
    """One lane's line and the turn that runs."""

    def __init__(self, shell: Shell, lane: Lane) -> None:
        self.lane = lane
        self._shell = shell
        self._waiting: deque[Create] = deque()
        self._running: Create | None = None
        self._emitter: Emitter | None = None
        self._context: Context = context()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs or waits."""
        return self._emitter is None and not self._waiting

    def wait(self, create: Create) -> None:
        """One more for the end of the line."""
        self._waiting.append(create)

    def step(self, end: str) -> None:
        """As ``Shell.step`` says."""
        if self._emitter is None:
            self._start()
        elif self.lane.state is LaneState.SUSPENDED:
            if end == "fail":
                self._finish(self._emitter, ServerError())
        elif end == "call":
            self._call(self._emitter)
        else:
            self._finish(self._emitter, ServerError() if end == "fail" else None)

    def append(self, command: object) -> None:
        """Obey what the rules say to an append."""
        match command:
            case ResumeTurn():
                assert self._emitter is not None
                self._emitter.resume()
                self._shell.answers += 1
                self._take_in(command.items)
            case AwaitOutputs():
                self._shell.answers += 1
            case Reject(error=error):
                self._shell.refuse(self.lane.error_frame(error))

    def _start(self) -> None:
        self._running = self._waiting.popleft()
        command = self.lane.begin(self._running)
        if isinstance(command, Reject):
            self._shell.refuse(self.lane.error_frame(command.error))
            self._end()
            return
        assert isinstance(command, StartTurn)
        try:
            self._context = self._find_parent(command)
            items = pair(self._context, command.request.items)
        except ApiError as error:
            self._shell.refuse(self.lane.refuse(error))
            self._end()
            return
        if command.parent is not None and not command.is_fork:
            self.lane.take()
        self._context.open_calls = left_open(self._context, items)
        self._context.item_ids |= {item.id for item in items if item.id}
        self._context.call_ids |= {item.call_id for item in items if isinstance(item, FunctionCallItem)}
        self._emitter = self._make_emitter(command)
        self._send(self._emitter.begin())
        self._take_in(items)

    def _find_parent(self, command: StartTurn) -> Context:
        """What the turn goes on from. Raises ``ApiError``."""
        return command.parent.context.fork() if command.parent else context()

    def _make_emitter(self, command: StartTurn) -> Emitter:
        return Emitter(response(self._shell.new_id("resp")), self._shell.new_id)

    def _take_in(self, items: list[InputItem]) -> None:
        """The turn begins or goes on with these; what the model says to them, ``step`` is told."""

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
        self._end()

    def _end(self) -> None:
        assert self._running is not None
        self._shell.connection.finish_create(self.lane, self._running)
        self._emitter = self._running = None

    def _feed(self, emitter: Emitter, deltas: list[Delta]) -> None:
        self._send([event for delta in deltas for event in emitter.feed(delta)])

    def _send(self, events: list[Event]) -> None:
        for event in events:
            self._shell.send(self.lane.send_event(event))
