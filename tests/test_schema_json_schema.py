"""What ``strict: true`` can promise of a schema, what it refuses by name, and that judging one is bounded work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.errors import InvalidSchema
from respserver.schema.json_schema import (
    MAX_ENUM_VALUES,
    MAX_LEVELS,
    MAX_NAME_CHARACTERS,
    MAX_PARTS,
    MAX_PROPERTIES,
    UNSUPPORTED,
    check_strict,
)

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
TREE: Json = {
    "type": "object",
    "properties": {"value": TEXT, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["value", "children"],
    "additionalProperties": False,
}


def an_object(**properties: Any) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def check(schema: Any) -> None:
    check_strict(schema, "response_format 'tide'", "text.format.schema", "invalid_json_schema")


def problem(schema: Any) -> str:
    with pytest.raises(InvalidSchema) as caught:
        check(schema)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "invalid_json_schema", "text.format.schema")
    start = "Invalid schema for response_format 'tide': "
    assert error.message.startswith(start)
    return error.message.removeprefix(start)


def told(schema: Any) -> str:
    """What is wrong, or nothing."""
    try:
        check(schema)
    except InvalidSchema as error:
        return error.message
    return ""


ROOM = {"$ref": "#/$defs/room"}


@pytest.mark.parametrize(
    "schema",
    [
        an_object(),
        {"type": "object"},
        {"type": "object", "properties": {}},
        an_object(a=TEXT, b={"type": "integer", "minimum": 1, "multipleOf": 2}),
        an_object(a={"type": ["string", "null"], "description": "d", "title": "t", "default": None, "examples": []}),
        an_object(a={"type": "string", "pattern": "^x", "format": "date"}),
        an_object(a={"enum": ["x", 1, None]}, b={"const": "x"}, c={"type": "string", "enum": ["x"]}),
        an_object(a={"anyOf": [TEXT, {"type": "null"}, an_object(b=TEXT)]}),
        an_object(a={"type": "array", "items": an_object(b=TEXT), "minItems": 1, "maxItems": 3}),
        {**an_object(a=ROOM, b=ROOM), "$defs": {"room": an_object(next={"anyOf": [ROOM, {"type": "null"}]})}},
        {**an_object(a={"$ref": "#/definitions/a~1b"}), "definitions": {"a/b": TEXT}},
        TREE,
        {**an_object(a=TEXT), "$schema": "https://json-schema.org/draft/2020-12/schema", "x-own": {"not": {}}},
        an_object(**dict.fromkeys(UNSUPPORTED, TEXT)),
    ],
    ids=str,
)
def test_what_structured_outputs_follow_is_taken(schema: Json) -> None:
    check(schema)


@pytest.mark.parametrize("keyword", UNSUPPORTED)
def test_a_keyword_that_they_do_not_follow_is_refused_by_name_and_place(keyword: str) -> None:
    schema = an_object(a={"type": "array", "items": an_object(b={**TEXT, keyword: {}})})
    place = "('properties', 'a', 'items', 'properties', 'b')"
    assert problem(schema) == f"In context={place}, '{keyword}' is not permitted."
    assert problem({**an_object(), keyword: 1}) == f"In context=(), '{keyword}' is not permitted."


WORDS = "'required' is required to be supplied and to be an array including every key in properties."


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (True, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."),
        ({"type": "array"}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'."),
        ({"anyOf": [an_object()]}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."),
        ({**an_object(), "anyOf": [an_object()]}, "In context=(), 'anyOf' is not permitted."),
        (
            {**an_object(a=TEXT), "additionalProperties": True},
            "In context=(), 'additionalProperties' is required to be supplied and to be false.",
        ),
        (
            {"type": "object", "properties": {}, "additionalProperties": {}},
            "In context=(), 'additionalProperties' is required to be supplied and to be false.",
        ),
        (
            an_object(a={"type": "object", "properties": {"b": TEXT}, "required": ["b"]}),
            "In context=('properties', 'a'), 'additionalProperties' is required to be supplied and to be false.",
        ),
        ({**an_object(a=TEXT), "required": []}, f"In context=(), {WORDS} Missing 'a'."),
        ({**an_object(a=TEXT), "required": "a"}, f"In context=(), {WORDS}"),
        ({**an_object(a=TEXT), "required": ["a", "b"]}, "In context=(), Extra required key 'b' supplied."),
        ({**an_object(a=TEXT), "required": [["a"]]}, "In context=(), Extra required key '…' supplied."),
        (an_object(a={}), "In context=('properties', 'a'), schema must have a 'type' key."),
        (an_object(a=5), "In context=('properties', 'a'), schema must be an object."),
        (
            an_object(a={"type": "any"}),
            "In context=('properties', 'a'), 'any' is not valid under any of the given schemas.",
        ),
        (
            an_object(a={"type": ["string", 5]}),
            "In context=('properties', 'a'), '…' is not valid under any of the given schemas.",
        ),
        (an_object(a={"type": "array"}), "In context=('properties', 'a'), array schema missing items."),
        (
            an_object(a={"anyOf": []}),
            "In context=('properties', 'a'), 'anyOf' must be an array with at least one schema.",
        ),
        (
            an_object(a={"anyOf": [TEXT, {"type": "array"}]}),
            "In context=('properties', 'a', 'anyOf', '1'), array schema missing items.",
        ),
        (an_object(a={"enum": []}), "In context=('properties', 'a'), 'enum' must be an array with at least one value."),
        (
            an_object(a={"$ref": "#/$defs/none"}),
            "In context=('properties', 'a'), reference to '#/$defs/none', which was not found in the schema.",
        ),
        (
            {**an_object(a={"$ref": "x/$defs/b"}), "$defs": {"b": TEXT}},
            "In context=('properties', 'a'), reference to 'x/$defs/b', which was not found in the schema.",
        ),
        (
            an_object(a={"type": [*["string"] * 9, "array", "null"]}),
            "In context=('properties', 'a'), array schema missing items.",
        ),
        (
            an_object(a={"$ref": "https://elsewhere"}),
            "In context=('properties', 'a'), reference to 'https://elsewhere', which was not found in the schema.",
        ),
        (
            an_object(a={"$ref": "#", "description": "d"}),
            "In context=('properties', 'a'), $ref cannot have keywords {'description'}.",
        ),
        (
            {**an_object(), "$defs": {"room": {"type": "string", "not": {}}}},
            "In context=('$defs', 'room'), 'not' is not permitted.",
        ),
        ({**an_object(), "$defs": []}, "In context=('$defs',), expected an object of schemas."),
        ({"type": "object", "properties": []}, "In context=(), 'properties' must be an object of schemas."),
    ],
    ids=str,
)
def test_a_structure_that_they_do_not_follow_is_told_with_its_place(schema: Any, words: str) -> None:
    assert problem(schema) == words


def test_the_first_fault_in_the_order_of_writing_is_the_one_that_is_told() -> None:
    assert "'first'" in problem(an_object(first={"not": 1}, second={"not": 1}))


def nested(levels: int) -> Json:
    schema = an_object()
    for _ in range(levels - 1):
        schema = an_object(a=schema)
    return schema


def tall(levels: int) -> Json:
    schema: Json = {"type": "array", "items": TEXT}
    for _ in range(levels - 2):
        schema = {"type": "array", "items": schema}
    return an_object(a=schema)


@pytest.mark.parametrize(
    ("most", "beyond", "words"),
    [
        (nested(MAX_LEVELS), nested(MAX_LEVELS + 1), "nested more than 10 levels"),
        (tall(MAX_LEVELS), tall(MAX_LEVELS + 1), "nested more than 10 levels"),
        (
            an_object(**{str(n): TEXT for n in range(MAX_PROPERTIES)}),
            an_object(**{str(n): TEXT for n in range(MAX_PROPERTIES + 1)}),
            "too many object properties. Expected at most 5000",
        ),
        (
            an_object(a={"enum": list(range(MAX_ENUM_VALUES))}),
            an_object(a={"enum": list(range(MAX_ENUM_VALUES))}, b={"enum": [1]}),
            "too many enum values. Expected at most 1000",
        ),
        (
            an_object(a={"const": "x" * (MAX_NAME_CHARACTERS - 1)}),
            an_object(a={"const": "x" * (MAX_NAME_CHARACTERS - 1)}, b=TEXT),
            "too many characters",
        ),
        (
            an_object(a={"anyOf": [TEXT] * (MAX_PARTS - 2)}),
            an_object(a={"anyOf": [TEXT] * (MAX_PARTS - 1)}),
            "too many schemas",
        ),
    ],
    ids=["objects", "arrays", "properties", "enum values", "characters", "schemas"],
)
def test_the_bounds_are_taken_and_one_more_is_refused(most: Json, beyond: Json, words: str) -> None:
    check(most)
    assert words in problem(beyond)


HUGE = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: an_object(a={"anyOf": [{}] * HUGE}),
        lambda: an_object(a={"type": ["string"] * HUGE}),
        lambda: an_object(a={"enum": [None] * HUGE}),
        lambda: {**an_object(a=TEXT), "required": ["a"] * HUGE},
        lambda: {**an_object(), "properties": {str(number): {} for number in range(HUGE)}},
        lambda: an_object(a={"$ref": "#" + "/a" * HUGE}),
        lambda: an_object(**{str(number): {"anyOf": [TEXT] * 1_000} for number in range(1_000)}),
    ],
    ids=["alternatives", "types", "values", "required", "properties", "reference", "many alternatives"],
)
def test_of_a_huge_schema_only_a_small_part_is_taken_apart(make: Callable[[], Json]) -> None:
    schema = make()
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        words = told(schema)
    finally:
        sys.setprofile(None)
    assert len(words) <= 1000
    assert calls < HUGE / 2


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
keywords = st.sampled_from(
    ["type", "properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs", "enum", "const", "a"]
)
anything = st.recursive(
    leaves | st.sampled_from(["object", "array", "string", "#", "#/$defs/a", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=30,
)


@given(st.dictionaries(keywords, anything, max_size=6))
def test_no_schema_ends_in_anything_but_its_refusal(schema: Json) -> None:
    message = told({"type": "object", **schema})
    assert not message or message.startswith("Invalid schema for response_format 'tide': ")
