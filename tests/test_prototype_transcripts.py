"""Every edge of prototype mode as a conversation in ``tests/transcripts``: through the rules alone, through a session
with a clock of its own, and over a port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Mode
from tests.support.live import Wire
from tests.support.pure_end import PureEnd
from tests.support.spy import Spy
from tests.support.transcript import FOLDER, Player, Transcript
from tests.support.transcript_ends import SessionEnd, SocketEnd

TRANSCRIPTS = {path.stem: Transcript(path) for path in sorted(FOLDER.glob("*.txt"))}


def on(road: str) -> pytest.MarkDecorator:
    """The transcripts that are played on a road."""
    played = {name: each for name, each in TRANSCRIPTS.items() if road in each.roads}
    slow = [pytest.mark.slow]
    cases = [pytest.param(each, id=name, marks=slow if each.is_slow else []) for name, each in played.items()]
    return pytest.mark.parametrize("transcript", cases)


def play_alone(transcript: Transcript) -> PureEnd:
    """Play it through the rules alone."""
    end = PureEnd(transcript)
    talk = Player(transcript, end).play()
    with pytest.raises(StopIteration):  # nothing is ever waited for
        talk.send(None)
    return end


@on("pure")
def test_the_rules_alone_hold_the_conversation(transcript: Transcript) -> None:
    end = play_alone(transcript)
    end.drain()
    assert end.connection.idle


@on("session")
async def test_a_session_holds_the_conversation_and_keeps_nothing(
    transcript: Transcript, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    end = SessionEnd(transcript, nursery, mock_clock)
    await Player(transcript, end).play()
    await end.over()


@on("socket")
async def test_a_port_holds_the_conversation(transcript: Transcript, serve: Any, connect: Any) -> None:
    spy = Spy(transcript.script)
    server = await serve(engine=spy, mode=Mode.PROTOTYPE, limits=transcript.limits)
    wire: Wire = await connect(server)
    await Player(transcript, SocketEnd(spy, wire)).play()


GOOD = """
C response.create {"input": "go"}
S response.created {"response": {"id": "$r"}}
M user: go
S response.completed {"response": {"id": "$r", "output": [{"content": [{"text": "hi"}]}]}}
"""
WRONG = {
    "a value": ('"text": "hi"', '"text": "ho"', "text is 'hi'"),
    "a field": ('"output"', '"outputs"', "outputs is missing"),
    "a list": ('[{"content"', '["...", {"content"', "output has 1 entries"),
    "another name": ('{"id": "$r", "output"', '{"id": "$r", "status": "$r", "output"', "is not $r"),
    "a type": ("response.completed", "response.done", "got {"),
    "a message too many": ("\nS response.completed", "\nS response.created\nS response.completed", "got {"),
    "a message too few": ("S response.created", "S response.in_progress", "got {"),
    "a context": ("M user: go", "M user: stop", "the model was given: user: go"),
    "an untold context": ("M user: go\n", "M user: go\nM user: go\n", "the model was not asked"),
    "a name": ("go", "$who", "nothing was called $who"),
}


def held_against(tmp_path: Path, body: str) -> None:
    path = tmp_path / "case.txt"
    path.write_text(f'# A case.\nstep = [{{ text = "hi" }}]\n---{body}', "utf-8")
    play_alone(Transcript(path))


@pytest.mark.parametrize("case", list(WRONG))
def test_what_does_not_fit_is_told_with_its_line(tmp_path: Path, case: str) -> None:
    right, wrong, problem = WRONG[case]
    held_against(tmp_path, GOOD)
    with pytest.raises(AssertionError, match=r"case\.txt:\d+: ") as caught:
        held_against(tmp_path, GOOD.replace(right, wrong, 1))
    assert problem in str(caught.value)


def test_a_message_that_nobody_wrote_down_is_noticed_at_the_end(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="too much: "):
        held_against(tmp_path, GOOD[: GOOD.index("S response.completed")])
