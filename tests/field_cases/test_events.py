"""F10 to F13: item lifecycles, numbers, snapshots and the streaming of calls, over WebSocket and SSE; and what a JSON
answer shows of them."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.sim import Script, call, fault, reasoning, step, text
from tests.support.live import TERMINALS, Frame, Wire, output, post, stream, tool
from tests.support.sdk import check_event, check_response

RICH = Script.of([reasoning("Tides are slow."), text("Part one. ", "Part two."), call("lookup_tide", pier=4)])
TOOLS = [tool("lookup_tide"), tool("now")]

PART_EVENTS = {
    "response.content_part.added": {"item_id", "output_index", "content_index", "part"},
    "response.content_part.done": {"item_id", "output_index", "content_index", "part"},
    "response.output_text.delta": {"item_id", "output_index", "content_index", "delta", "logprobs"},
    "response.output_text.done": {"item_id", "output_index", "content_index", "text", "logprobs"},
    "response.reasoning_summary_part.added": {"item_id", "output_index", "summary_index", "part"},
    "response.reasoning_summary_part.done": {"item_id", "output_index", "summary_index", "part"},
    "response.reasoning_summary_text.delta": {"item_id", "output_index", "summary_index", "delta"},
    "response.reasoning_summary_text.done": {"item_id", "output_index", "summary_index", "text"},
    "response.function_call_arguments.delta": {"item_id", "output_index", "delta"},
    "response.function_call_arguments.done": {"item_id", "output_index", "arguments"},
    "response.output_item.added": {"output_index", "item"},
    "response.output_item.done": {"output_index", "item"},
}
BEFORE = [
    "response.created",
    "response.in_progress",
]
ORDER = [
    *BEFORE,
    "response.output_item.added",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
    "response.output_item.done",
    "response.output_item.added",
    *[
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
    ]
    * 2,
    "response.output_item.done",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "response.completed",
]


async def play(server: Any, connect: Any, transport: str, **fields: Any) -> list[Frame]:
    if transport == "sse":
        return await stream(server, **fields)
    wire: Wire = await connect(server)
    return await wire.turn(**fields)


def without_repeats(types: list[str]) -> list[str]:
    return [kind for index, kind in enumerate(types) if index == 0 or kind != types[index - 1]]


def joined_deltas(frames: list[Frame], kind: str, item_id: str) -> str:
    return "".join(frame["delta"] for frame in frames if frame["type"] == kind and frame["item_id"] == item_id)


@pytest.mark.parametrize("asked", ["summary", "generate_summary"])
@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_f10_whole_item_lifecycles(serve: Any, connect: Any, transport: str, asked: str) -> None:
    server = await serve(RICH)
    frames = await play(server, connect, transport, input="go", tools=TOOLS, reasoning={asked: "auto"})
    assert without_repeats([frame["type"] for frame in frames]) == ORDER
    for frame in frames:
        fields = PART_EVENTS.get(frame["type"])
        if fields:
            assert fields <= set(frame), frame
    thought, message, made = frames[-1]["response"]["output"]
    assert [part["text"] for part in thought["summary"]] == ["Tides are slow."]
    assert joined_deltas(frames, "response.reasoning_summary_text.delta", thought["id"]) == "Tides are slow."
    assert [part["text"] for part in message["content"]] == ["Part one. ", "Part two."]
    for index, part in enumerate(message["content"]):
        deltas = [f for f in frames if f["type"] == "response.output_text.delta" and f["content_index"] == index]
        assert "".join(frame["delta"] for frame in deltas) == part["text"]
    assert made["arguments"] == '{"pier":4}'


async def test_f10_without_a_summary_the_reasoning_item_is_bare(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(RICH))
    frames = await wire.turn(input="go", tools=TOOLS)
    assert not [frame for frame in frames if "reasoning_summary" in frame["type"]]
    assert frames[-1]["response"]["output"][0]["summary"] == []
    assert frames[-1]["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] > 3


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_f11_sequence_numbers_start_at_zero_and_rise_by_one_per_response(
    serve: Any, connect: Any, transport: str
) -> None:
    server = await serve(Script.of("one", [text("two"), fault("the model fell over")]))
    wire: Wire = await connect(server)
    parent: str | None = None
    for end in ("response.completed", "response.failed", "response.completed"):
        fields: Frame = {"input": "go", "previous_response_id": parent}
        frames = await (wire.turn(**fields) if transport == "websocket" else stream(server, **fields))
        assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
        assert frames[-1]["type"] == end
        parent = frames[-1]["response"]["id"] if parent is None else None  # the failed one is followed by a new chain


SNAPSHOTS = {
    "response.completed": Script.of("fine"),
    "response.incomplete": Script.of("a long text " * 20),
    "response.failed": Script.of(step("half of it", fault=fault("the model fell over"), fault_after_tokens=4)),
}


@pytest.mark.parametrize("transport", ["websocket", "sse"])
@pytest.mark.parametrize("end", sorted(SNAPSHOTS))
async def test_f12_full_snapshots(serve: Any, connect: Any, transport: str, end: str) -> None:
    server = await serve(SNAPSHOTS[end])
    frames = await play(server, connect, transport, input="go", max_output_tokens=20)
    assert frames[-1]["type"] == end
    for frame in frames:
        check_event(frame)
    for frame in (frame for frame in frames if "response" in frame):
        response = frame["response"]
        assert isinstance(response["output"], list)
        assert isinstance(response["created_at"], int)
        expected = frame["type"].removeprefix("response.")
        assert response["status"] == ("in_progress" if expected == "created" else expected)
    last = frames[-1]["response"]
    streamed = [frame["item"]["id"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert [item["id"] for item in last["output"]] == streamed
    assert (last["completed_at"] is not None) == (end == "response.completed")
    assert (last["usage"] is None) == (end == "response.failed")
    if end == "response.incomplete":
        assert last["incomplete_details"] == {"reason": "max_output_tokens"}
        assert last["output"][-1]["status"] == "incomplete"
        assert last["usage"]["output_tokens"] == 20
    if end == "response.failed":
        assert last["error"] == {"code": "server_error", "message": "the model fell over"}
        assert last["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize("end", ["completed", "incomplete"])
async def test_f12_the_answer_in_json_is_a_full_snapshot(serve: Any, end: str) -> None:
    server = await serve(SNAPSHOTS[f"response.{end}"])
    last = (await stream(server, input="go", max_output_tokens=20))[-1]["response"]
    answer = (await post(server, input="go", max_output_tokens=20)).json()
    check_response(answer)
    assert (answer["status"], list(answer)) == (end, list(last))
    assert (answer["completed_at"] is not None) == (end == "completed")
    assert [item["status"] for item in answer["output"]] == [item["status"] for item in last["output"]]


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_f13_streaming_a_call(serve: Any, connect: Any, transport: str) -> None:
    script = Script.of([call("lookup_tide", pier=4), call("now")])
    frames = await play(await serve(script), connect, transport, input="go", tools=TOOLS)
    bodies = [frame for frame in frames if frame["type"] not in {*BEFORE, *TERMINALS}]
    half = [frame["type"] for frame in bodies].index("response.output_item.done") + 1
    for part, name, arguments in ((bodies[:half], "lookup_tide", '{"pier":4}'), (bodies[half:], "now", "{}")):
        added, *deltas, done, closed = part
        item = added["item"]
        assert (item["name"], item["arguments"], item["status"]) == (name, "", "in_progress")
        assert item["call_id"].startswith("call_")
        assert item["id"].startswith("fc_")
        assert deltas
        assert {frame["type"] for frame in deltas} == {"response.function_call_arguments.delta"}
        assert "".join(frame["delta"] for frame in deltas) == arguments == done["arguments"]
        assert closed["item"] == {**item, "arguments": arguments, "status": "completed"}


async def test_f13_calls_in_json_are_those_of_the_stream(serve: Any) -> None:
    server = await serve(Script.of([call("lookup_tide", pier=4), call("now")]))
    made = (await post(server, input="go", tools=TOOLS)).json()["output"]
    assert [(one["name"], one["arguments"], one["status"]) for one in made] == [
        ("lookup_tide", '{"pier":4}', "completed"),
        ("now", "{}", "completed"),
    ]


async def test_a_response_without_parallel_calls_ends_at_its_first_call(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(Script.of([call("now"), call("lookup_tide", pier=4)], "done")))
    first = await wire.completed(input="go", tools=TOOLS, parallel_tool_calls=False)
    assert [item["name"] for item in first["output"]] == ["now"]
    await wire.completed(previous_response_id=first["id"], input=[output(first["output"][0])], tools=TOOLS)
