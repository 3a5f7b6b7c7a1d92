"""F08: ``stream_id`` names a lane. Names, order, how many run at once, and that no lane is in another's way."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from respserver.config import Mode
from respserver.engines.sim import Script, call, conversation, fault, step
from tests.support.lane_wire import LaneWire, LaneWires, begun
from tests.support.live import Frame, calls_of, off_lane, output, post, text_of, tool
from tests.support.sdk import check_frame
from tests.support.spy import Spy

TOOLS = [tool("look")]
SCRIPT = Script(
    conversations=(
        conversation(step("It begins well, then", fault=fault("The model broke."), fault_after_tokens=4), user="break"),
        conversation("A long answer. " * 20, user="talk"),
        conversation(call("look"), "Seen.", user="look"),
        conversation("All is well."),
    )
)
ENDS: dict[str, dict[str, Any]] = {
    "response.completed": {"input": "hi"},
    "response.incomplete": {"input": "talk", "max_output_tokens": 16},
    "response.failed": {"input": "break"},
    "error": {"input": "hi", "temperature": 9},
}
"""How a turn may end, and a request that does."""
RUN_AT_ONCE = 16
NAMES = 32


async def answers(lanes: list[LaneWire]) -> list[str]:
    """The text of the turn that runs on each of them."""
    return [text_of((await lane.frames())[-1]["response"]) for lane in lanes]


async def round_trip(lane: LaneWire) -> None:
    """Until the server has read all that was sent before. The default lane is told, since no lane was named."""
    assert lane.lane is None
    await lane.send({"type": "are.you.there"})
    assert (await lane.frame())["error"]["code"] == "unknown_event_type"


# ---------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("end", list(ENDS))
async def test_f08_every_frame_of_a_named_lane_bears_its_name_and_none_of_the_default_lane_does(
    serve: Any, open_lanes: Any, mode: Mode, end: str
) -> None:
    wires: LaneWires = await open_lanes(await serve(SCRIPT, mode=mode))
    lanes = wires.lanes("plan", None, "risk")
    for lane in lanes:
        await lane.create(**ENDS[end])
    for lane in lanes:
        frames = await lane.frames()
        assert frames[-1]["type"] == end
        if end != "error":
            assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    for frame in wires.arrived:
        check_frame(off_lane(frame, frame.get("stream_id")))  # events over SSE, as the SDK types them, have none
    assert {frame.get("stream_id", "not even null") for frame in wires.arrived} == {"plan", "not even null", "risk"}


@pytest.mark.parametrize("name", ["x", "A-Z_a.z-0", ".", "x" * 256])
async def test_f08_any_name_of_the_documented_form_is_a_lane(serve: Any, open_lanes: Any, name: str) -> None:
    wires: LaneWires = await open_lanes(await serve())
    assert text_of(await wires.lane(name).completed(input="hi")) == "You said: hi"


@pytest.mark.parametrize("name", ["", "a b", "x" * 257, "ä", "a/b", "a\n", 7, ["a"]])
async def test_f08_another_name_is_refused_and_neither_echoed_nor_counted_nor_taken_for_the_default_lane(
    serve: Any, open_lanes: Any, name: Any
) -> None:
    spy = Spy()
    server = await serve(engine=spy, limits={"connection_lanes": 1})
    wires: LaneWires = await open_lanes(server)
    default, plan = wires.lanes(None, "plan")
    parent = await default.completed(store=False, input="hi")
    spy.hold("wait")
    await default.create(previous_response_id=parent["id"], input="wait")
    await begun([default])
    await default.create(stream_id=name, previous_response_id=parent["id"], input="hi")
    error = await default.frame()
    check_frame(error)
    assert (error["status"], error["error"]["code"]) == (400, "invalid_stream_id")
    assert error["error"]["param"] == "stream_id"
    spy.let_go("wait")
    assert await answers([default]) == ["You said: wait"]
    await plan.completed(input="hi")  # the one name that there may be


async def test_f08_null_is_no_name(serve: Any, open_lanes: Any) -> None:
    wires: LaneWires = await open_lanes(await serve())
    await wires.lane(None).completed(stream_id=None, input="hi")


async def test_f08_the_33rd_name_is_refused_and_the_lanes_that_are_there_go_on(serve: Any, open_lanes: Any) -> None:
    wires: LaneWires = await open_lanes(await serve())
    default = wires.lane(None)
    named = wires.lanes(*(f"lane-{number}" for number in range(NAMES)))
    await default.completed(input="hi")
    parents = [await lane.completed(store=False, input="one") for lane in named]
    late = wires.lane("one-too-many")
    for _ in range(2):
        error = await late.refused(input="hi")
        assert (error["status"], error["error"]["code"]) == (400, "websocket_stream_limit_reached")
        assert (error["error"]["type"], error["error"]["param"]) == ("invalid_request_error", "stream_id")
        assert "32" in error["error"]["message"]
    for lane, parent in zip(named, parents, strict=True):  # finished lanes, and none has made room
        assert text_of(await lane.completed(previous_response_id=parent["id"], input="two")) == "You said: two"
    await default.completed(input="hi")


async def test_f08_each_connection_has_its_own_names(serve: Any, open_lanes: Any) -> None:
    server = await serve(limits={"connection_lanes": 1})
    first: LaneWires = await open_lanes(server)
    second: LaneWires = await open_lanes(server)
    parent = await first.lane("plan").completed(store=False, input="hi")
    assert (await first.lane("risk").refused(input="hi"))["error"]["code"] == "websocket_stream_limit_reached"
    await second.lane("risk").completed(input="hi")
    again: LaneWires = await open_lanes(server)  # and none of what the same name knows elsewhere
    error = await again.lane("plan").refused(previous_response_id=parent["id"], input="hi")
    assert error["error"]["code"] == "previous_response_not_found"


async def test_f08_http_has_no_lanes(serve: Any) -> None:
    answer = await post(await serve(), input="hi", stream_id="plan")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream_id")


# ---------------------------------------------------------------------------------------------- order and company


async def test_f08_lanes_run_at_once(serve: Any, open_lanes: Any) -> None:
    spy = Spy()
    spy.gate = trio.Event()
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    lanes = wires.lanes("plan", "risk", None)
    for lane in lanes:
        await lane.create(input=f"this is {lane.lane}")
    heads = await begun(lanes)  # all three, while no model has said a word
    assert len({head[0]["response"]["id"] for head in heads}) == 3
    spy.gate.set()
    assert await answers(lanes) == [f"You said: this is {lane.lane}" for lane in lanes]


async def test_f08_sixteen_run_at_once_and_another_begins_when_one_ends(serve: Any, open_lanes: Any) -> None:
    """The default lane is one of the sixteen."""
    spy = Spy()
    server = await serve(engine=spy)
    wires: LaneWires = await open_lanes(server)
    lanes = wires.lanes(None, *(f"lane-{number}" for number in range(1, RUN_AT_ONCE + 2)))
    texts = [f"<{number}>" for number in range(len(lanes))]
    spy.hold(*texts)
    for lane, text in zip(lanes, texts, strict=True):
        await lane.create(input=text)
        if lane is lanes[RUN_AT_ONCE - 1]:
            await begun(lanes[:RUN_AT_ONCE])  # before the others, so that it is known who waits
        elif lane is lanes[RUN_AT_ONCE]:
            await round_trip(lanes[0])
    await round_trip(lanes[0])
    assert server.metrics.turns == RUN_AT_ONCE
    spy.let_go(texts[5])
    assert await answers([lanes[5]]) == ["You said: <5>"]
    await begun([lanes[RUN_AT_ONCE]])
    await round_trip(lanes[0])
    assert server.metrics.turns == RUN_AT_ONCE + 1
    assert wires.place("response.completed", "lane-5") < wires.place("response.created", f"lane-{RUN_AT_ONCE}")
    for text in [text for text in texts if text in spy.held]:
        spy.let_go(text)
    rest = [lane for lane in lanes if lane is not lanes[5]]
    assert await answers(rest) == [f"You said: {text}" for text in texts if text != texts[5]]


@pytest.mark.parametrize("mode", list(Mode))
async def test_f08_a_lane_is_first_in_first_out_whatever_the_others_do(serve: Any, open_lanes: Any, mode: Mode) -> None:
    spy = Spy()
    spy.hold("first")
    wires: LaneWires = await open_lanes(await serve(engine=spy, mode=mode))
    plan, risk = wires.lanes("plan", "risk")
    for text in ("first", "second", "third"):
        await plan.create(input=text)
        await risk.create(input=text.upper())
    await begun([plan])
    assert [(await answers([risk]))[0] for _ in range(3)] == ["You said: FIRST", "You said: SECOND", "You said: THIRD"]
    spy.let_go("first")
    turns = [await plan.frames() for _ in range(3)]
    assert [text_of(turn[-1]["response"]) for turn in turns] == [f"You said: {t}" for t in ("first", "second", "third")]
    for turn in turns[1:]:
        assert turn[0]["type"] == "response.created"
        assert [frame["sequence_number"] for frame in turn] == list(range(len(turn)))
        assert len({frame["response"]["id"] for frame in turn if "response" in frame}) == 1


@pytest.mark.parametrize("mode", list(Mode))
async def test_f08_a_lane_that_is_slow_fails_or_is_refused_holds_up_no_other(
    serve: Any, open_lanes: Any, mode: Mode
) -> None:
    spy = Spy(SCRIPT)
    wires: LaneWires = await open_lanes(await serve(engine=spy, mode=mode, limits={"queued_creates": 2}))
    slow, failing, refused, well, default = wires.lanes("slow", "failing", "refused", "well", None)
    spy.hold("slow")
    for _ in range(3):
        await slow.create(input="slow")
    await begun([slow])
    for _ in range(3):
        assert (await failing.turn(input="break"))[-1]["type"] == "response.failed"
        assert (await refused.refused(input=42))["error"]["param"] == "input"
        error = await slow.refused(input="slow")  # its line is full, and that is all
        assert (error["status"], error["error"]["code"]) == (429, "queue_full")
        for lane in (well, default):
            assert text_of(await lane.completed(input="hi")) == "All is well."
    spy.let_go("slow")
    assert await answers([slow] * 3) == ["All is well."] * 3


async def test_f08_a_refusal_waits_for_its_place_in_its_lane_and_in_no_other(serve: Any, open_lanes: Any) -> None:
    spy = Spy()
    spy.hold("slow")
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    plan, risk = wires.lanes("plan", "risk")
    await plan.create(input="slow")
    await plan.create(input=42)
    await begun([plan])
    assert (await risk.refused(input=42))["error"]["code"] == "invalid_type"
    spy.let_go("slow")
    assert await answers([plan]) == ["You said: slow"]
    assert (await plan.frame())["error"]["code"] == "invalid_type"


# -------------------------------------------------------------------------------------------------------- chains


async def test_f08_a_lane_used_again_without_a_parent_starts_a_new_chain(serve: Any, open_lanes: Any) -> None:
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    plan = wires.lane("plan")
    first = await plan.completed(store=False, input="one")
    second = await plan.completed(store=False, input="two")
    await plan.completed(store=False, previous_response_id=second["id"], input="three")
    assert spy.contexts[1:] == ["user: two", "user: two\nassistant: You said: two\nuser: three"]
    assert (second["previous_response_id"], first["id"] != second["id"]) == (None, True)
    error = await plan.refused(previous_response_id=first["id"], input="four")  # a lane keeps its latest
    assert error["error"]["code"] == "previous_response_not_found"


async def test_f08_each_lane_remembers_its_own_latest_response(serve: Any, open_lanes: Any) -> None:
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    lanes = wires.lanes("plan", "risk", None)
    parents = [await lane.completed(store=False, input=f"I am {lane.lane}") for lane in lanes]
    for lane, parent in zip(lanes, parents, strict=True):
        await lane.completed(store=False, previous_response_id=parent["id"], input="who?")
        past = f"user: I am {lane.lane}\nassistant: You said: I am {lane.lane}"
        assert spy.contexts[-1] == f"{past}\nuser: who?"


async def test_f08_tool_loops_on_lanes_do_not_mix_their_calls(serve: Any, open_lanes: Any) -> None:
    wires: LaneWires = await open_lanes(await serve(SCRIPT))
    plan, risk = wires.lanes("plan", "risk")
    first, second = [await lane.completed(store=False, input="look", tools=TOOLS) for lane in (plan, risk)]
    wrong = [output(calls_of(second)[0])]
    assert "call" in (await plan.refused(previous_response_id=first["id"], input=wrong))["error"]["message"]
    right = [output(calls_of(second)[0])]
    assert text_of(await risk.completed(previous_response_id=second["id"], input=right, tools=TOOLS)) == "Seen."


# ------------------------------------------------------------------------------------------------- prototype mode


async def paused(lane: LaneWire) -> Frame:
    """A rollout of this lane, at its call."""
    done = (await lane.turn(input="look", tools=TOOLS))[-1]
    assert done["type"] == "response.done"
    return done


async def test_f08_suspended_lanes_leave_room_for_others_to_run(serve: Any, open_lanes: Any) -> None:
    """They hold none of the sixteen slots; when they go on they take them again, as one comes free."""
    spy = Spy(SCRIPT)
    limits = {"connection_suspended_rollouts": 0}  # by default one fewer than we need here
    server = await serve(engine=spy, mode=Mode.PROTOTYPE, limits=limits)
    wires: LaneWires = await open_lanes(server)
    lanes = wires.lanes(*(f"lane-{number}" for number in range(RUN_AT_ONCE + 1)))
    pauses = [await paused(lane) for lane in lanes]
    default = wires.lane(None)
    assert text_of(await default.completed(input="hi")) == "All is well."
    spy.hold("Seen by all")
    for lane, pause in zip(lanes, pauses, strict=True):
        await lane.append([output(calls_of(pause["response"])[0], "Seen by all")])
    await default.create(input="I wait")
    await round_trip(default)
    assert server.metrics.turns == RUN_AT_ONCE + 2  # the last is behind them
    spy.let_go("Seen by all")
    for lane, pause in zip(lanes, pauses, strict=True):
        frames = await lane.frames()
        assert frames[0]["sequence_number"] == pause["sequence_number"] + 1
        assert text_of(frames[-1]["response"]) == "Seen."
        assert frames[-1]["response"]["id"] == pause["response"]["id"]
    assert await answers([default]) == ["All is well."]


async def test_f08_an_append_goes_to_the_lane_that_it_names_and_to_no_other(serve: Any, open_lanes: Any) -> None:
    wires: LaneWires = await open_lanes(await serve(SCRIPT, mode=Mode.PROTOTYPE))
    plan, risk, default, unheard_of = wires.lanes("plan", "risk", None, "unheard-of")
    pause, other = await paused(plan), await paused(risk)
    outputs = [output(calls_of(pause["response"])[0])]
    for lane in (default, unheard_of):
        await lane.append(outputs)
        assert (await lane.frame())["error"]["code"] == "response_not_suspended"
    await risk.append(outputs)
    assert (await risk.frame())["error"]["code"] == "invalid_append"
    await risk.append(outputs, response_id=pause["response"]["id"])
    assert (await risk.frame())["error"]["code"] == "response_not_suspended"
    await plan.append(outputs)
    assert await answers([plan]) == ["Seen."]
    await risk.append([output(calls_of(other["response"])[0])])
    assert await answers([risk]) == ["Seen."]
