"""The two tables: what may happen on a lane, by mode (design.md section 2).

A lane has one active turn at most; creates that come meanwhile wait in front of the table. The modes differ in one
thing: in prototype mode a turn may stand suspended at a tool call.

    shipped                                prototype, in addition

    IDLE ── create ──▶ ACTIVE              ACTIVE ── pause ──▶ SUSPENDED
      ▲                  │                    ▲                    │  │ append (some outputs)
      └─ refuse,         │                    └─ resume (all) ─────┘◀─┘
         terminal ───────┘                 IDLE ◀── terminal ── SUSPENDED  (deadline, shutdown)
"""

from __future__ import annotations

import enum

from respserver.config import Mode


class LaneState(enum.Enum):
    """Where a lane's one turn stands. (What is said of each is printed in docs/states.md.)"""

    IDLE = "idle"
    """Nothing runs; the next create in line may begin (protocol.md section 1.7)."""
    ACTIVE = "active"
    """A turn runs (protocol.md section 1.7)."""
    SUSPENDED = "suspended"
    """A turn stands at a tool call and waits for the client's outputs (protocol.md section 8)."""


class Move(enum.Enum):
    """What can happen to a lane. (What is said of each is printed in docs/states.md.)"""

    CREATE = "create"
    """The create whose turn it is begins (protocol.md section 1.7)."""
    REFUSE = "refuse"
    """A create is refused before ``response.created``, with one error frame (protocol.md section 4.1)."""
    PAUSE = "pause"
    """``response.done`` is sent: the model's turn left calls open (protocol.md section 8)."""
    APPEND = "append"
    """``response.append`` brings some of the outputs, others are still missing (protocol.md section 8)."""
    RESUME = "resume"
    """``response.append`` brings the last output, and sampling goes on (protocol.md section 8)."""
    TERMINAL = "terminal"
    """A terminal event is sent, the response's last (protocol.md section 3.4)."""


Table = dict[tuple[LaneState, Move], LaneState]

SHIPPED: Table = {
    (LaneState.IDLE, Move.CREATE): LaneState.ACTIVE,
    (LaneState.IDLE, Move.REFUSE): LaneState.IDLE,  # it is wrong by itself: a field, its form
    (LaneState.ACTIVE, Move.REFUSE): LaneState.IDLE,  # what it needs is not there: its parent, a route, room
    (LaneState.ACTIVE, Move.TERMINAL): LaneState.IDLE,
}
PROTOTYPE: Table = SHIPPED | {
    (LaneState.ACTIVE, Move.PAUSE): LaneState.SUSPENDED,
    (LaneState.SUSPENDED, Move.APPEND): LaneState.SUSPENDED,
    (LaneState.SUSPENDED, Move.RESUME): LaneState.ACTIVE,
    (LaneState.SUSPENDED, Move.TERMINAL): LaneState.IDLE,
}


class SteerState(enum.Enum):
    """Where steering input stands that was accepted."""

    QUEUED = "queued"
    """It waits for its target to come to a boundary (protocol.md section 2.3)."""
    OWING = "owing"
    """Its target has ended and is owed outputs; it waits for the create that brings them (protocol.md section 2.3)."""
    COMMITTED = "committed"
    """It is part of a response that was created (protocol.md section 2.3)."""
    FAILED = "failed"
    """It went back to the client (protocol.md section 2.3)."""


class SteerMove(enum.Enum):
    """What can happen to steering input."""

    OWE = "owe"
    """The target has ended with open calls: ``response.steer.pending`` (protocol.md section 2.3)."""
    COMMIT = "commit"
    """``response.created`` of the response that takes it is sent (protocol.md section 2.3)."""
    FAIL = "fail"
    """No response can take it any more: ``response.steer.failed`` (protocol.md section 2.3)."""


STEERING: dict[tuple[SteerState, SteerMove], SteerState] = {
    (SteerState.QUEUED, SteerMove.OWE): SteerState.OWING,
    (SteerState.QUEUED, SteerMove.COMMIT): SteerState.COMMITTED,
    (SteerState.QUEUED, SteerMove.FAIL): SteerState.FAILED,
    (SteerState.OWING, SteerMove.COMMIT): SteerState.COMMITTED,
    (SteerState.OWING, SteerMove.FAIL): SteerState.FAILED,
}
TABLES = {Mode.SHIPPED: SHIPPED, Mode.PROTOTYPE: PROTOTYPE}


def suspends(table: Table) -> bool:
    """Whether turns of this table wait inside themselves for the client's tools."""
    return (LaneState.ACTIVE, Move.PAUSE) in table
