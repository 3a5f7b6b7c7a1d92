"""Steering that is not even accepted, and the lane that every event about steering bears."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from respserver.config import Mode
from respserver.engines.sim import Script, delay, fault, reasoning, step
from tests.support.live import Frame, text_of
from tests.support.steering import begun, heard, named, steer, turns
from tests.support.talk import Talk, services, settled, spy_of

SPEAKING = Script.of(step("a few words more, one a second", tps=1.0), "left then")
"""A model that is still in its only item after five seconds."""
STOPPED = Script.of([reasoning("Hm."), delay(5), "never said"], "left then")
"""A model that falls silent behind its first item."""


class TestRefusals:
    """What is not even accepted has no id, and its input goes back as it came."""

    async def refusal(self, talk: Talk, target: str, given: Any = "go left", **fields: Any) -> Frame:
        steer(talk, target, given, **fields)
        (frame,) = [frame for frame in await heard(talk) if "steer" in frame]
        assert frame["type"] == "response.steer.failed"
        assert frame["steer"] == {"previous_response_id": target, "input": given}
        return frame

    async def test_a_response_that_nobody_knows(self, nursery: trio.Nursery) -> None:
        frame = await self.refusal(Talk(nursery, services()), "resp_nope")
        assert (frame["error"]["code"], frame["sequence_number"]) == ("response_not_found", 0)

    async def test_one_of_another_connection(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        parts = services(STOPPED)
        talk = Talk(nursery, parts)
        target = await begun(talk)
        frame = await self.refusal(Talk(nursery, parts, beside=talk), target)
        assert frame["error"]["code"] == "response_not_found"

    async def test_one_that_is_complete(self, nursery: trio.Nursery) -> None:
        talk = Talk(nursery, services())
        target = await begun(talk)
        await heard(talk)
        frame = await self.refusal(talk, target)
        assert frame["error"]["code"] == "response_already_completed"
        assert frame["error"]["message"] == f"Response '{target}' has already completed."

    @pytest.mark.parametrize(
        "said", [[fault("broken")], [delay(5), "More words than sixteen, which is " + 20 * "very "]]
    )
    async def test_one_that_failed_or_was_cut(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, said: Any
    ) -> None:
        talk = Talk(nursery, services(Script.of(said)))
        target = await begun(talk, max_output_tokens=16)
        await heard(talk, 10)
        assert (await self.refusal(talk, target))["error"]["code"] == "response_not_active"

    async def test_a_warm_up(self, nursery: trio.Nursery) -> None:
        parts = services()
        spy_of(parts).gate = trio.Event()
        talk = Talk(nursery, parts)
        talk.create(input="go", generate=False)
        target = (await talk.socket.hear())["response"]["id"]
        assert (await self.refusal(talk, target))["error"]["code"] == "steering_not_supported"

    async def test_a_route_that_has_no_steering(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        parts = services(STOPPED)
        parts.router.replace([msgspec.structs.replace(route, steering=False) for route in parts.router.routes])
        talk = Talk(nursery, parts)
        target = await begun(talk)
        assert (await self.refusal(talk, target))["error"]["code"] == "steering_not_supported"

    async def test_more_than_may_wait(self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
        talk = Talk(nursery, services(SPEAKING))
        target = await begun(talk)
        await heard(talk, 5.5)
        for _ in range(32):
            steer(talk, target)
        frames = await heard(talk)
        assert len(named(frames, "steer.accepted")) == 32
        error = (await self.refusal(talk, target))["error"]
        assert error["code"] == "too_many_pending_steers"
        assert error["message"].endswith("At most 32 submissions may wait on a lane.")

    async def test_more_than_there_is_room_for(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(SPEAKING, queued_bytes=4000))
        target = await begun(talk)
        await heard(talk, 5.5)
        steer(talk, target, "x" * 2500)
        await heard(talk)
        error = (await self.refusal(talk, target, "y" * 2500))["error"]
        assert error["code"] == "too_many_pending_steers"
        assert error["message"].endswith("steering input of this connection may hold 4000 bytes together.")

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("", "'input'"),
            ([], "empty array"),
            (5, "'input'"),
            (["x"], "input[0]"),
            ([{"role": "assistant", "content": "x"}], "input[0].role"),
            ([{"content": "x"}], "input[0].role"),
            ([{"role": "user"}], "input[0].content"),
            ([{"role": "user", "content": 5}], "input[0].content"),
            (
                [{"type": "function_call_output", "call_id": "c", "output": "x"}],
                "Invalid 'input[0].type': only messages of the user may steer; bring outputs with response.create.",
            ),
            (None, "Missing required parameter: 'input'."),
            ([{"type": "reasoning", "summary": []}], "'input[0].type': only messages of the user may steer."),
            ([{"type": None, "role": "user", "content": "x"}], "input[0].type"),
            ([{"role": "user", "content": "x", "id": "msg_1"}], "input[0].id"),
            ([{"role": "user", "content": [{"type": "output_text", "text": "x"}]}], "input[0].content[0].type"),
            ([{"role": "user", "content": ["x"]}], "input[0].content[0]"),
        ],
    )
    async def test_input_that_breaks_the_schema(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, given: Any, said: str
    ) -> None:
        talk = Talk(nursery, services(STOPPED))
        target = await begun(talk)
        frame = await self.refusal(talk, target, given)
        assert frame["error"]["code"] == "invalid_input"
        assert said in frame["error"]["message"]

    @pytest.mark.parametrize("extra", [{"stream_id": "plan"}, {"model": "sim"}, {"metadata": {}}])
    async def test_other_fields(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, extra: Frame
    ) -> None:
        talk = Talk(nursery, services(STOPPED))
        target = await begun(talk)
        frame = await self.refusal(talk, target, **extra)
        assert frame["error"]["code"] == "invalid_input"
        assert next(iter(extra)) in frame["error"]["message"]

    async def test_a_lane_is_not_named_and_the_refusal_says_whose_it_is(self, nursery: trio.Nursery) -> None:
        frame = await self.refusal(Talk(nursery, services()), "resp_1", stream_id="plan")
        said = "Unknown parameter: 'stream_id'. The lane is that of previous_response_id."
        assert (frame["error"]["code"], frame["error"]["message"]) == ("invalid_input", said)

    async def test_no_input_at_all(self, nursery: trio.Nursery) -> None:
        talk = Talk(nursery, services())
        talk.socket.say({"type": "response.steer", "previous_response_id": "resp_1"})
        (frame,) = await heard(talk)
        assert (frame["error"]["code"], frame["steer"]["input"]) == ("invalid_input", [])
        assert frame["error"]["message"] == "Missing required parameter: 'input'."

    @pytest.mark.parametrize(
        ("fields", "code"),
        [({}, "missing_required_parameter"), ({"previous_response_id": None}, "missing_required_parameter"),
         ({"previous_response_id": 5}, "invalid_value"), ({"previous_response_id": ""}, "invalid_value")],
    )  # fmt: skip
    async def test_without_a_target_it_is_an_error_frame(self, nursery: trio.Nursery, fields: Frame, code: str) -> None:
        talk = Talk(nursery, services())
        talk.socket.say({"type": "response.steer", "input": "x", **fields})
        (frame,) = await heard(talk)
        assert (frame["type"], frame["error"]["code"]) == ("error", code)
        assert frame["error"]["param"] == "previous_response_id"

    async def test_prototype_mode_has_no_steering(self, nursery: trio.Nursery) -> None:
        talk = Talk(nursery, services(mode=Mode.PROTOTYPE))
        steer(talk, "resp_1")
        (frame,) = await heard(talk)
        assert (frame["type"], frame["error"]["code"]) == ("error", "unknown_event_type")
        assert "prototype mode" in frame["error"]["message"]

    async def test_a_response_that_ended_long_ago_is_not_remembered(self, nursery: trio.Nursery) -> None:
        talk = Talk(nursery, services())
        target = await begun(talk)
        await heard(talk)
        for _ in range(64):
            await talk.turn(input="go")
        assert (await self.refusal(talk, target))["error"]["code"] == "response_not_found"


class TestLanes:
    async def test_events_about_steering_bear_the_targets_lane(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(STOPPED))
        talk.create(input="go", stream_id="plan")
        talk.create(input="go", stream_id="risk")
        created = {frame["stream_id"]: frame["response"]["id"] for frame in named(await heard(talk), "created")}
        target, other = created["plan"], created["risk"]
        steer(talk, target)
        steer(talk, "resp_nope")
        frames = await heard(talk, 30)
        lanes = {
            name: turns([frame for frame in frames if frame.get("stream_id") == name])
            for name in ("plan", "risk", None)
        }
        assert lanes == {
            "plan": ["steer.accepted", "incomplete", "created", "completed"],
            "risk": ["completed"],
            None: ["steer.failed"],
        }
        ends = {frame["stream_id"]: frame["response"] for frame in named(frames, "completed")}
        assert (ends["risk"]["id"], ends["plan"]["previous_response_id"]) == (other, target)

    async def test_late_steering_bears_the_lane_and_its_running_turn_keeps_its_numbers(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        talk = Talk(nursery, services(Script.of("one", [delay(5), "two"])))
        ended = (await talk.turn(input="go", stream_id="plan"))["response"]["id"]
        talk.create(input="on", previous_response_id=ended, stream_id="plan")
        await settled()
        steer(talk, ended)
        frames = await heard(talk, 10)
        (failed,) = named(frames, "steer.failed")
        assert (failed["stream_id"], failed["error"]["code"]) == ("plan", "response_already_completed")
        numbers = [frame["sequence_number"] for frame in frames if frame is not failed]
        assert numbers == list(range(len(numbers)))
        assert text_of(frames[-1]["response"]) == "two"
