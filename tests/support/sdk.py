"""The official SDK as oracle: its pydantic types must take everything that we send, by validation, not construction.

Stricter than the SDK is to itself: no coercion ("1" is no number), the type that an event names and no other member
of the union, no field that the SDK doesn't know (a misspelt optional field would pass otherwise), and the fields that
some client's parser needs although the SDK calls them optional. ``tests/clients/test_openai_types.py`` breaks events to
see that each is caught.
"""

from __future__ import annotations

import functools
import typing
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import BaseModel

Json = dict[str, Any]

RESPONSE_FIELDS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
}  # fmt: skip
"""What the strictest known parser and the written specification demand of every snapshot, null or not."""
ITEM_FIELDS = {
    "message": {"id", "role", "status", "content"},
    "function_call": {"id", "status", "arguments", "call_id", "name"},
    "custom_tool_call": {"id", "status", "input", "call_id", "name"},
    "reasoning": {"id", "status", "summary", "content"},
    "mcp_call": {"id", "status", "arguments", "name", "server_label", "output", "error", "approval_request_id"},
    "mcp_list_tools": {"id", "server_label", "tools", "error"},
    "mcp_approval_request": {"id", "arguments", "name", "server_label"},
    "web_search_call": {"id", "status", "action"},
}
OWN_CALLS = ("mcp_call", "web_search_call")
"""Calls that the server runs itself."""
NO_STATUS = ("mcp_list_tools", "mcp_approval_request")
TEXT_PART_FIELDS = {"text", "annotations", "logprobs"}
GROWING_FIELDS = ("arguments", "input", "content", "summary")
"""What of an item is empty in ``output_item.added``: deltas fill it."""
BEYOND_THE_SDK: dict[str, dict[str, type | tuple[type, ...]]] = {
    # Demanded of a Response by the written specification.
    "Response": {"store": bool, "presence_penalty": (int, float), "frequency_penalty": (int, float)},
    # Every item has a status; the SDK's class lacks it for this one.
    "ResponseCustomToolCall": {"status": str},
    # Nested copy of a failure beside the flat fields, for clients that read one shape on both transports.
    "ResponseErrorEvent": {"error": dict},
    # The same hints as in error.headers, where one client reads them.
    "ResponseWsError": {"headers": dict},
    # What the model said and read of a search, sealed, so that it is not lost when the item comes back.
    "ResponseFunctionWebSearch": {"encrypted_content": str},
    # What pads a delta when the request asks for it.
    "Delta": {"obfuscation": str},
}
"""Fields that we send and the SDK doesn't type: by the name of its class, with the type that they have."""
ECHOED = {"tools"}
"""What clients may fill with fields of their own, and get back as it was."""
TERMINAL_STATUS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


def check_event(event: Json) -> None:
    """Check one event of a response, as SSE and WebSocket share it.

    ``response.done``, which is ours alone, is checked by its Response and its stubs. Raises ``AssertionError``, or
    pydantic's ``ValidationError``.
    """
    assert {"type", "sequence_number"} <= set(event)
    if event["type"] == "response.done":
        _check_pause(event)
    else:
        _validate(_class_of(ResponseStreamEvent, event), event)
    if "response" in event:
        check_response(event["response"])
        assert event["response"]["status"] == TERMINAL_STATUS.get(event["type"], "in_progress")
    if "item" in event:
        check_item(event["item"])
    if "part" in event:
        check_part(event["part"])
    if event["type"] == "response.output_item.done" and event["item"]["type"] == "reasoning":
        assert event["item"]["encrypted_content"], "what the model thought is not in reach of who sends the item back"
    if event["type"] == "response.output_item.added":
        assert event["item"].get("status", "in_progress") == "in_progress" or event["item"]["type"] in OWN_CALLS
        if event["item"]["type"] != "mcp_approval_request":  # which is shown as a whole
            assert not any(event["item"].get(field) for field in GROWING_FIELDS), event


