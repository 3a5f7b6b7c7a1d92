"""Every field of a create, in one table: what is taken up to its bounds, what is refused beyond them, with which code
and at which place, on both transports.

The rows are read pure for each transport, and sent once over real sockets, where the same refusals must come out.
"""

from __future__ import annotations

from typing import Any

import pytest

from respserver.errors import InvalidRequest
from respserver.protocol.validate import Transport
from respserver.schema.request import MAX_COUNT, CreateParams
from tests.support.live import Wire, http
from tests.support.pure import read

Json = dict[str, Any]
F, V, M, U = "invalid_type", "invalid_value", "missing_required_parameter", "unsupported_parameter"
LOW, HIGH = "integer_below_min_value", "integer_above_max_value"
BELOW, ABOVE = "decimal_below_min_value", "decimal_above_max_value"
LONG, EMPTY = "string_above_max_length", "empty_string"


def function(**fields: Any) -> list[Json]:
    return [{"type": "function", "name": "look", **fields}]


def custom(**fields: Any) -> list[Json]:
    return [{"type": "custom", "name": "exec", **fields}]


def schema(**fields: Any) -> Json:
    return {"format": {"type": "json_schema", "name": "tide", "schema": {"type": "object"}, **fields}}


LARK: Json = {"type": "grammar", "syntax": "lark", "definition": "start: X"}
OPEN: Json = {"type": "object", "properties": {"a": {"type": "string"}}}
"""A schema that ``strict: true`` cannot follow."""
GOOD: dict[str, list[Any]] = {
    "access_programs": [{}, {"cyber": "standard"}],
    "background": [False],
    "background_options": [{}, {"completion_window": "soonest"}, {"continuation_id": "c"}],
    "client_metadata": [{}, {"a": "b"}, [], "x", 5],
    "context_management": [],
    "conversation": [],
    "frequency_penalty": [-2, 0, 2],
    "generate": [True, False],
    "image": [{}, {"context_compression": "auto"}, {"context_compression": "disabled"}],
    "include": [[], ["reasoning.encrypted_content"], ["web_search_call.action.sources", "file_search_call.results"]],
    "input": ["hi", [], [{"role": "user", "content": "hi"}]],
    "instructions": ["", "Be brief."],
    "max_output_tokens": [16, MAX_COUNT],
    "max_tool_calls": [1, MAX_COUNT],
    "metadata": [{}, {"k" * 64: "v" * 512}, {str(index): "" for index in range(16)}],
    "model": ["m", "m" * 256],
    "moderation": [],
    "multi_agent": [{}, {"enabled": False}, {"enabled": False, "max_concurrent_subagents": 3}],
    "parallel_tool_calls": [True, False],
    "presence_penalty": [-2, 0.5, 2],
    "previous_response_id": ["resp_1", "r" * 256],
    "prompt": [],
    "prompt_cache_key": ["", "k"],
    "prompt_cache_options": [
        {},
        {"mode": "implicit", "ttl": "30m"},
        {"mode": "explicit", "ttl": "12h", "comparison_response_id": "resp_1", "prewarm": False},
        {"comparison_response_id": None, "prewarm": True},
    ],
    "prompt_cache_retention": ["in_memory", "24h"],
    "reasoning": [
        {},
        *({"effort": effort} for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max")),
        {"summary": "concise", "generate_summary": "detailed"},
        {"effort": None, "context": "current_turn", "mode": "pro"},
        {"mode": "whatever is next"},
    ],
    "safety_identifier": ["", "s" * 128],
    "service_tier": ["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"],
    "store": [True, False],
    "stream": [True, False],
    "stream_id": ["plan", "a" * 256],
    "stream_options": [{}, {"include_obfuscation": True}, {"include_obfuscation": False}],
    "temperature": [0, 1.5, 2],
    "text": [
        {},
        {"verbosity": "low"},
        {"format": None, "verbosity": None},
        {"format": {"type": "text"}},
        {"format": {"type": "json_object"}},
        schema(name="a-B_9" + "x" * 59, description="d", strict=None),
        schema(schema=OPEN),
        schema(schema=OPEN, strict=False),
        schema(strict=True),
    ],
    "tool_choice": ["none", "auto", "required", {"type": "function", "name": "look"}, {"type": "file_search"}],
    "tools": [
        [],
        function(),
        function(parameters=OPEN, strict=None),
        function(parameters=OPEN, strict=False, output_schema={}, description=None),
        function(parameters=None, strict=True),
        function(**{"async": True}, defer_loading=True, allowed_callers=["direct", "programmatic"]),
        custom(format=LARK, defer_loading=False, allowed_callers=None),
        custom(format={"type": "text"}),
        custom(format={**LARK, "syntax": "regex"}),
        [{"type": "namespace", "name": "fs", "description": "Files.", "tools": [*function(), *custom(format=LARK)]}],
        [{"type": "namespace", "name": "fs", "tools": [{"type": "not known yet", "name": 5}]}],
        [{"type": "tool_search"}, {"type": "tool_search", "execution": "client", "parameters": {}, "description": "d"}],
        [{"type": "mcp", "server_label": "wiki"}, {"type": "web_search"}, {"type": "not known yet", "x": 1}],
    ],
    "top_logprobs": [0, 20],
    "top_p": [0, 0.5, 1],
    "truncation": ["auto", "disabled"],
    "type": ["response.create"],
    "user": ["", "u"],
}
"""Values that are taken, the bounds among them."""
BAD: dict[str, list[tuple[Any, str, str]]] = {
    "access_programs": [("x", F, ""), ({"cyber": "red"}, V, ".cyber"), ({"cyber": "daybreak_red"}, U, "")],
    "background": [("yes", F, ""), (1, F, ""), (True, U, "")],
    "background_options": [([], F, ""), ({"completion_window": "1h"}, V, ".completion_window"),
                           ({"completion_window": "8h"}, U, "")],
    "client_metadata": [],
    "context_management": [([{"type": "compaction", "compact_threshold": 1000}], U, "")],
    "conversation": [("conv_1", U, ""), ({"id": "conv_1"}, U, "")],
    "frequency_penalty": [("1", F, ""), (-2.1, BELOW, ""), (2.1, ABOVE, "")],
    "generate": [("no", F, ""), (0, F, "")],
    "image": [("x", F, ""), ({"context_compression": 1}, F, ".context_compression"),
              ({"context_compression": "enabled"}, U, "")],
    "include": [("x", F, ""), ([5], F, "[0]"), (["reasoning.encrypted_content", "x"], V, "[1]")],
    "input": [(5, F, ""), ({"role": "user"}, F, ""), ([5], F, "[0]")],
    "instructions": [(5, F, ""), (["x"], F, "")],
    "max_output_tokens": [("16", F, ""), (16.5, F, ""), (15, LOW, ""), (-(10**30), LOW, ""),
                          (MAX_COUNT + 1, HIGH, ""), (10**30, HIGH, "")],
    "max_tool_calls": [("1", F, ""), (0, LOW, ""), (MAX_COUNT + 1, HIGH, "")],
    "metadata": [([], F, ""), ({"a": 5}, F, ""), ({"k" * 65: ""}, LONG, ""), ({"k": "v" * 513}, LONG, ""),
                 ({str(index): "" for index in range(17)}, "object_above_max_properties", "")],
    "model": [(5, F, ""), ("", EMPTY, ""), ("m" * 257, LONG, "")],
    "moderation": [({"model": "omni"}, U, ""), ({}, U, "")],
    "multi_agent": [([], F, ""), ({"enabled": "no"}, F, ".enabled"), ({"enabled": True}, U, ""),
                    ({"max_concurrent_subagents": 0}, LOW, ".max_concurrent_subagents")],
    "parallel_tool_calls": [("no", F, ""), (1, F, "")],
    "presence_penalty": [("1", F, ""), (-3, BELOW, ""), (3, ABOVE, "")],
    "previous_response_id": [(5, F, ""), ("r" * 257, LONG, "")],
    "prompt": [({"id": "pmpt_1"}, U, "")],
    "prompt_cache_key": [(5, F, "")],
    "prompt_cache_options": [
        ([], F, ""), ({"mode": "none"}, V, ".mode"), ({"ttl": "1h"}, V, ".ttl"), ({"ttl": 30}, F, ".ttl"),
        ({"prewarm": "yes"}, F, ".prewarm"), ({"comparison_response_id": 5}, F, ".comparison_response_id"),
        ({"comparison_response_id": ""}, EMPTY, ".comparison_response_id"),
        ({"comparison_response_id": "r" * 257}, LONG, ".comparison_response_id"),
    ],
    "prompt_cache_retention": [(24, F, ""), ("12h", V, "")],
    "reasoning": [("high", F, ""), ({"effort": "huge"}, V, ".effort"), ({"effort": 5}, F, ".effort"),
                  ({"summary": "long"}, V, ".summary"), ({"generate_summary": "long"}, V, ".generate_summary"),
                  ({"context": "half"}, V, ".context"), ({"mode": 5}, F, ".mode")],
    "safety_identifier": [(5, F, ""), ("s" * 129, LONG, "")],
    "service_tier": [(5, F, ""), ("best", V, "")],
    "store": [("yes", F, ""), (1, F, "")],
    "stream": [("true", F, ""), (1, F, "")],
    "stream_id": [(5, "invalid_stream_id", ""), ("", "invalid_stream_id", ""), ("a b", "invalid_stream_id", "")],
    "stream_options": [(True, F, ""), ({"include_obfuscation": "no"}, F, ".include_obfuscation")],
    "temperature": [("1", F, ""), (True, F, ""), (-0.1, BELOW, ""), (2.1, ABOVE, ""), (10**400, V, "")],
    "text": [
        ("json", F, ""), ({"verbosity": "loud"}, V, ".verbosity"), ({"verbosity": 5}, F, ".verbosity"),
        ({"format": "json"}, F, ".format"), ({"format": {}}, M, ".format.type"),
        ({"format": {"type": "xml"}}, V, ".format.type"),
        ({"format": {"type": "json_schema", "schema": {}}}, M, ".format.name"),
        ({"format": {"type": "json_schema", "name": "n"}}, M, ".format.schema"),
        (schema(name=""), EMPTY, ".format.name"), (schema(name="x" * 65), LONG, ".format.name"),
        (schema(name="a b"), V, ".format.name"), (schema(name=5), F, ".format.name"),
        (schema(schema=[]), F, ".format.schema"), (schema(strict="yes"), F, ".format.strict"),
        (schema(description=5), F, ".format.description"),
        (schema(schema=OPEN, strict=True), "invalid_json_schema", ".format.schema"),
    ],
    "tool_choice": [("any", V, ""), (5, F, ""), ({"type": "function"}, M, ".name"), ({"type": "zzz"}, V, ".type")],
    "tools": [
        ({}, F, ""), ([5], F, "[0]"), ([{}], M, "[0].type"), ([{"type": "function"}], M, "[0].name"),
        (function(strict="yes"), F, "[0].strict"), (function(parameters=5), F, "[0].parameters"),
        (function(parameters=OPEN, strict=True), "invalid_function_parameters", "[0].parameters"),
        (function(output_schema=5), F, "[0].output_schema"), (function(defer_loading=1), F, "[0].defer_loading"),
        (function(allowed_callers="direct"), F, "[0].allowed_callers"),
        (function(allowed_callers=["me"]), V, "[0].allowed_callers[0]"), (function(**{"async": 1}), F, "[0].async"),
        (custom(format="lark"), F, "[0].format"), (custom(format={}), M, "[0].format.type"),
        (custom(format={"type": "xml"}), V, "[0].format.type"),
        (custom(format={**LARK, "syntax": "bnf"}), V, "[0].format.syntax"),
        (custom(format={"type": "grammar", "syntax": "lark"}), M, "[0].format.definition"),
        (custom(format={"type": "grammar", "definition": "x"}), M, "[0].format.syntax"),
        ([{"type": "namespace", "name": "fs", "tools": custom(format={})}], M, "[0].tools[0].format.type"),
        ([{"type": "namespace", "name": "fs", "tools": function(parameters=OPEN, strict=True)}],
         "invalid_function_parameters", "[0].tools[0].parameters"),
        ([{"type": "tool_search", "execution": "nobody"}], V, "[0].execution"),
        ([{"type": "tool_search", "parameters": 5}], F, "[0].parameters"),
    ],
    "top_logprobs": [("1", F, ""), (-1, LOW, ""), (21, HIGH, "")],
    "top_p": [("1", F, ""), (-0.1, BELOW, ""), (1.1, ABOVE, "")],
    "truncation": [(True, F, ""), ("left", V, "")],
    "type": [],
    "user": [({}, F, "")],
}  # fmt: skip
"""Values that are refused, with the code, and where behind the field's name."""
OF_WEBSOCKET = ("generate", "stream_id")
"""What HTTP refuses whatever its value is."""
AT_THE_FRAME = ("type", "stream_id")
"""What decides where a frame goes, before it is read as a create."""


def rows(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, row) for name in sorted(table) for row in table[name]]


