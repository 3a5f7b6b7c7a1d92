"""Verdicts add up along a chain and survive being stored as a short text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.errors import ContentPolicyViolation
from respserver.state import StateError
from respserver.turn import safety
from respserver.turn.safety.base import MAX_CATEGORIES, PASS, Verdict, decode_verdict

names = st.lists(st.sampled_from(["a", "Self-harm", "violence/graphic", "x" * 64, "0._"]), max_size=5, unique=True).map(
    tuple
)
verdicts = st.just(PASS) | st.builds(Verdict, st.sampled_from(["flag", "block"]), names)


@settings(max_examples=50)
@given(verdicts)
def test_a_verdict_survives_being_stored(verdict):
    assert decode_verdict(verdict.encode()) == verdict


def test_the_stored_text_is_short_and_readable():
    assert PASS.encode() == ""
    assert Verdict("flag", ("violence", "self-harm")).encode() == "flag violence self-harm"


@pytest.mark.parametrize("text", ["hold", "flag  ", "flag vio\nlence", "block " + "x" * 65, " "])
def test_a_damaged_text_is_a_state_error(text):
    with pytest.raises(StateError):
        decode_verdict(text)


@settings(max_examples=50)
@given(verdicts, verdicts, verdicts)
def test_merging_keeps_the_worse_action_and_every_category_in_any_grouping(one, two, three):
    merged = one.merged(two).merged(three)
    assert merged == one.merged(two.merged(three))
    assert set(merged.categories) == {*one.categories, *two.categories, *three.categories}
    assert merged.blocks == any(verdict.blocks for verdict in (one, two, three))
    assert (merged == PASS) == all(verdict == PASS for verdict in (one, two, three))


@settings(max_examples=50)
@given(verdicts)
def test_a_pass_changes_nothing_and_repeating_neither(verdict):
    assert verdict.merged(PASS) == PASS.merged(verdict) == verdict.merged(verdict) == verdict


def test_our_own_categories_come_first():
    merged = Verdict("flag", ("a", "b")).merged(Verdict("block", ("c", "a")))
    assert merged == Verdict("block", ("a", "b", "c"))


def test_the_categories_of_a_long_chain_stay_bounded():
    verdict = PASS
    for index in range(3 * MAX_CATEGORIES):
        verdict = verdict.merged(Verdict("flag", (f"c{index}",)))
    assert verdict.categories == tuple(f"c{index}" for index in range(MAX_CATEGORIES))


def test_only_a_block_is_raised_and_it_names_its_categories():
    PASS.raise_if_blocked()
    Verdict("flag", ("spam",)).raise_if_blocked()
    with pytest.raises(ContentPolicyViolation) as caught:
        Verdict("block", ("violence", "spam")).raise_if_blocked()
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "content_policy_violation", "input")
    assert error.categories == ("violence", "spam")
    assert error.message == "The input was refused by the content policy of this server (violence, spam)."


def test_a_block_without_categories_is_a_whole_sentence():
    assert ContentPolicyViolation().message == "The input was refused by the content policy of this server."


def test_the_room_hands_on_what_it_lists():
    assert all(hasattr(safety, name) for name in safety.__all__)
