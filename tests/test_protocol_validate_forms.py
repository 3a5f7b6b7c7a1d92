"""The fields that come in several forms: text format, tools, and the append's own few fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.errors import InvalidRequest, UnknownParameter
from respserver.protocol.validate import read_append
from respserver.schema.request import ABSENT
from respserver.schema.tools import parse_tools
from tests.support.pure import custom_output, fields_of, output, read, user

Json = dict[str, Any]
LOOK = {"type": "function", "name": "look"}
F, V = "invalid_type", "invalid_value"


def refusal(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    return caught.value


class TestTextFormat:
    def test_plain_text_is_the_default(self) -> None:
        for text in ({}, {"format": None}, {"format": {"type": "text"}}, {"verbosity": "high"}):
            assert read(text=text).text_format.type == "text"
        assert read(text={"format": None}).params.text.format == ABSENT  # type: ignore[union-attr]  # it was given

    def test_json(self) -> None:
        assert read(text={"format": {"type": "json_object"}}).text_format.type == "json_object"

    def test_a_schema_keeps_its_name_and_body(self) -> None:
        given = {"type": "json_schema", "name": "tide", "schema": {"type": "object"}, "strict": True}
        text_format = read(text={"format": given}).text_format
        assert (text_format.type, text_format.name, text_format.schema) == ("json_schema", "tide", {"type": "object"})


class TestTools:
    def test_the_same_bytes_give_the_same_set_back_unread(self) -> None:
        raw = json.dumps([LOOK]).encode()
        last = parse_tools(raw)
        assert read(tools=[LOOK], options={"last_tools": last}).tools is last

    def test_other_bytes_are_read(self) -> None:
        last = parse_tools(json.dumps([LOOK]).encode())
        request = read(tools=[{"type": "function", "name": "other"}], options={"last_tools": last})
        assert list(request.tools.by_name) == ["other"]

    @pytest.mark.parametrize("absent", [..., None, []])
    def test_none_are_inherited(self, absent: Any) -> None:
        last = parse_tools(json.dumps([LOOK]).encode())
        assert read(tools=absent, options={"last_tools": last}).tools.by_name == {}


class TestAppend:
    def test_items_and_the_response_they_are_for(self) -> None:
        request = read_append(fields_of(input=[output("c1"), custom_output("c2")], response_id="resp_1"), strict=True)
        assert ([item.call_id for item in request.items], request.response_id) == (["c1", "c2"], "resp_1")  # type: ignore[union-attr]  # outputs

    def test_the_response_may_be_left_out(self) -> None:
        for fields in ({}, {"response_id": None}):
            assert read_append(fields_of(input=[user()], **fields), strict=False).response_id is None

    @pytest.mark.parametrize(
        ("fields", "code", "param"),
        [
            ({}, "missing_required_parameter", "input"),
            ({"input": None}, "missing_required_parameter", "input"),
            ({"input": 5}, F, "input"),
            ({"input": [output("")]}, "empty_string", "input[0].call_id"),
            ({"input": [], "response_id": 5}, F, "response_id"),
        ],
        ids=str,
    )
    def test_faults_are_named(self, fields: Json, code: str, param: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            read_append(fields_of(**fields), strict=False)
        assert (caught.value.code, caught.value.param) == (code, param)

    def test_unknown_fields_are_refused_only_in_strict_mode(self) -> None:
        fields = fields_of(input=[output("c1")], client_metadata={}, colour=1)
        assert len(read_append(fields, strict=False).items) == 1
        with pytest.raises(UnknownParameter, match="colour"):
            read_append(fields, strict=True)