def as_id(value: Any) -> str:
    return str(value)[:60]


def test_the_table_has_every_field() -> None:
    fields = {*CreateParams.__struct_fields__, "input", "tools"}
    assert set(GOOD) == set(BAD) == fields


@pytest.mark.parametrize("transport", ["websocket", "http"])
@pytest.mark.parametrize(("name", "value"), rows(GOOD), ids=as_id)
def test_what_a_field_may_be_is_taken(transport: Transport, name: str, value: Any) -> None:
    if transport == "http" and name in OF_WEBSOCKET:
        with pytest.raises(InvalidRequest, match="is only supported over WebSocket"):
            read(transport, **{name: value})
        return
    needed = {"previous_response_id": "resp_1"} if name == "input" else {}
    assert read(transport, **needed, **{name: value}).unknown == ()


@pytest.mark.parametrize("transport", ["websocket", "http"])
@pytest.mark.parametrize(("name", "row"), rows(BAD), ids=as_id)
def test_what_it_may_not_be_is_refused_by_code_and_place(transport: Transport, name: str, row: Any) -> None:
    value, code, place = row
    if name in AT_THE_FRAME:
        return  # tests of the connection
    with pytest.raises(InvalidRequest) as caught:
        read(transport, **{name: value})
    error = caught.value
    assert (error.status, error.type, error.code, error.param) == (400, "invalid_request_error", code, name + place)
    assert error.message.endswith(".")


