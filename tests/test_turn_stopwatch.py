"""The stopwatch of a turn: each moment belongs to one stage, and what it shows fits where it is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.ledger.base import Timings
from respserver.schema.codec import encode
from respserver.schema.request import MAX_METADATA_VALUE, TIMINGS_KEY
from respserver.turn.response import with_timings
from respserver.turn.stopwatch import STAGES, Stage, Stopwatch
from tests.support.pages import DOCS, text_of

MOMENTS = {"first_token", "total"}

stays = st.lists(st.tuples(st.sampled_from(STAGES), st.integers(0, 1000)), max_size=8)
"""Stages, and how many seconds the turn stays in each."""


class Clock:
    """Stands still until it is told to move on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(watch: Stopwatch, clock: Clock, stays: Sequence[tuple[Stage, int]]) -> None:
    for stage, seconds in stays:
        watch.begin(stage)
        clock.now += seconds


def spans(timings: Timings) -> dict[str, float]:
    return {name: ms for name, ms in msgspec.structs.asdict(timings).items() if name not in MOMENTS}


def in_ms(stays: Sequence[tuple[Stage, int]]) -> dict[str, float]:
    expected = dict.fromkeys(STAGES, 0.0)
    for stage, seconds in stays:
        expected[stage] += seconds * 1000.0
    return {str(stage): ms for stage, ms in expected.items()}


def test_a_record_has_a_field_for_each_stage() -> None:
    assert set(Timings.__struct_fields__) == {*STAGES, *MOMENTS}


@settings(max_examples=50)
@given(stays)
def test_each_moment_belongs_to_one_stage_and_all_but_post_add_up_to_the_total(stays: list[tuple[Stage, int]]) -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    run(watch, clock, stays)
    timings = watch.read()
    assert spans(timings) == in_ms(stays)
    assert timings.total == sum(spans(timings).values()) - timings.post


@settings(max_examples=50)
@given(stays, st.integers(0, 1000), stays)
def test_what_a_message_has_taken_is_the_turns_that_it_wakes(
    turn: list[tuple[Stage, int]], away: int, message: list[tuple[Stage, int]]
) -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    run(watch, clock, [*turn, ("suspended", away)])
    second = Stopwatch(clock)
    run(second, clock, message)
    watch.go_on(second)
    clock.now += 3
    timings = watch.read()
    last = message[-1][0] if message else "receive"
    assert spans(timings) == in_ms([*turn, ("suspended", away), *message, (last, 3)])
    assert timings.total == sum(spans(timings).values()) - timings.post


def test_reading_changes_nothing() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    run(watch, clock, [("sample", 2)])
    assert watch.read() == watch.read()
    clock.now += 1
    assert watch.read().sample == 3000.0


def test_only_the_first_first_token_counts() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    assert watch.read().first_token is None
    run(watch, clock, [("sample", 2)])
    watch.mark_first_token()
    run(watch, clock, [("sample", 2)])
    watch.mark_first_token()
    assert watch.read().first_token == 2000.0


def test_times_are_told_to_the_microsecond() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 0.0123456
    assert watch.read().receive == 12.346


def test_what_a_turn_did_not_pass_is_left_out_of_json() -> None:
    assert encode(Timings(sample=1.5, total=1.5)) == b'{"sample":1.5,"total":1.5}'


def test_thirty_years_in_every_stage_fit_into_a_metadata_value() -> None:
    longest = dict.fromkeys(Timings.__struct_fields__, 999_999_999_999.999)
    assert len(with_timings({}, Timings(**longest))[TIMINGS_KEY]) <= MAX_METADATA_VALUE


@pytest.mark.parametrize(
    ("pairs", "shown"),
    [
        pytest.param({}, True, id="none"),
        pytest.param({f"key {number}": "" for number in range(15)}, True, id="room for one"),
        pytest.param({f"key {number}": "" for number in range(16)}, False, id="no room"),
    ],
)
def test_the_clients_own_pairs_come_first(pairs: dict[str, str], shown: bool) -> None:
    metadata = with_timings(pairs, Timings(total=1.0))
    assert metadata == ({**pairs, TIMINGS_KEY: '{"total":1.0}'} if shown else pairs)
    assert len(metadata) <= 16


def test_each_of_them_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", text_of(DOCS / "timings.md"), re.MULTILINE)
    assert sorted(rows) == sorted(Timings.__struct_fields__)
