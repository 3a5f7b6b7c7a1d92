"""What becomes of steering input, by the rules alone: each submission has one end, and all that is kept has a bound."""

from __future__ import annotations

import pytest
from msgspec import Raw

from respserver.errors import ResponseAlreadyCompleted, ResponseNotActive, SteerTargetNotFound, TooManySteers
from respserver.protocol.states import STEERING, SteerMove, SteerState
from respserver.protocol.steering import MAX_ENDED, Steer, Steering
from tests.support.pure import items, user


def steer(response_id: str, number: int = 1) -> Steer:
    return Steer(
        id=f"steer_{number}", response_id=response_id, items=items(user("left")), input=Raw(b'"left"'), size=100
    )


def running(response_id: str = "resp_1", limit: int = 32) -> Steering:
    steering = Steering(limit)
    steering.open(response_id, is_supported=True, commits=[])
    return steering


def end(steering: Steering, *, completed: bool = True) -> None:
    steering.end(completed=completed, next_number=7)


def test_each_submission_comes_to_one_end() -> None:
    ends = {SteerState.COMMITTED, SteerState.FAILED}
    assert not [state for state, _ in STEERING if state in ends]
    assert {STEERING[state, move] for state, move in STEERING if move is not SteerMove.OWE} == ends


def test_what_waits_is_counted_whether_its_target_runs_or_is_owed_outputs() -> None:
    steering = running(limit=2)
    steering.accept(steer("resp_1", 1))
    end(steering)
    steering.owe("resp_1", [])
    steering.open("resp_2", is_supported=True, commits=[])
    steering.accept(steer("resp_2", 2))
    assert steering.size == 200
    with pytest.raises(TooManySteers):
        steering.accept(steer("resp_2", 3))
    steering.fail(steering.owed("resp_1"))
    steering.accept(steer("resp_2", 4))


def test_late_steering_is_told_how_its_target_ended() -> None:
    steering = running("resp_1")
    end(steering)
    steering.open("resp_2", is_supported=True, commits=[])
    end(steering, completed=False)
    for response_id, error in (
        ("resp_1", ResponseAlreadyCompleted),
        ("resp_2", ResponseNotActive),
        ("resp_3", SteerTargetNotFound),
    ):
        with pytest.raises(error):
            steering.accept(steer(response_id))


def test_so_many_ended_responses_are_remembered_and_those_with_input_that_waits() -> None:
    steering = Steering(MAX_ENDED + 1)
    for number in range(MAX_ENDED + 1):
        steering.open(f"resp_{number}", is_supported=True, commits=[])
        steering.accept(steer(f"resp_{number}", number))
        end(steering)
        steering.owe(f"resp_{number}", [])
    assert len(steering.ended) == MAX_ENDED + 1  # there is more to tell about each of them
    for number in range(1, MAX_ENDED + 1):
        steering.fail(steering.owed(f"resp_{number}"))
    steering.open("resp_last", is_supported=True, commits=[])
    end(steering)
    assert "resp_0" in steering.ended
    assert "resp_1" not in steering.ended


def test_a_warm_up_moves_what_waits_and_the_next_response_takes_it_from_there() -> None:
    steering = running("resp_1")
    steering.accept(steer("resp_1"))
    end(steering)
    steering.owe("resp_1", [])
    steering.warmed_up("resp_1", "resp_w")
    assert steering.owed("resp_1") == []
    (waiting,) = steering.owed("resp_w")
    steering.open("resp_2", is_supported=True, commits=[waiting])
    assert (waiting.state, steering.owed("resp_w"), steering.size) == (SteerState.COMMITTED, [], 0)
