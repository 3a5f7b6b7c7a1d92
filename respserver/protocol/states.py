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
    """Where a lane's one turn stands."""

    IDLE = "idle"
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Move(enum.Enum):
    """What can happen to a lane."""

    CREATE = "create"
    REFUSE = "refuse"
    PAUSE = "pause"
    APPEND = "append"
    RESUME = "resume"
    TERMINAL = "terminal"


Table = dict[tuple[LaneState, Move], LaneState]

SHIPPED: Table = {
    (LaneState.IDLE, Move.CREATE): LaneState.ACTIVE,
    (LaneState.ACTIVE, Move.REFUSE): LaneState.IDLE,
    (LaneState.ACTIVE, Move.TERMINAL): LaneState.IDLE,
}
PROTOTYPE: Table = SHIPPED | {
    (LaneState.ACTIVE, Move.PAUSE): LaneState.SUSPENDED,
    (LaneState.SUSPENDED, Move.APPEND): LaneState.SUSPENDED,
    (LaneState.SUSPENDED, Move.RESUME): LaneState.ACTIVE,
    (LaneState.SUSPENDED, Move.TERMINAL): LaneState.IDLE,
}
TABLES = {Mode.SHIPPED: SHIPPED, Mode.PROTOTYPE: PROTOTYPE}


def suspends(table: Table) -> bool:
    """Whether turns of this table wait inside themselves for the client's tools."""
    return (LaneState.ACTIVE, Move.PAUSE) in table
