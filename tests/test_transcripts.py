"""Every shape of a turn, written down event by event, as WebSocket and SSE show it; and an item's identity from
``output_item.added`` to the next turn.

A line is an event's name without ``response.``, then its output index and, behind a dot, its content or summary index.
"""

from __future__ import annotations

from typing import Any

import pytest
from openai._models import construct_type_unchecked
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from respserver.engines.sim import Script, call, custom, fault, reasoning, refusal, step, text
from tests.support.live import Frame, Wire, http, stream, text_of, tool
from tests.support.sdk import check_event

TOOLS = [tool("look"), {"type": "custom", "name": "patch"}]
SUMMARY = {"reasoning": {"summary": "auto"}}

BEGIN = """
created
in_progress
"""
MESSAGE = """
output_item.added 0
content_part.added 0.0
output_text.delta 0.0
output_text.delta 0.0
output_text.done 0.0
content_part.done 0.0
output_item.done 0
"""
TWO_PARTS = """
output_item.added 0
content_part.added 0.0
output_text.delta 0.0
output_text.done 0.0
content_part.done 0.0
content_part.added 0.1
output_text.delta 0.1
output_text.delta 0.1
output_text.done 0.1
content_part.done 0.1
output_item.done 0
"""
REFUSAL = """
output_item.added 0
content_part.added 0.0
refusal.delta 0.0
refusal.delta 0.0
refusal.done 0.0
content_part.done 0.0
output_item.done 0
"""
EMPTY_PART = """
output_item.added 0
content_part.added 0.0
output_text.done 0.0
content_part.done 0.0
output_item.done 0
"""
CALL = """
output_item.added 0
function_call_arguments.delta 0
function_call_arguments.done 0
output_item.done 0
"""
TWO_CALLS = (
    CALL
    + """
output_item.added 1
custom_tool_call_input.delta 1
custom_tool_call_input.delta 1
custom_tool_call_input.done 1
output_item.done 1
"""
)
EMPTY_INPUT = """
output_item.added 0
custom_tool_call_input.done 0
output_item.done 0
"""
HIDDEN = """
output_item.added 0
output_item.done 0
"""
THOUGHT = """
output_item.added 0
reasoning_summary_part.added 0.0
reasoning_summary_text.delta 0.0
reasoning_summary_text.done 0.0
reasoning_summary_part.done 0.0
reasoning_summary_part.added 0.1
reasoning_summary_text.delta 0.1
reasoning_summary_text.delta 0.1
reasoning_summary_text.done 0.1
reasoning_summary_part.done 0.1
output_item.done 0
"""
ANSWER_AFTER = """
output_item.added 1
content_part.added 1.0
output_text.delta 1.0
output_text.done 1.0
content_part.done 1.0
output_item.done 1
"""
ENDS = COMPLETED, INCOMPLETE, FAILED = "completed", "incomplete", "failed"