def check_frame(frame: Json) -> None:
    """Check one WebSocket frame: an event, or the error frame, which has a shape of its own."""
    if frame["type"] == "response.done":
        check_event(frame)
        return
    _validate(_class_of(ResponsesServerEvent, frame), frame)
    if frame["type"].startswith("response.steer."):
        return  # of the socket alone: the validation has said all
    if frame["type"] != "error":
        check_event(frame)
        return
    assert isinstance(frame["status"], int)
    assert set(frame["error"]) >= {"type", "code", "message", "param"}
    assert frame["error"]["code"]


def check_response(response: Json) -> None:
    """Check one Response object and its items."""
    _validate(Response, response)
    assert set(response) >= RESPONSE_FIELDS, RESPONSE_FIELDS - set(response)
    for item in response["output"]:
        check_item(item)
    assert (response["completed_at"] is not None) == (response["status"] == "completed")
    usage = response["usage"]
    if usage is not None:
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    else:
        assert response["status"] in ("in_progress", "failed")


def check_item(item: Json) -> None:
    """The fields that clients read of each kind of item."""
    assert item["type"] in ITEM_FIELDS, f"an item of unknown kind: {item}"
    assert set(item) >= ITEM_FIELDS[item["type"]], item
    if item["type"] not in NO_STATUS:
        more = ("searching", "failed") if item["type"] in OWN_CALLS else ()
        assert item["status"] in ("in_progress", "completed", "incomplete", *more)
    if item["type"] == "reasoning" and item["status"] != "in_progress":
        assert item["encrypted_content"], item
    for part in item.get("content") or ():
        check_part(part)


def check_part(part: Json) -> None:
    """The fields that clients read of a content part."""
    if part["type"] == "output_text":
        assert set(part) >= TEXT_PART_FIELDS, part


def _check_pause(event: Json) -> None:
    """``response.done``: a stub for each whole call since the last pause, in their order."""
    assert set(event) - {"stream_id"} == {"type", "sequence_number", "response", "required_input"}
    assert isinstance(event["sequence_number"], int)
    outputs = event["response"]["output"]
    calls = [item for item in outputs if "call_id" in item and item["status"] == "completed" and "async" not in item]
    assert calls, "a pause that waits for nothing"
    assert [stub["call_id"] for stub in event["required_input"]] == [call["call_id"] for call in calls]
    assert [stub["type"] for stub in event["required_input"]] == [f"{call['type']}_output" for call in calls]


def _class_of(union: Any, event: Json) -> type[BaseModel]:
    """The one member of a union of events that bears this event's type."""
    members = _members(union)
    assert event["type"] in members, f"an event of unknown type: {event['type']}"
    return members[event["type"]]


@functools.cache
def _members(union: Any) -> dict[str, type[BaseModel]]:
    classes = typing.get_args(typing.get_args(union)[0])
    return {name: one for one in classes for name in typing.get_args(one.model_fields["type"].annotation)}


def _validate(kind: type[BaseModel], value: Json) -> None:
    strangers = set(_strangers(kind.model_validate(value, strict=True)))
    assert not strangers, f"fields that the SDK doesn't know: {strangers}"


def _strangers(value: object) -> typing.Iterator[str]:
    """Every field of a validated tree that the SDK has no type for, but those that we mean to send."""
    if isinstance(value, BaseModel):
        name = type(value).__name__
        known = BEYOND_THE_SDK.get(_plain_name(name), {})
        for field, extra in (value.model_extra or {}).items():
            if not isinstance(extra, known.get(field, ())):
                yield f"{name}.{field}"
        for field in set(type(value).model_fields) - ECHOED:
            yield from _strangers(getattr(value, field))
    elif isinstance(value, list):
        for entry in value:
            yield from _strangers(entry)


def _plain_name(name: str) -> str:
    return "Delta" if name.endswith(("DeltaEvent", "WsDelta")) else name
