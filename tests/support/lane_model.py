"""The rules of lanes once more, as a model: what a client may expect of one connection, in whole turns.

Written from the rules alone (protocol.md sections 1.7, 1.9 and 5.2), without the server's code: lanes are lines of
numbers here, contexts lists of lines, and nothing waits. ``marks`` has what each lane's client must see next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

HELD, FREE, FAULTY, CUT, WARM, INVALID, UNPAIRED = "held", "free", "faulty", "cut", "warm", "invalid", "unpaired"
KINDS = (HELD, FREE, FAULTY, CUT, WARM, INVALID, UNPAIRED)
"""What becomes of a turn: it goes on when it is told to; says a word and ends; breaks; meets a limit; only warms up;
cannot be read; answers a call that nobody made."""
NOWHERE = 0
"""The number of no turn: a parent that does not exist."""

LaneName = str | None
Mark = tuple[str, int | str]
"""What a client sees: an event's moment and the turn's number, or ``error`` and its code."""


@dataclass
class Turn:
    """A create: the ``number`` counts them from 1, ``parent`` is another one's."""

    number: int
    lane: LaneName
    kind: str = HELD
    parent: int | None = None
    stored: bool = False
    context: list[str] = field(default_factory=list)
    """What the model was given when it last began to speak."""
    said: list[str] = field(default_factory=list)
    """What it has said since."""


@dataclass
class ModelLane:
    """A lane's line, the running turn first, and its latest response."""

    line: deque[Turn] = field(default_factory=deque)
    latest: int | None = None


What = Literal["begin", "start", "finish", "pass on"]
Step = tuple[What, LaneName]