Shape = tuple[list[Any], dict[str, Any], str]
SHAPES: dict[str, Shape] = {
    "message": ([text("a b")], {}, BEGIN + MESSAGE + COMPLETED),
    "commentary": ([text("a b", phase="commentary")], {}, BEGIN + MESSAGE + COMPLETED),
    "two parts": ([text("a", "b c")], {}, BEGIN + TWO_PARTS + COMPLETED),
    "refusal": ([refusal("a b")], {}, BEGIN + REFUSAL + COMPLETED),
    "empty part": ([text("")], {}, BEGIN + EMPTY_PART + COMPLETED),
    "empty message": ([text()], {}, BEGIN + HIDDEN + COMPLETED),
    "call": ([call("look", "a")], {}, BEGIN + CALL + COMPLETED),
    "call without arguments": ([call("look", "")], {}, BEGIN + CALL + COMPLETED),
    "two calls": ([call("look", "a"), custom("patch", "a b")], {}, BEGIN + TWO_CALLS + COMPLETED),
    "single call": ([call("look", "a"), call("look")], {"parallel_tool_calls": False}, BEGIN + CALL + COMPLETED),
    "custom call without input": ([custom("patch", "")], {}, BEGIN + EMPTY_INPUT + COMPLETED),
    "summary": ([reasoning("a", "b c"), text("a")], SUMMARY, BEGIN + THOUGHT + ANSWER_AFTER + COMPLETED),
    "hidden reasoning": ([reasoning("a", "b c"), text("a")], {}, BEGIN + HIDDEN + ANSWER_AFTER + COMPLETED),
    "nothing": ([], {}, BEGIN + COMPLETED),
    "fault at once": ([fault("broke")], {}, BEGIN + FAILED),
    "fault in a text": ([step("a b", fault=fault("broke"), fault_after_tokens=6)], {}, BEGIN + MESSAGE + FAILED),
    "fault between calls": ([call("look", "a"), fault("broke")], {}, BEGIN + CALL + FAILED),
}  # fmt: skip
CUTS: dict[str, tuple[list[Any], str]] = {
    "message": (
        [text("word" + " word" * 30)],
        "output_item.added 0\ncontent_part.added 0.0\n"
        + "output_text.delta 0.0\n" * 12
        + "output_text.done 0.0\ncontent_part.done 0.0\noutput_item.done 0\n",
    ),
    "call": (
        [call("look", "word" + " word" * 30)],
        "output_item.added 0\n"
        + "function_call_arguments.delta 0\n" * 9
        + "function_call_arguments.done 0\noutput_item.done 0\n",
    ),
    "name": (
        [text("word" + " word" * 8), call("word" + " word" * 30)],
        "output_item.added 0\ncontent_part.added 0.0\n"
        + "output_text.delta 0.0\n" * 9
        + "output_text.done 0.0\ncontent_part.done 0.0\noutput_item.done 0\n",
    ),
}
"""What of a step is left of sixteen tokens; a message's frame takes four of them, a call's with its name seven."""


def script_of(outputs: list[Any]) -> Script:
    """A script whose first step says these, or is the only one of them."""
    return Script.of(outputs[0] if len(outputs) == 1 else outputs, "on")


async def play(server: Any, connect: Any, transport: str, **fields: Any) -> list[Frame]:
    if transport == "sse":
        return await stream(server, **fields)
    wire: Wire = await connect(server)
    return await wire.turn(**fields)


def lines_of(frames: list[Frame]) -> list[str]:
    """Events as the transcripts write them down."""
    lines = []
    for frame in frames:
        place = [str(frame[key]) for key in ("output_index", "content_index", "summary_index") if key in frame]
        lines.append(" ".join([frame["type"].removeprefix("response."), *([".".join(place)] if place else [])]))
    return lines


def wanted(transcript: str, transport: str) -> list[str]:
    """A transcript on a transport: SSE has an ``error`` before ``response.failed``, and that is the only difference."""
    lines = [line for line in transcript.splitlines() if line]
    return [*lines[:-1], "error", FAILED] if transport == "sse" and lines[-1] == FAILED else lines


def check_identity(frames: list[Frame]) -> None:
    """From added to done to the terminal Response it is one item, and done events come in output order."""
    added = [frame for frame in frames if frame["type"] == "response.output_item.added"]
    done = [frame for frame in frames if frame["type"] == "response.output_item.done"]
    assert [frame["output_index"] for frame in added] == list(range(len(added)))
    assert [frame["output_index"] for frame in done] == list(range(len(added)))
    assert [frame["item"] for frame in done] == frames[-1]["response"]["output"]
    for begun, ended in zip(added, done, strict=True):
        fixed = ("id", "type", "call_id", "name", "role", "phase", "namespace")
        assert {key: begun["item"].get(key) for key in fixed} == {key: ended["item"].get(key) for key in fixed}
    ids = [frame["item"]["id"] for frame in added]
    assert len(set(ids)) == len(ids)
    for frame in frames:
        if "item_id" in frame:
            assert frame["item_id"] == ids[frame["output_index"]]


