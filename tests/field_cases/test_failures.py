"""F17 on the wire, F18: a model that fails never looks like one that has answered; every turn has one terminal.

That the official SDKs raise is in ``tests/clients/test_openai_failures.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from respserver.config import Mode
from respserver.engines.sim import Script, call, conversation, delay, fault, step
from tests.support.live import TERMINALS, Frame, Wire, calls_of, http, output, post, stream, text_of, tool
from tests.support.sdk import check_event, check_frame

MESSAGE = "The model fell over."
BROKEN = fault(MESSAGE, "rate_limit_exceeded")
LONG = "A sentence that is never said to its end, since the model breaks before."
TOOLS = [tool("first", place={"type": "string"}), tool("second")]

FAILURES = {
    "before the first item": [BROKEN],
    "inside a message": step(LONG, fault=BROKEN, fault_after_tokens=9),
    "inside a call": step(call("first", place=LONG), fault=BROKEN, fault_after_tokens=12),
    "between two calls": [call("first", place="here"), BROKEN, call("second")],
}
LEFT = {
    "before the first item": [],
    "inside a message": [("message", "incomplete")],
    "inside a call": [("function_call", "incomplete")],
    "between two calls": [("function_call", "completed")],
}
"""Kind and status of the items that were begun before the model failed."""
TRANSPORTS = ["websocket", "prototype", "sse", "json"]


def mode_of(transport: str) -> Mode:
    return Mode.PROTOTYPE if transport == "prototype" else Mode.SHIPPED


def first(*steps: Any) -> Script:
    """These steps for who says "go", and all is well for everybody else."""
    return Script(conversations=(conversation(*steps, user="go"), conversation("All is well.")))


@pytest.mark.parametrize("transport", ["websocket", "prototype", "sse"])
@pytest.mark.parametrize("place", list(FAILURES))
async def test_f18_a_failure_closes_what_is_open_and_is_the_only_terminal(
    serve: Any, connect: Any, transport: str, place: str
) -> None:
    server = await serve(first(FAILURES[place]), mode=mode_of(transport))
    if transport == "sse":
        frames = await stream(server, input="go", tools=TOOLS)
        assert [frame["type"] for frame in frames[-2:]] == ["error", "response.failed"]
    else:
        wire: Wire = await connect(server)
        frames = await wire.turn(input="go", tools=TOOLS)
        assert "error" not in [frame["type"] for frame in frames]
        # A stray frame behind the terminal would be taken for the next turn's.
        assert text_of(await wire.completed(input="next")) == "All is well."
    for frame in frames:
        check_event(frame)
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert [frame["type"] for frame in frames if frame["type"] in TERMINALS | {"response.done"}] == ["response.failed"]
    response = frames[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "rate_limit_exceeded", "message": MESSAGE}
    assert response["completed_at"] is None
    done = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert [frame["item"]["id"] for frame in frames if frame["type"] == "response.output_item.added"] == [
        item["id"] for item in done
    ]
    assert response["output"] == done
    assert [(item["type"], item["status"]) for item in done] == LEFT[place]


@pytest.mark.parametrize("place", list(FAILURES))
async def test_f18_over_json_a_failure_is_a_5xx(serve: Any, place: str) -> None:
    server = await serve(first(FAILURES[place]))
    answer = await post(server, input="go", tools=TOOLS)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["message"], error["param"]) == (
        "server_error",
        "rate_limit_exceeded",
        MESSAGE,
        None,
    )


@pytest.mark.parametrize("transport", ["websocket", "prototype", "sse"])
async def test_f18_a_failed_response_is_neither_kept_nor_continued(serve: Any, connect: Any, transport: str) -> None:
    server = await serve(first(FAILURES["inside a message"]), mode=mode_of(transport))
    wire: Wire = await connect(server)
    frames = await (stream(server, input="go") if transport == "sse" else wire.turn(input="go", store=True))
    failed = frames[-1]["response"]
    async with http(server) as client:
        assert (await client.get(f"/responses/{failed['id']}")).status_code == 404
    error = await wire.refused(previous_response_id=failed["id"], input="next")
    assert error["error"]["code"] == "previous_response_not_found"


async def play(server: Any, connect: Any, transport: str, **fields: Any) -> tuple[list[Frame], Frame]:
    """One turn over the transport, pauses answered: its events (none over JSON) and its final Response."""
    if transport == "json":
        answer = await post(server, **fields)
        assert answer.status_code == 200, answer.text
        return [], answer.json()
    if transport == "sse":
        frames = await stream(server, **fields)
        return frames, frames[-1]["response"]
    wire: Wire = await connect(server)
    frames = await wire.turn(**fields)
    while frames[-1]["type"] == "response.done":
        await wire.append([output(made) for made in calls_of(frames[-1]["response"])])
        frames += await wire.frames()
    for frame in frames:
        check_frame(frame)
    assert text_of(await wire.completed(input="next")) == "All is well."
    return frames, frames[-1]["response"]


def assert_one_terminal(frames: list[Frame], response: Frame) -> None:
    assert response["status"] == "completed"
    assert response["error"] is None
    if frames:
        assert [frame["type"] for frame in frames if frame["type"] in TERMINALS] == [frames[-1]["type"]]
        assert frames[-1]["type"] == "response.completed"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_f18_max_tool_calls_ends_in_one_terminal_and_leaves_the_clients_own_tools_alone(
    serve: Any, connect: Any, transport: str
) -> None:
    """It bounds the calls of hosted tools: a client's tools are the client's to bound."""
    script = first([call("first", place="here"), call("second")], "done")
    server = await serve(script, mode=mode_of(transport))
    frames, response = await play(server, connect, transport, input="go", tools=TOOLS, max_tool_calls=1)
    assert_one_terminal(frames, response)
    assert response["max_tool_calls"] == 1
    assert [made["name"] for made in calls_of(response)] == ["first", "second"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_f18_with_tool_choice_none_a_turn_ends_with_its_answer(serve: Any, connect: Any, transport: str) -> None:
    script = Script(conversations=(conversation("All is well.", user="next"),), on_end="rehearse")
    server = await serve(script, mode=mode_of(transport))  # rehearsing, it calls such a tool if it may
    tools = [tool("get_tide")]
    frames, response = await play(server, connect, transport, input="go", tools=tools, tool_choice="none")
    assert_one_terminal(frames, response)
    assert response["tool_choice"] == "none"
    assert [item["type"] for item in response["output"]] == ["message"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_f18_an_answer_with_no_items_is_completed(serve: Any, connect: Any, transport: str) -> None:
    server = await serve(first([delay(0)]), mode=mode_of(transport))
    frames, response = await play(server, connect, transport, input="go")
    assert_one_terminal(frames, response)
    assert response["output"] == []
    assert response["usage"]["input_tokens"] > 0


async def test_f17_the_error_event_of_a_stream_has_the_shape_that_sdks_raise_on(serve: Any) -> None:
    frames = await stream(await serve(first(FAILURES["inside a message"])), input="go")
    error, failed = frames[-2:]
    assert error["type"] == "error"
    assert error["sequence_number"] == failed["sequence_number"] - 1
    assert error["error"] == {"type": "server_error", "code": "rate_limit_exceeded", "message": MESSAGE, "param": None}
