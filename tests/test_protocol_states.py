"""The tables: every state and move, written out a second time."""

from __future__ import annotations

import itertools

import pytest

from respserver.config import Mode
from respserver.protocol.lane import Lane
from respserver.protocol.states import PROTOTYPE, SHIPPED, TABLES, LaneState, Move, suspends

I, A, S = LaneState.IDLE, LaneState.ACTIVE, LaneState.SUSPENDED  # noqa: E741 - read as columns of a table

#            create  refuse  pause  append  resume  terminal
LEGAL: dict[Mode, dict[LaneState, list[LaneState | None]]] = {
    Mode.SHIPPED: {
        I: [A, I, None, None, None, None],
        A: [None, I, None, None, None, I],
        S: [None, None, None, None, None, None],
    },
    Mode.PROTOTYPE: {
        I: [A, I, None, None, None, None],
        A: [None, I, S, None, None, I],
        S: [None, None, None, S, A, I],
    },
}


@pytest.mark.parametrize(
    ("mode", "state", "move"), list(itertools.product(Mode, LaneState, Move)), ids=lambda value: value.value
)
def test_each_move_is_legal_or_not(mode: Mode, state: LaneState, move: Move) -> None:
    assert TABLES[mode].get((state, move)) == LEGAL[mode][state][list(Move).index(move)]


def test_the_shipped_table_is_a_part_of_the_prototypes() -> None:
    assert SHIPPED.items() < PROTOTYPE.items()


def test_only_prototype_turns_wait_inside_themselves() -> None:
    assert (suspends(SHIPPED), suspends(PROTOTYPE)) == (False, True)
    assert (Lane(Mode.SHIPPED).suspends, Lane(Mode.PROTOTYPE).suspends) == (False, True)