def check_terminal(frames: list[Frame]) -> None:
    """There is one, it is the last, and its Response is whole."""
    assert [frame for frame in frames if frame["type"].removeprefix("response.") in ENDS] == frames[-1:]
    before, terminal = frames[0]["response"], frames[-1]["response"]
    assert (before["service_tier"], before["usage"], before["output"]) == ("auto", None, [])
    assert terminal["service_tier"] == "default"
    assert (terminal["completed_at"] is None) == (terminal["status"] != "completed")
    assert (terminal["error"] is None) == (terminal["status"] != "failed")
    assert (terminal["incomplete_details"] is None) == (terminal["status"] != "incomplete")
    usage = terminal["usage"]
    assert (usage is None) == (terminal["status"] == "failed")
    if usage is not None:
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert {"cached_tokens", "cache_write_tokens"} <= set(usage["input_tokens_details"])
        assert set(usage["output_tokens_details"]) == {"reasoning_tokens"}


def accumulate(frames: list[Frame]) -> Any:
    """The SDK's own accumulator over the events."""
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for frame in frames:
        if frame["type"] != "error":
            state.handle_event(construct_type_unchecked(type_=ResponseStreamEvent, value=frame))
    return state._completed_response


@pytest.mark.parametrize("transport", ["websocket", "sse"])
@pytest.mark.parametrize("shape", list(SHAPES))
async def test_a_shape_is_event_by_event_as_written_down(serve: Any, connect: Any, transport: str, shape: str) -> None:
    outputs, fields, transcript = SHAPES[shape]
    frames = await play(await serve(script_of(outputs)), connect, transport, input="go", tools=TOOLS, **fields)
    assert lines_of(frames) == wanted(transcript, transport)
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    for frame in frames:
        check_event(frame)
    check_identity(frames)
    check_terminal(frames)
    completed = accumulate(frames)
    if frames[-1]["type"] == "response.completed":
        assert [item.id for item in completed.output] == [item["id"] for item in frames[-1]["response"]["output"]]
        assert completed.output_text == text_of(frames[-1]["response"])


@pytest.mark.parametrize("transport", ["websocket", "sse"])
@pytest.mark.parametrize("cut", list(CUTS))
async def test_a_cut_turn_is_event_by_event_as_written_down(serve: Any, connect: Any, transport: str, cut: str) -> None:
    outputs, transcript = CUTS[cut]
    server = await serve(script_of(outputs))
    frames = await play(server, connect, transport, input="go", tools=TOOLS, max_output_tokens=16)
    assert lines_of(frames) == wanted(BEGIN + transcript + INCOMPLETE, transport)
    check_identity(frames)
    check_terminal(frames)


async def test_nothing_follows_a_terminal_on_the_socket(serve: Any, connect: Any) -> None:
    """The next frame is the next response's first, whatever the end was."""
    script = Script.of([text("a"), fault("broke")], on_end="repeat")
    wire: Wire = await connect(await serve(script))
    for _ in range(3):
        frames = await wire.turn(input="go")
        assert (frames[0]["type"], frames[-1]["type"]) == ("response.created", "response.failed")


@pytest.mark.parametrize("shape", ["message", "two parts", "refusal", "two calls", "summary", "hidden reasoning"])
async def test_an_item_is_the_same_when_it_is_got_and_known_in_the_next_turn(
    serve: Any, connect: Any, shape: str
) -> None:
    outputs, fields, _ = SHAPES[shape]
    server = await serve(script_of(outputs))
    wire: Wire = await connect(server)
    response = await wire.completed(input="go", tools=TOOLS, **fields)
    async with http(server) as client:
        assert (await client.get(f"/responses/{response['id']}")).json() == response
    outputs_of_calls = [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "ok"}
        for item in response["output"]
        if "call_id" in item
    ]
    taken = [*outputs_of_calls, {"role": "user", "content": "on"}]
    for item in response["output"]:
        error = await wire.refused(previous_response_id=response["id"], input=[*taken, item], tools=TOOLS)
        assert error["error"]["code"] in ("duplicate_item_id", "invalid_value"), error
    await wire.completed(previous_response_id=response["id"], input=taken, tools=TOOLS)


async def test_the_tier_that_was_asked_for_is_the_terminals_too(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(Script.of("a", on_end="repeat")))
    for asked, shown in ((None, "default"), ("auto", "default"), ("flex", "flex"), ("fast", "priority")):
        frames = await wire.turn(input="go", service_tier=asked)
        assert frames[-1]["response"]["service_tier"] == shown
