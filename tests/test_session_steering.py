"""Steering on a running session: what becomes of each submission, and what the client sees in which order."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from respserver.engines.sim import Script, call, delay, reasoning, step
from tests.support.live import text_of
from tests.support.steering import begun, heard, named, steer, turns
from tests.support.talk import Talk, services, settled, spy_of

STOPPED = Script.of([reasoning("Hm."), delay(5), "never said"], "left then")
"""A model that falls silent behind its first item."""
SPEAKING = Script.of(step("a few words more, one a second", tps=1.0), "left then")
"""A model that is still in its only item after five seconds."""


async def test_a_steered_response_stops_behind_its_item_and_a_successor_follows(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    parts = services(STOPPED)
    talk = Talk(nursery, parts)
    target = await begun(talk, metadata={"k": "v"}, instructions="Be brief.", max_output_tokens=100)
    await settled()
    steer(talk, target)
    frames = await heard(talk, 10)
    assert turns(frames) == ["steer.accepted", "incomplete", "created", "completed"]
    accepted = named(frames, "steer.accepted")[0]["steer"]
    assert accepted["previous_response_id"] == target
    assert (accepted["id"][:6], len(accepted["id"])) == ("steer_", 38)
    stopped = named(frames, "incomplete")[0]["response"]
    assert (stopped["id"], stopped["incomplete_details"]) == (target, {"reason": "steered"})
    assert [item["type"] for item in stopped["output"]] == ["reasoning"]
    followed = named(frames, "completed")[0]["response"]
    assert (followed["previous_response_id"], text_of(followed)) == (target, "left then")
    assert (followed["metadata"], followed["instructions"], followed["max_output_tokens"]) == (
        {"k": "v"}, "Be brief.", 100,
    )  # fmt: skip
    assert spy_of(parts).contexts[-1].splitlines()[-1] == "user: go left"
    assert parts.metrics.steers == 1


@pytest.mark.parametrize("seconds", range(26))
async def test_it_works_at_any_token(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, seconds: int
) -> None:
    said = step(reasoning("Let me think."), "The first answer.", "And a second one.", tps=1.0)
    parts = services(Script.of(said, "left then"))
    talk = Talk(nursery, parts)
    target = await begun(talk)
    before = await heard(talk, seconds + 0.5)
    is_over = "completed" in turns(before)
    steer(talk, target)
    frames = before + await heard(talk, 100)
    if is_over:
        assert turns(frames) == ["completed", "steer.failed"]
        return
    end = named(frames, "incomplete") or named(frames, "completed")[:1]
    first = end[0]["response"]
    assert first["id"] == target
    assert all(item["status"] == "completed" for item in first["output"])
    is_whole = len(first["output"]) == 3
    assert first["status"] == ("completed" if is_whole else "incomplete")
    assert turns(frames)[-2:] == ["created", "completed"]
    followed = frames[-1]["response"]
    # A script counts what the model has said so far: who has said nothing is asked for its first step again.
    assert followed["previous_response_id"] == target
    assert text_of(followed) == ("left then" if first["output"] else "The first answer.And a second one.")
    numbers = [frame["sequence_number"] for frame in frames[: frames.index(end[0]) + 1]]
    assert numbers == list(range(2, 2 + len(numbers)))  # the steering event has its place among the target's
    context = spy_of(parts).contexts[-1]
    assert [text in context for text in ("think.", "first answer.", "second one.")] == [
        number < len(first["output"]) for number in range(3)
    ]


async def test_one_that_comes_to_its_natural_end_is_complete_and_a_successor_follows(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    talk = Talk(nursery, services(Script.of(step("a few words more", tps=1.0), "left then")))
    target = await begun(talk)
    await heard(talk, 5.5)
    steer(talk, target)
    assert turns(await heard(talk, 100)) == ["steer.accepted", "completed", "created", "completed"]


async def test_several_submissions_are_followed_together_in_their_order(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    parts = services(SPEAKING)
    talk = Talk(nursery, parts)
    target = await begun(talk)
    await heard(talk, 5.5)
    steer(talk, target, "one")
    steer(talk, target, [{"role": "user", "content": [{"type": "input_text", "text": "two"}]}])
    steer(talk, target, [{"type": "message", "role": "user", "content": "three"}])
    frames = await heard(talk, 60)
    assert turns(frames) == ["steer.accepted"] * 3 + ["completed", "created", "completed"]
    assert spy_of(parts).contexts[-1].splitlines()[-3:] == ["user: one", "user: two", "user: three"]


async def test_a_successor_can_be_steered_as_well(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    talk = Talk(nursery, services(Script.of([reasoning("Hm."), delay(5), "no"], ["No.", delay(5), "no"], "at last")))
    target = await begun(talk)
    await settled()
    steer(talk, target)
    frames = await heard(talk, 1)
    (created,) = named(frames, "created")
    steer(talk, created["response"]["id"], "no, right")
    frames += await heard(talk, 20)
    assert turns(frames) == [
        "steer.accepted", "incomplete", "created", "steer.accepted", "incomplete", "created", "completed",
    ]  # fmt: skip
    assert text_of(frames[-1]["response"]) == "at last"


async def test_a_successor_comes_before_creates_that_wait_on_its_lane(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    talk = Talk(nursery, services(STOPPED))
    target = await begun(talk)
    await settled()
    talk.create(input="another chain")
    steer(talk, target)
    frames = await heard(talk, 30)
    parents = [frame["response"]["previous_response_id"] for frame in named(frames, "created")]
    assert parents == [target, None]


@pytest.mark.parametrize("said", [[delay(3600), "never"], [reasoning("Hm."), delay(3600), "never"]])
async def test_a_model_that_is_silent_between_items_is_not_waited_for(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, said: Any
) -> None:
    parts = services(Script.of(said, "left then"))
    talk = Talk(nursery, parts)
    target = await begun(talk)
    await settled()
    steer(talk, target)
    frames = await heard(talk, 1)
    assert turns(frames)[:3] == ["steer.accepted", "incomplete", "created"]
    assert trio.current_time() < 2


async def test_a_model_that_is_silent_behind_a_call_is(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The call's output comes first, so the response goes on to its end."""
    talk = Talk(nursery, services(Script.of([call("look"), delay(60), "Wait."])))
    target = await begun(talk)
    await settled()
    steer(talk, target)
    assert turns(await heard(talk, 59)) == ["steer.accepted"]
    assert turns(await heard(talk, 2)) == ["completed", "steer.pending"]
