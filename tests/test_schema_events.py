"""Events and snapshots on the wire: every key is there, in the shapes that clients read."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest

from respserver.schema.codec import encode
from respserver.schema.events import (
    TERMINAL_TYPES,
    DeltaEvent,
    ErrorDetail,
    ErrorEvent,
    ErrorFrame,
    OutputTextDelta,
    ResponseCompleted,
    ServerEvent,
    Terminal,
)
from respserver.schema.items import CALL_KIND_OF_OUTPUT, OUTPUT_KIND_OF_CALL, FunctionCall, OutputMessage, OutputText
from tests.support.pure import USAGE, response
from tests.support.sdk import RESPONSE_FIELDS, check_response


def on_the_wire(value: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(encode(value))
    return decoded


def test_every_event_has_its_own_name() -> None:
    names = [event.__struct_config__.tag for event in get_args(ServerEvent)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("response.") for name in names)


def test_terminals_are_told_by_type_and_by_name_alike() -> None:
    assert {event.__struct_config__.tag for event in get_args(Terminal)} == TERMINAL_TYPES
    assert set(get_args(Terminal)) <= set(get_args(ServerEvent))


def test_what_is_decoded_as_a_server_event_is_what_was_encoded() -> None:
    event = ResponseCompleted(response=response(status="completed", usage=USAGE), sequence_number=7)
    event.response.output.append(OutputMessage(id="msg_1", status="completed", content=[OutputText(text="hi")]))
    decoded = msgspec.json.decode(encode(event), type=ServerEvent)
    assert encode(decoded) == encode(event)


def test_deltas_are_padded_only_on_request_and_tagged_only_on_named_lanes() -> None:
    event = OutputTextDelta(item_id="msg_1", output_index=0, content_index=0, delta="x")
    assert on_the_wire(event) == {
        "type": "response.output_text.delta",
        "sequence_number": 0,
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "x",
        "logprobs": [],
    }
    event.obfuscation, event.stream_id = "ab", "plan"
    assert {"obfuscation", "stream_id"} <= set(on_the_wire(event))


def test_every_delta_event_can_carry_padding() -> None:
    for kind in get_args(DeltaEvent):
        assert "obfuscation" in kind.__struct_fields__


def test_a_fresh_response_shows_every_key_and_leaves_none_out() -> None:
    shown = on_the_wire(response())
    assert set(shown) >= RESPONSE_FIELDS | {"object", "background", "user", "prompt_cache_retention"}
    assert {name for name in shown if shown[name] is None} == {
        "completed_at", "conversation", "error", "incomplete_details", "instructions", "max_output_tokens",
        "max_tool_calls", "moderation", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "safety_identifier", "usage", "user",
    }  # fmt: skip
    assert shown["reasoning"] == {"effort": None, "summary": None}
    assert shown["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert (shown["tool_choice"], shown["tools"], shown["output"]) == ("auto", [], [])
    check_response(shown)


def test_items_show_empty_fields_instead_of_leaving_them_out() -> None:
    call = on_the_wire(FunctionCall(id="fc_1", status="in_progress", call_id="call_1", name="look"))
    assert call == {
        "type": "function_call",
        "id": "fc_1",
        "status": "in_progress",
        "arguments": "",
        "call_id": "call_1",
        "name": "look",
    }
    message = on_the_wire(OutputMessage(id="msg_1", status="in_progress"))
    assert message == {"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []}
    assert on_the_wire(OutputText()) == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def test_error_frames_are_nested_with_all_four_keys_and_the_status() -> None:
    detail = ErrorDetail(type="invalid_request_error", code="invalid_json", message="Bad.", param=None)
    assert on_the_wire(ErrorFrame(status=400, error=detail)) == {
        "type": "error",
        "status": 400,
        "error": {"type": "invalid_request_error", "code": "invalid_json", "message": "Bad.", "param": None},
    }


def test_error_events_have_flat_copies_beside_the_nested_error() -> None:
    detail = ErrorDetail(type="server_error", code="server_error", message="Bad.", param=None, headers={"a": "b"})
    shown = on_the_wire(ErrorEvent(code="server_error", message="Bad.", param=None, error=detail, sequence_number=4))
    assert (shown["type"], shown["sequence_number"]) == ("error", 4)
    assert shown["error"]["headers"] == {"a": "b"}
    for key in ("code", "message", "param"):
        assert shown[key] == shown["error"][key]


@pytest.mark.parametrize("kind", OUTPUT_KIND_OF_CALL)
def test_calls_and_outputs_name_each_other(kind: str) -> None:
    assert CALL_KIND_OF_OUTPUT[OUTPUT_KIND_OF_CALL[kind]] == kind
    assert OUTPUT_KIND_OF_CALL[kind].endswith(("_output", "_response"))
