"""A create as a whole: what it needs, what belongs to the other transport, and what is not done here. Its fields one by
one are in ``test_protocol_fields.py``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from respserver.errors import InvalidRequest, UnknownParameter, UnsupportedParameter
from respserver.protocol.validate import NOT_YET, Transport, peek_string
from respserver.schema.items import MessageItem
from respserver.schema.request import CreateParams
from respserver.schema.tools import NO_TOOLS
from tests.support.pure import read

Json = dict[str, Any]
LOOK = {"type": "function", "name": "look"}


def refusal(transport: Any = "websocket", **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(transport, **fields)
    return caught.value


def test_the_least_request_has_the_apis_defaults() -> None:
    request = read()
    assert (request.params.model, request.tools, request.unknown) == ("sim", NO_TOOLS, ())
    assert (request.tool_choice.mode, request.tool_choice.names, request.text_format.type) == ("auto", (), "text")
    assert [type(item) for item in request.items] == [MessageItem]


def test_null_means_absent_for_every_field() -> None:
    nulls: Json = {name: None for name in CreateParams.__struct_fields__ if name not in ("model", "type")}
    assert read(**nulls, tools=None).params == CreateParams(model="sim")
    assert refusal(model=None).param == "model"
    assert refusal(input=None).param == "input"


@pytest.mark.parametrize("strict", [False, True])
def test_fields_that_are_nested_as_in_the_realtime_api_are_told_where_they_stand(strict: bool) -> None:
    nested: Json = {"response": {"model": "sim", "input": "hi"}}
    lacking: tuple[Json, ...] = ({"model": ...}, {"input": ...})
    for missing in lacking:
        with pytest.raises(InvalidRequest, match=r"\. The fields stand beside 'type', not in 'response'\.$"):
            read(options={"strict": strict}, **missing, **nested)
    assert read(**nested).unknown == ("response",)


REAL_FIELDS: Json = {
    "type": "response.create",
    "instructions": "Be brief.",
    "previous_response_id": "resp_1",
    "store": False,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "tool_choice": "auto",
    "tools": [LOOK],
    "parallel_tool_calls": False,
    "max_tool_calls": 1,
    "max_output_tokens": 16,
    "temperature": 0,
    "top_p": 1,
    "presence_penalty": -2,
    "frequency_penalty": 2.0,
    "top_logprobs": 0,
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "reasoning": {"effort": "xhigh", "summary": "auto", "context": "all_turns", "mode": "pro"},
    "include": ["reasoning.encrypted_content"],
    "truncation": "disabled",
    "metadata": {"k" * 64: "v" * 512},
    "service_tier": "fast",
    "prompt_cache_key": "key",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "s" * 128,
    "user": "u",
    "client_metadata": {"x-codex-turn-metadata": "{}"},
}


def test_everything_that_real_clients_send_is_taken_with_its_value() -> None:
    request = read(**REAL_FIELDS)
    assert request.unknown == ()
    params = request.params
    assert (params.max_output_tokens, params.temperature, params.presence_penalty) == (16, 0.0, -2.0)
    assert (params.store, params.parallel_tool_calls, params.service_tier) == (False, False, "fast")
    assert (bytes(params.tool_choice), params.include) == (b'"auto"', ["reasoning.encrypted_content"])
    assert json.loads(bytes(params.client_metadata)) == REAL_FIELDS["client_metadata"]
    assert params.reasoning is not None
    assert (params.reasoning.effort, params.reasoning.context) == ("xhigh", "all_turns")


@pytest.mark.parametrize("name", NOT_YET)
@pytest.mark.parametrize("value", [{}, "x", False])
def test_fields_that_nothing_here_computes_are_refused_not_ignored(name: str, value: Any) -> None:
    error = refusal(**{name: value})
    assert isinstance(error, UnsupportedParameter)
    assert error.param == name


class TestInput:
    @pytest.mark.parametrize("empty", [..., None, []])
    def test_it_may_only_be_left_out_where_there_is_something_to_go_on_from(self, empty: Any) -> None:
        error = refusal(input=empty)
        assert (error.code, error.message) == ("missing_required_parameter", "Missing required parameter: 'input'.")
        assert read(input=empty, previous_response_id="resp_1").items == []
        assert read(input=empty, generate=False).items == []

    def test_a_model_is_needed_from_the_frame_or_from_the_connection(self) -> None:
        assert refusal(model=...).message == "Missing required parameter: 'model'."
        options = {"default_model": "house"}
        assert read(model=..., options=options).params.model == "house"
        assert read(model="own", options=options).params.model == "own"


class TestOtherTransport:
    """F23: fields that belong to the other transport."""

    @pytest.mark.parametrize("fields", [{"stream": True}, {"stream": False}, {"stream_options": {}}], ids=str)
    def test_websocket_ignores_streaming_fields(self, fields: Json) -> None:
        read("websocket", **fields)

    @pytest.mark.parametrize(
        "fields", [{"stream": True}, {"stream": False}, {"stream_options": {}}, {"background": False}], ids=str
    )
    def test_strict_websocket_refuses_them(self, fields: Json) -> None:
        (name,) = fields
        with pytest.raises(UnsupportedParameter) as caught:
            read("websocket", **fields, options={"strict": True})
        assert caught.value.param == name
        assert read("http", **fields, options={"strict": True}).unknown == ()

    @pytest.mark.parametrize("transport", ["websocket", "http"])
    def test_background_work_is_refused_everywhere(self, transport: Transport) -> None:
        error = refusal(transport, background=True)
        assert (error.code, error.param) == ("unsupported_parameter", "background")
        read(transport, background=False)

    @pytest.mark.parametrize("value", [True, False])
    def test_http_refuses_warm_ups(self, value: bool) -> None:
        assert refusal("http", generate=value).param == "generate"
        read("http", generate=None)

    @pytest.mark.parametrize("name", ["plan", "", "a b", 5, {}])
    def test_http_has_no_lanes(self, name: Any) -> None:
        error = refusal("http", stream_id=name)
        assert (error.code, error.param) == ("unsupported_parameter", "stream_id")


class TestUnknownFields:
    def test_they_are_taken_and_named_by_default(self) -> None:
        assert read(colour="blue", shade=[1]).unknown == ("colour", "shade")

    def test_strict_refuses_the_first_by_name(self) -> None:
        with pytest.raises(UnknownParameter) as caught:
            read(colour="blue", shade=1, options={"strict": True})
        assert (caught.value.param, caught.value.message) == ("colour", "Unknown parameter: 'colour'.")

    def test_known_fields_are_none_of_them_in_strict_mode(self) -> None:
        fields = {name: value for name, value in REAL_FIELDS.items() if not name.startswith("stream")}
        assert read(**fields, options={"strict": True}).unknown == ()


@pytest.mark.parametrize(
    ("raw", "seen"), [(b'"x"', "x"), (b"5", None), (b"null", None), (b'"\xff"', None), (b"[[", None)], ids=str
)
def test_a_peek_never_raises(raw: bytes, seen: str | None) -> None:
    assert peek_string({"type": Raw(raw)}, "type") == seen
    assert peek_string({"type": Raw(raw)}, "absent") is None
