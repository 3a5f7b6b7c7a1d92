"""Steering that cannot be followed at once, or not at all: outputs are owed, the target is gone, the input is wrong."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from respserver.engines.sim import Script, call, custom, delay, reasoning, step
from tests.support.live import Frame, calls_of, output
from tests.support.steering import begun, heard, named, steer, turns
from tests.support.talk import Talk, services, settled, spy_of

TOOLS = [{"type": "function", "name": "first", "parameters": {}}, {"type": "custom", "name": "second"}]
OWING = Script.of(step(call("first", where="at the pier"), custom("second", "ls"), tps=1.0), "left then", "and on")
SPEAKING = Script.of(step("a few words more, one a second", tps=1.0), "left then")
"""A model that is still in its only item after five seconds."""
STOPPED = Script.of([reasoning("Hm."), delay(5), "never said"], "left then")
"""A model that falls silent behind its first item."""


async def owed(talk: Talk, *given: str, **fields: Any) -> tuple[Frame, list[Frame]]:
    """Steer a turn while it makes the first of two calls: its terminal Response, and the frames behind that."""
    target = await begun(talk, tools=TOOLS, **fields)
    await heard(talk, 8.5)
    for text in given:
        steer(talk, target, text)
    frames = await heard(talk, 60)
    (completed,) = named(frames, "completed")
    return completed["response"], frames[frames.index(completed) + 1 :]


def outputs_of(response: Frame) -> list[Frame]:
    return [output(made, f"out of {made['name']}") for made in calls_of(response)]


class TestOwing:
    async def test_a_target_that_owes_outputs_says_what_it_waits_for(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        response, frames = await owed(talk, "one", "two")
        assert turns(frames) == ["steer.pending"] * 2
        first, second = calls_of(response)
        for frame in frames:
            assert frame["reason"] == "waiting_for_required_input"
            assert frame["required_input"] == [
                {"type": "function_call_output", "call_id": first["call_id"], "name": "first"},
                {"type": "custom_tool_call_output", "call_id": second["call_id"]},
            ]
        assert [frame["steer"]["previous_response_id"] for frame in frames] == [response["id"]] * 2

    async def test_what_waits_comes_before_the_outputs(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        response, _ = await owed(talk, "one", "two")
        talk.create(previous_response_id=response["id"], input=outputs_of(response), instructions="Own settings.")
        frames = await heard(talk, 5)
        assert turns(frames) == ["created", "completed"]
        assert frames[-1]["response"]["instructions"] == "Own settings."
        assert spy_of(talk.services).contexts[-1].splitlines()[-4:] == [
            "user: one",
            "user: two",
            "tool first: out of first",
            "tool second: out of second",
        ]
        talk.create(previous_response_id=frames[-1]["response"]["id"], input="more")
        await heard(talk, 5)
        assert spy_of(talk.services).contexts[-1].count("user: one") == 1

    async def test_its_numbers_go_on_behind_the_terminal_event(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        target = await begun(talk, tools=TOOLS)
        await heard(talk, 8.5)
        steer(talk, target)
        frames = await heard(talk, 60)
        steer(talk, target, "too late")
        frames += await heard(talk)
        numbers = [frame["sequence_number"] for frame in frames if frame["type"] != "response.output_item.added"]
        assert turns(frames) == ["steer.accepted", "completed", "steer.pending", "steer.failed"]
        assert numbers[-3:] == list(range(numbers[-3], numbers[-3] + 3))

    async def test_what_waits_for_outputs_counts_among_what_may_wait_on_the_lane(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING, pending_steers=2))
        await owed(talk, "one")
        target = await begun(talk, tools=TOOLS)
        steer(talk, target, "two")
        steer(talk, target, "three")
        accepted, refused = [frame for frame in await heard(talk) if "steer" in frame]
        assert accepted["type"] == "response.steer.accepted"
        assert (refused["steer"]["input"], refused["error"]["code"]) == ("three", "too_many_pending_steers")

    async def test_a_create_that_is_refused_gives_the_input_back(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        response, _ = await owed(talk, "one", store=False)
        talk.create(previous_response_id=response["id"], input=outputs_of(response)[:1])
        error, failed = await heard(talk)
        assert error["error"]["code"] == "no_tool_output_found"
        assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "successor_creation_failed")
        assert (failed["steer"]["input"], failed["steer"]["id"][:6]) == ("one", "steer_")
        assert failed["error"]["message"] == (
            "We couldn't start the next response. Send this steering input again with response.create."
        )

    async def test_one_that_cannot_be_read_does_too(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        response, _ = await owed(talk, "one")
        talk.create(previous_response_id=response["id"], input=42)
        assert turns(await heard(talk)) == ["error", "steer.failed"]

    async def test_a_warm_up_with_the_outputs_leaves_it_to_the_create_behind(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        response, _ = await owed(talk, "one")
        talk.create(previous_response_id=response["id"], input=outputs_of(response), generate=False)
        frames = await heard(talk)
        assert turns(frames) == ["created", "completed"]
        talk.create(previous_response_id=frames[-1]["response"]["id"], input="on")
        assert turns(await heard(talk, 5)) == ["created", "completed"]
        assert spy_of(talk.services).contexts[-1].splitlines()[-2:] == ["user: one", "user: on"]

    async def test_a_fork_on_another_lane_takes_none_of_it(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        response, _ = await owed(talk, "one")
        outputs = outputs_of(response)
        talk.create(previous_response_id=response["id"], input=outputs, stream_id="fork")
        await heard(talk, 5)
        assert "user: one" not in spy_of(talk.services).contexts[-1]
        talk.create(previous_response_id=response["id"], input=outputs)
        await heard(talk, 5)
        assert "user: one" in spy_of(talk.services).contexts[-1]

    async def test_another_chain_on_the_lane_leaves_it_waiting(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(OWING))
        response, _ = await owed(talk, "one")
        talk.create(input="something else")
        await heard(talk, 60)
        talk.create(previous_response_id=response["id"], input=outputs_of(response))
        await heard(talk, 5)
        assert "user: one" in spy_of(talk.services).contexts[-1]


async def test_a_create_that_is_refused_because_the_server_is_busy_leaves_it_waiting(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    parts = services(OWING, active_turns=1, waiting_turns=0)
    talk = Talk(nursery, parts)
    response, _ = await owed(talk, "one")
    other = Talk(nursery, parts, beside=talk)
    running = await begun(other, tools=TOOLS)
    create = {"previous_response_id": response["id"], "input": outputs_of(response)}
    talk.create(**create)
    (error,) = await heard(talk)
    assert error["error"]["code"] == "server_busy"
    await heard(other, 60)
    assert running
    talk.create(**create)
    await heard(talk, 5)
    assert "user: one" in spy_of(parts).contexts[-1]


class TestFailures:
    async def test_a_target_that_fails_gives_the_input_back(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        said = step("a few words more, one a second", tps=1.0, fault="broken", fault_after_tokens=8)
        talk = Talk(nursery, services(Script.of(said)))
        target = await begun(talk)
        await heard(talk, 5.5)
        given = [{"role": "user", "content": "go  left"}]
        steer(talk, target, given)
        frames = await heard(talk, 10)
        assert turns(frames) == ["steer.accepted", "failed", "steer.failed"]
        (accepted,), (failed,) = named(frames, "steer.accepted"), named(frames, "steer.failed")
        assert failed["steer"] == {**accepted["steer"], "input": given}
        assert failed["error"]["code"] == "successor_creation_failed"

    async def test_a_successor_that_is_refused_is_heard_of_only_as_failed_steering(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        parts = services(STOPPED)
        talk = Talk(nursery, parts)
        target = await begun(talk)
        await settled()
        steer(talk, target)
        parts.router.replace([])  # the model is gone when the successor begins
        frames = await heard(talk, 10)
        assert turns(frames) == ["steer.accepted", "incomplete", "steer.failed"]
        assert frames[-1]["error"]["code"] == "successor_creation_failed"
        assert parts.metrics.refused == 1

    async def test_shutdown_starts_no_successor(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(SPEAKING, grace_seconds=30.0))
        target = await begun(talk)
        await heard(talk, 5.5)
        steer(talk, target)
        await settled()
        talk.stop.set()
        frames = [await talk.socket.hear()]
        while frames[-1]["type"] != "response.steer.failed":
            frames.append(await talk.socket.hear())
        assert turns(frames) == ["steer.accepted", "completed", "steer.failed"]
        await talk.over.wait()
        assert talk.socket.code == 1001

    async def test_nothing_is_left_when_the_client_leaves(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        parts = services(STOPPED)
        talk = Talk(nursery, parts)
        target = await begun(talk)
        steer(talk, target)
        await settled()
        talk.socket.leave()
        await talk.over.wait()
        await settled()
        assert (spy_of(parts).sequences_open, parts.slots.active) == (0, 0)