NOT_FALSE = "In context=(), 'additionalProperties' is required to be supplied and to be false."
EFFORTS = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'"
WORDS: list[tuple[Json, str]] = [
    (
        {"max_output_tokens": 1},
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.",
    ),
    (
        {"temperature": 2.5},
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.5 instead.",
    ),
    ({"reasoning": {"effort": "huge"}}, f"Invalid value: 'huge'. Supported values are: {EFFORTS}."),
    (
        {"safety_identifier": "s" * 129},
        "Invalid 'safety_identifier': string too long. Expected a string with maximum length 128, "
        "but got a string with length 129 instead.",
    ),
    (
        {"text": schema(name="a b")},
        "Invalid 'text.format.name': string does not match pattern. "
        "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
    ),
    ({"text": {"format": {"type": "json_schema"}}}, "Missing required parameter: 'text.format.name'."),
    ({"store": "yes"}, "Invalid type for 'store': expected a boolean, but got a string instead."),
    (
        {"metadata": {str(index): "" for index in range(17)}},
        "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, "
        "but got 17 properties instead.",
    ),
    ({"background": True}, "Unsupported parameter: 'background' is not supported over WebSocket."),
    ({"prompt": {"id": "pmpt_1"}}, "Unsupported parameter: 'prompt' is not supported by this server."),
    ({"text": schema(schema=OPEN, strict=True)}, f"Invalid schema for response_format 'tide': {NOT_FALSE}"),
    ({"tools": function(parameters=OPEN, strict=True)}, f"Invalid schema for function 'look': {NOT_FALSE}"),
]


