"""Codex CLI 0.92.0, which echoes the server's items in each append, in long rollouts: whatever it sends back, the
model's context grows by what is new, and by nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from respserver.config import Config, Limits, Mode
from respserver.embed import RunningServer, start_server
from respserver.engines.sim import Script, call, custom, reasoning
from respserver.tokens.special import Special
from tests.clients.codex_kit import run_early_codex
from tests.support.spy import Spy, in_words

pytestmark = [pytest.mark.client, pytest.mark.codex, pytest.mark.slow]

PATCH = "*** Begin Patch\n*** Add File: made.txt\n+made by a patch\n*** End Patch"
SCRIPT = Script.of(
    [
        reasoning("Two things to look at."),
        "I look.",
        call("shell_command", command="echo done"),
        call("shell_command", command="echo twice"),
    ],
    [reasoning("Now a file."), custom("apply_patch", PATCH)],
    [reasoning("Is it there?"), call("shell_command", command="cat made.txt")],
    [call("shell_command", command="ls"), custom("apply_patch", PATCH.replace("made.txt", "other.txt"))],
    "All done.",
)
TWO_TURNS = Script.of(
    [reasoning("First."), "I look.", call("shell_command", command="echo done"), call("shell_command", command="ls")],
    "The first is done.",
    [reasoning("Second."), custom("apply_patch", PATCH), call("shell_command", command="echo done")],
    "All done.",
)
SAID = [4, 2, 2, 2]
"""Items of each step that leaves calls open."""
OWED = [2, 1, 1, 2]


@pytest.fixture
def spy() -> Spy:
    return Spy(SCRIPT)


@pytest.fixture
def server(spy: Spy) -> Iterator[RunningServer]:
    config = Config(port=0, mode=Mode.PROTOTYPE, limits=Limits(grace_seconds=0.0))
    with start_server(config, engine=spy) as running:
        yield running


def test_a_rollout_with_pauses_of_every_kind_counts_no_echoed_item_twice(server: RunningServer, spy: Spy) -> None:
    run = run_early_codex("--version", "0.92.0", f"{server.address.port}", says="done")
    assert run.returncode == 0, run.stderr
    assert len(spy.context_ids) == 5
    given = spy.given[-4:]  # in front of them come the head and the first input
    assert [items_of(ids) for ids in given] == OWED
    for before, after, said, owed in zip(spy.context_ids, spy.context_ids[1:], SAID, OWED, strict=False):
        assert after[: len(before)] == before
        assert items_of(after[len(before) :]) == said + owed
    last = in_words(spy.context_ids[-1])
    assert last.count("I look.") == last.count("Two things to look at.") == 1
    assert "made by a patch" in in_words(given[2])  # the command has printed what the patch has made
    assert server.metrics.pauses == 4
    assert server.metrics.sequences_opened == 1


def items_of(ids: list[int]) -> int:
    """How many items begin in a stretch of a context."""
    return ids.count(Special.START)


def test_two_user_turns_in_one_process_are_one_context_that_grows(server: RunningServer, spy: Spy) -> None:
    """This version opens a new connection for its second turn and sends everything again, reasoning sealed."""
    spy.script = TWO_TURNS
    run = run_early_codex("--version", "0.92.0", "--turns", "2", f"{server.address.port}", says="done")
    assert run.returncode == 0, run.stderr
    assert len(spy.context_ids) == 4
    for before, after in itertools.pairwise(spy.context_ids):
        assert after[: len(before)] == before
    last = in_words(spy.context_ids[-1])
    for said in ("First.", "I look.", "The first is done.", "Second."):
        assert last.count(said) == 1, last