class LaneModel:
    """One connection after the other; ``leave`` ends one and begins the next."""

    def __init__(self, *, max_lanes: int, max_active: int, max_waiting: int, max_suspended: int) -> None:
        self.marks: dict[LaneName, list[Mark]] = {}
        self.started = self.failed = self.refused = 0
        """Turns by how they ended, over all connections; a turn that was cut off by ``leave`` has started."""
        self._max_lanes, self._max_active = max_lanes, max_active
        self._max_waiting, self._max_suspended = max_waiting, max_suspended
        self._whole: set[int] = set()
        """Turns that are stored with all of their past."""
        self._after: dict[int, list[str]] = {}
        """The context that each turn left."""
        self.leave()

    def leave(self) -> None:
        """The socket is gone, and all that it alone held."""
        self.lanes: dict[LaneName, ModelLane] = {None: ModelLane()}
        self.running: list[Turn] = []
        """Held turns that have started, and neither ended nor stand suspended."""
        self.suspended: list[Turn] = []
        """Turns that wait for their client (prototype mode)."""
        self._resuming: deque[Turn] = deque()
        self._active = 0
        self._slot_line: deque[LaneName] = deque()
        self._agenda: deque[Step] = deque()

    def create(self, turn: Turn) -> None:
        """A create comes in."""
        if turn.lane not in self.lanes:
            if len(self.lanes) > self._max_lanes:
                self._refuse(turn, "websocket_stream_limit_reached")
                return
            self.lanes[turn.lane] = ModelLane()
        line = self.lanes[turn.lane].line
        if any(suspended.number == turn.parent for suspended in self.suspended):
            self._refuse(turn, "response_suspended")
            return
        waiting = sum(len(lane.line) for lane in self.lanes.values()) - self._active - len(self.suspended)
        if (line or self._active == self._max_active) and waiting == self._max_waiting:
            self._refuse(turn, "queue_full")
            return
        line.append(turn)
        if len(line) == 1:
            self._go("begin", turn.lane)

    def say(self, turn: Turn) -> None:
        """A held turn says a word."""
        turn.said = [f"assistant: a{turn.number}"]  # one message, however long
        self._mark(turn, "delta")

    def end(self, turn: Turn) -> None:
        """A held turn ends well; it always has said something."""
        if not turn.said:
            self.say(turn)
        self.running.remove(turn)
        self._complete(turn, "completed")

    def break_off(self, turn: Turn) -> None:
        """A held turn's model breaks."""
        self.running.remove(turn)
        self._fail(turn)

    def call(self, turn: Turn) -> None:
        """A held turn calls a tool and waits for its output, without a slot; or breaks, if too many do."""
        self.running.remove(turn)
        self._go("pass on", turn.lane)
        if len(self.suspended) == self._max_suspended:
            self.failed += 1
            self._evict(turn)
            self._mark(turn, "failed")
            self._next(turn.lane)
            return
        self.suspended.append(turn)
        self._mark(turn, "done")

    def append(self, turn: Turn) -> None:
        """The output of a suspended turn's call comes in: it goes on, ahead of all turns that have not begun."""
        self.suspended.remove(turn)
        if self._active < self._max_active:
            self._active += 1
            self._resume(turn)
        else:
            self._resuming.append(turn)

    # What happens by itself, step by step: who gets a slot starts before the next one of the lane that gave it up.

    def _go(self, step: What, lane: LaneName) -> None:
        is_first = not self._agenda
        self._agenda.append((step, lane))
        while is_first and self._agenda:
            step, lane = self._agenda[0]
            does = {"begin": self._begin, "start": self._start, "finish": self._finish, "pass on": self._pass_on}
            does[step](lane)
            self._agenda.popleft()

    def _begin(self, name: LaneName) -> None:
        """The first of a lane's line has come to its front."""
        turn = self.lanes[name].line[0]
        if turn.kind == INVALID:
            self._evict(turn)
            self._refuse(turn, "invalid_type")
            self._next(name)
        elif self._active < self._max_active:
            self._active += 1
            self._start(name)
        else:
            self._slot_line.append(name)

    def _start(self, name: LaneName) -> None:
        """A turn that has a slot binds its parent, and is refused or plays."""
        lane = self.lanes[name]
        turn = lane.line[0]
        context = self._bound(turn)
        if context is None:
            self._refuse(turn, "previous_response_not_found")
            self._go("finish", name)
        elif turn.kind == UNPAIRED:
            self._evict(turn)
            self._refuse(turn, "no_tool_call_found")
            self._go("finish", name)
        else:
            turn.context = [*context, f"user: q{turn.number}"]
            if turn.parent is not None and lane.latest == turn.parent:
                lane.latest = None  # the turn has it
            self.started += 1
            self._mark(turn, "created")
            self._play(turn)

    def _play(self, turn: Turn) -> None:
        if turn.kind == HELD:
            self.running.append(turn)
        elif turn.kind == FAULTY:
            self._fail(turn)
        elif turn.kind == WARM:
            self._complete(turn, "completed")
        else:
            self.say(turn)
            self._complete(turn, "incomplete" if turn.kind == CUT else "completed")

    def _complete(self, turn: Turn, moment: str) -> None:
        self._after[turn.number] = [*turn.context, *turn.said]
        self.lanes[turn.lane].latest = turn.number
        if turn.stored and (turn.parent is None or turn.parent in self._whole):
            self._whole.add(turn.number)
        self._mark(turn, moment)
        self._go("finish", turn.lane)

    def _fail(self, turn: Turn) -> None:
        self._evict(turn)
        self.failed += 1
        self._mark(turn, "failed")
        self._go("finish", turn.lane)

    def _finish(self, name: LaneName) -> None:
        """A turn gives back its slot, and its lane goes on."""
        self._pass_on(name)
        self._next(name)

    def _pass_on(self, name: LaneName) -> None:
        """A slot is given back, and goes to whoever is next."""
        if self._resuming:
            self._resume(self._resuming.popleft())
        elif self._slot_line:
            self._go("start", self._slot_line.popleft())
        else:
            self._active -= 1

    def _resume(self, turn: Turn) -> None:
        turn.context, turn.said = [*turn.context, *turn.said], []
        self.running.append(turn)

    def _next(self, name: LaneName) -> None:
        line = self.lanes[name].line
        line.popleft()
        if line:
            self._go("begin", name)

    def _bound(self, turn: Turn) -> list[str] | None:
        """The context that a turn goes on from; None if its parent is not to be had (section 5.2)."""
        if turn.parent is None:
            return []
        if any(lane.latest == turn.parent for lane in self.lanes.values()) or turn.parent in self._whole:
            return self._after[turn.parent]
        return None

    def _evict(self, turn: Turn) -> None:
        """A failed continuation on the same lane drops its parent from the cache; a failed fork drops nothing."""
        lane = self.lanes[turn.lane]
        if turn.parent is not None and lane.latest == turn.parent:
            lane.latest = None

    def _refuse(self, turn: Turn, code: str) -> None:
        self.refused += 1
        self.marks.setdefault(turn.lane, []).append(("error", code))

    def _mark(self, turn: Turn, moment: str) -> None:
        self.marks.setdefault(turn.lane, []).append((moment, turn.number))