@pytest.mark.parametrize(("fields", "message"), WORDS, ids=as_id)
def test_the_words_are_the_apis(fields: Json, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    assert caught.value.message == message


@pytest.mark.parametrize("first", ["conversation", "previous_response_id"])
@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_conversation_and_a_parent_exclude_each_other_in_either_order(transport: Transport, first: str) -> None:
    fields = {"conversation": {"id": "conv_1"}, "previous_response_id": "resp_1"}
    ordered = {first: fields.pop(first), **fields}
    with pytest.raises(InvalidRequest, match="mutually exclusive") as caught:
        read(transport, **ordered)
    assert (caught.value.code, caught.value.param) == ("mutually_exclusive_parameters", "conversation")


def test_breakpoints_on_input_parts_are_tolerated() -> None:
    marked = {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    assert len(read(input=[{"role": "user", "content": [marked]}]).items) == 1


async def test_both_transports_refuse_alike_over_real_sockets(serve: Any, connect: Any) -> None:
    server = await serve()
    wire: Wire = await connect(server)
    async with http(server) as client:
        for name, (value, code, place) in rows(BAD):
            if name in AT_THE_FRAME or name in OF_WEBSOCKET or (isinstance(value, int) and abs(value) > MAX_COUNT):
                continue
            frame = await wire.refused(**{"input": "hi", name: value})
            answer = await client.post("/responses", json={"model": "sim", "input": "hi", name: value})
            assert (frame["status"], answer.status_code) == (400, 400), (name, value)
            told = {**frame["error"], "message": frame["error"]["message"].replace("WebSocket", "HTTP by this server")}
            assert told == answer.json()["error"]
            assert (told["code"], told["param"], told["type"]) == (code, name + place, "invalid_request_error")
    assert (await wire.completed(input="still here"))["status"] == "completed"
