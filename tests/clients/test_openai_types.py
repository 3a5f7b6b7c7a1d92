"""Every object that we send suits the official SDK's types, on each transport and in both modes; and the check that
says so is checked: an event that lacks a field or has one of the wrong type is caught."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from respserver.config import Mode
from respserver.engines.sim import Script, call, custom, fault, reasoning, refusal, step
from tests.support.live import ENDS, calls_of, http, output, post, stream, tool, user
from tests.support.sdk import check_event, check_frame, check_response

Json = dict[str, Any]
Path = tuple[str | int, ...]
REFUSED = (AssertionError, ValidationError, KeyError)
TOOLS = [tool(place={"type": "string"}), {"type": "custom", "name": "patch", "description": "Edit."}]
EVERY_ITEM = [
    reasoning("I look."),
    "Let me see.",
    refusal("No more."),
    call("lookup_tide", place="Brest"),
    custom("patch", "a b"),
]
FIELDS: Json = {"input": [user("go")], "tools": TOOLS, "reasoning": {"summary": "auto"}}
ECHOES = {"tools", "text", "reasoning", "tool_choice", "metadata"}
"""What of a Response is the request's own, sent back: what is in it is not the server's to get wrong."""
NOT_DEMANDED = {
    *("user", "prompt_cache_retention", "prompt_cache_options"),
    *("conversation", "moderation", "prompt"),
}
"""Null unless the request has them; no parser misses them."""
LONG = "A text of more tokens than the least limit that a request may set, which is sixteen of them, or so."
DELTA: Json = {
    "type": "response.output_text.delta",
    "sequence_number": 4,
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": "a",
    "logprobs": [],
}
REFUSAL_FRAME: Json = {
    "type": "error",
    "status": 400,
    "error": {"type": "invalid_request_error", "code": "missing_required_parameter", "message": "No.", "param": None},
}


@pytest.fixture
async def events(serve) -> list[Json]:
    """One streamed turn with an item of each kind."""
    server = await serve(Script.of(EVERY_ITEM))
    return await stream(server, **FIELDS)


@pytest.mark.slow
async def test_an_event_that_lacks_a_field_is_caught(events) -> None:
    for event in one_of_each(events):
        for path in paths(event):
            assert is_refused(without(event, path)), f"{event['type']} may lack {path}"


async def test_an_event_with_a_field_of_another_type_is_caught(events) -> None:
    for event in one_of_each(events):
        for path in paths(event):
            assert is_refused(changed(event, path)), f"{event['type']} may have a wrong {path}"


def test_what_the_next_tests_break_is_whole() -> None:
    check_event(DELTA)
    check_frame(REFUSAL_FRAME)


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "response.output_txt.delta"},
        {"sequence_number": "0"},
        {"logprob": []},
        {"obfuscation": 4},
        {"delta": None},
    ],
    ids=["unknown type", "number as text", "unknown field", "padding that is no text", "null"],
)
def test_an_event_with_a_small_fault_is_caught(changes) -> None:
    assert is_refused(DELTA | changes)


@pytest.mark.parametrize("field", ["status", "error"])
def test_an_error_frame_that_lacks_a_field_is_caught(field) -> None:
    with pytest.raises(REFUSED):
        check_frame(without(REFUSAL_FRAME, (field,)))


@pytest.mark.parametrize("field", ["type", "code", "message", "param"])
def test_an_error_frame_whose_error_lacks_a_field_is_caught(field) -> None:
    with pytest.raises(REFUSED):
        check_frame(without(REFUSAL_FRAME, ("error", field)))


async def test_an_item_that_begins_with_its_content_is_caught(events) -> None:
    added = next(event for event in events if event.get("item", {}).get("type") == "function_call")
    assert is_refused(added | {"item": added["item"] | {"arguments": "{}"}})


async def test_a_snapshot_whose_status_contradicts_its_event_is_caught(events) -> None:
    terminal = events[-1]
    assert is_refused(terminal | {"response": terminal["response"] | {"status": "in_progress"}})
    assert is_refused(terminal | {"response": terminal["response"] | {"completed_at": None}})
    assert is_refused(terminal | {"response": terminal["response"] | {"usage": None}})


async def test_a_pause_whose_stubs_are_not_its_calls_is_caught(serve, connect) -> None:
    server = await serve(Script.of(EVERY_ITEM), mode=Mode.PROTOTYPE)
    pause = (await (await connect(server)).turn(**FIELDS))[-1]
    check_frame(pause)
    assert is_refused(pause | {"required_input": pause["required_input"][1:]})
    assert is_refused(pause | {"required_input": pause["required_input"][::-1]})


async def test_everything_on_http_suits_the_sdk(serve) -> None:
    server = await serve(Script.of(EVERY_ITEM))
    for event in await stream(server, stream_options={"include_obfuscation": True}, **FIELDS):
        check_event(event)
    answer = (await post(server, **FIELDS)).json()
    check_response(answer)
    async with http(server) as client:
        stored = (await client.get(f"/responses/{answer['id']}")).json()
    assert stored == answer


@pytest.mark.parametrize("mode", list(Mode))
async def test_everything_on_a_websocket_suits_the_sdk(serve, connect, mode) -> None:
    server = await serve(Script.of(EVERY_ITEM, "Done."), mode=mode)
    wire = await connect(server)
    frames = await wire.turn(generate=False, **FIELDS)
    frames += await wire.turn(stream_options={"include_obfuscation": True}, **FIELDS)
    outputs = [output(call) for call in calls_of(frames[-1]["response"])]
    if mode is Mode.SHIPPED:
        frames += await wire.turn(input=outputs, previous_response_id=frames[-1]["response"]["id"])
    else:
        await wire.append(outputs)
        frames += await wire.frames()
    frames += await wire.turn(input="go", previous_response_id="resp_unknown")
    for frame in frames:
        check_frame(frame)
    ends = [frame["type"] for frame in frames if frame["type"] in ENDS]
    step_end = "response.completed" if mode is Mode.SHIPPED else "response.done"
    assert ends == ["response.completed", step_end, "response.completed", "error"]


@pytest.mark.parametrize(
    ("fields", "end"),
    [({}, "response.failed"), ({"max_output_tokens": 16}, "response.incomplete")],
    ids=["model fault", "token limit"],
)
async def test_a_turn_that_ends_early_suits_the_sdk_on_each_transport(serve, connect, fields, end) -> None:
    server = await serve(Script.of(step(LONG, fault=fault("It broke."))))
    streamed = await stream(server, input="go", **fields)
    frames = await (await connect(server)).turn(input="go", **fields)
    for event in streamed:
        check_event(event)
    for frame in frames:
        check_frame(frame)
    assert streamed[-1]["type"] == frames[-1]["type"] == end
    check_response((await post(server, input="go", max_output_tokens=16)).json())


def one_of_each(events: list[Json]) -> list[Json]:
    """The first event of each type, and for items and parts the first of each kind."""
    found: dict[Any, Json] = {}
    for event in events:
        inner = event.get("item") or event.get("part") or {}
        found.setdefault((event["type"], inner.get("type")), event)
    return list(found.values())


def paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """Where every field stands that the server answers for."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        of_response = before[-1:] == ("response",)
        if of_response and key in NOT_DEMANDED:
            continue
        if isinstance(key, str):
            yield (*before, key)
        if not (of_response and key in ECHOES):
            yield from paths(entry, (*before, key))


def without(event: Json, path: Path) -> Json:
    return edited(event, path, lambda holder, key: holder.pop(key))


def changed(event: Json, path: Path) -> Json:
    return edited(event, path, lambda holder, key: holder.update({key: other(holder[key])}))


def edited(event: Json, path: Path, edit: Any) -> Json:
    broken = copy.deepcopy(event)
    holder: Any = broken
    for key in path[:-1]:
        holder = holder[key]
    edit(holder, path[-1])
    return broken


def other(value: Any) -> Any:
    """A value of another JSON type."""
    if value is None:
        return [{}]
    return 7 if isinstance(value, (str, bool, dict, list)) else str(value)


def is_refused(event: Json) -> bool:
    try:
        check_event(event)
    except REFUSED:
        return True
    return False
