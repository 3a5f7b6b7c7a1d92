"""Values for JSON schemas, judged by an independent validator."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.engines.sim.schema_check import Validator
from respserver.engines.sim.schema_text import MAX_LENGTH, matches, sample
from respserver.engines.sim.schema_value import MAX_ITEMS, schema_value

STRING = {"type": "string"}
TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {"anyOf": [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/leaf"}]},
        "node": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}},
            "required": ["left", "right"],
            "additionalProperties": False,
        },
        "leaf": {
            "type": "object",
            "properties": {"value": {"type": "integer"}},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}
LIST = {
    "type": "object",
    "properties": {"value": STRING, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}


def valid(value: Any, schema: Any) -> bool:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return bool(jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(value))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, "example"),
        ({}, "example"),
        ({"const": 7}, 7),
        ({"enum": ["b", "a"]}, "b"),
        ({"enum": ["b", 3], "type": "integer"}, 3),
        ({"type": "integer", "default": 4}, 4),
        ({"type": "integer", "default": "wrong"}, 1),
        ({"type": "integer", "examples": ["wrong", 9]}, 9),
        ({"type": "integer", "default": True}, 1),
        ({"type": "string"}, "example"),
        ({"type": "string", "minLength": 10}, "exampleexa"),
        ({"type": "string", "maxLength": 3}, "exa"),
        ({"type": "string", "maxLength": 0}, ""),
        ({"type": "string", "format": "date-time"}, "2025-01-01T00:00:00Z"),
        ({"type": "string", "format": "email"}, "user@example.com"),
        ({"type": "string", "format": "unheard-of"}, "example"),
        ({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}, "2025-01-01"),
        ({"type": "string", "pattern": "^[A-Z]{3}$"}, "AAA"),
        ({"type": "string", "pattern": "^(red|green)$"}, "red"),
        ({"type": "string", "pattern": "^[a-z]+$", "minLength": 9}, "aaaaaaaaa"),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "exclusiveMaximum": 1}, 0),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "number", "minimum": 0.5}, 1),
        ({"type": "boolean"}, True),
        ({"type": "boolean", "const": False}, False),
        ({"type": "null"}, None),
        ({"type": ["null", "integer"]}, 1),
        ({"type": "array"}, []),
        ({"type": "array", "items": STRING, "minItems": 2}, ["example", "example"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "uniqueItems": True}, ["a", "b"]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 9, "uniqueItems": True}, None),
        ({"type": "array", "items": STRING, "minItems": 2, "uniqueItems": True}, ["example", "example1"]),
        ({"type": "array", "prefixItems": [STRING, {"type": "null"}], "minItems": 2}, ["example", None]),
        ({"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["b"]}, {"b": "example"}),
        ({"type": "object", "required": ["x"]}, {"x": "example"}),
        ({"type": "object", "properties": {"a": STRING}, "minProperties": 2}, {"a": "example", "key0": "example"}),
        ({"properties": {"a": STRING}, "required": ["a"]}, {"a": "example"}),
        ({"minItems": 1}, ["example"]),
        ({"minimum": 3}, 3),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}, STRING]}, "example"),
        ({"allOf": [{"type": "integer", "minimum": 3}, {"minimum": 7}, {"maximum": 9}]}, 7),
        ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3]}]}, 2),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, 1),
        (
            {"allOf": [{"properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]},
            {"a": "example", "b": "example"},
        ),
        ({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, {"a": "example"}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"const": 1}}}, 1),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, 1),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, 1),
        ({"title": "a", "allOf": [{"title": "b", "type": "integer"}]}, 1),
        ({"maximum": 9, "allOf": [{"type": "integer", "maximum": -2}]}, -2),
        ({"examples": ["a"], "allOf": [{"type": "integer", "examples": [5]}]}, 5),
        (
            {
                "type": "object",
                "properties": {"a": {"minLength": 9}},
                "required": ["a"],
                "anyOf": [{"properties": {"a": {"type": "string"}}}],
            },
            {"a": "exampleex"},
        ),
        ({"type": "array", "uniqueItems": True, "const": [1, 2]}, [1, 2]),
        ({"type": "array", "uniqueItems": True, "enum": [[1, 1], [2]]}, [2]),
        ({"$ref": "#/anyOf/1", "anyOf": [False, {"const": 1}]}, 1),
        ({"not": {"type": "string"}}, {}),
        ({"type": "string", "minLength": 2, "enum": ["a", "bc"]}, "bc"),
    ],
)
def test_the_value_is_known_and_valid(schema: Any, value: Any) -> None:
    made = schema_value(schema)
    assert valid(made, schema)
    if value is not None or valid(None, schema):
        assert made == value
        assert isinstance(made, bool) == isinstance(value, bool)


@pytest.mark.parametrize("schema", [TREE, LIST])
@pytest.mark.parametrize("sparse", [True, False])
def test_recursion_ends_in_a_valid_value(schema: dict[str, Any], sparse: bool) -> None:
    assert valid(schema_value(schema, sparse=sparse), schema)


def test_null_is_the_last_choice_unless_the_value_shall_be_sparse() -> None:
    schema = {
        "properties": {"a": {"type": ["string", "null"]}, "b": {"anyOf": [STRING, {"type": "null"}]}},
        "required": ["a", "b"],
        "type": "object",
    }
    assert schema_value(schema) == {"a": "example", "b": "example"}
    assert schema_value(schema, sparse=True) == {"a": None, "b": None}
    assert schema_value({"const": None}) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (False, "example"),
        ({"type": "integer", "minimum": 3, "maximum": 1}, None),
        ({"$ref": "#"}, "example"),
        ({"$ref": "https://example.com/schema"}, "example"),
        ({"$ref": 1}, "example"),
        ({"$ref": "#/anyOf/7", "anyOf": [{"const": 1}]}, 1),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}, "example"),
        ({"allOf": [{"$ref": "#"}]}, "example"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, None),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 3}, None),
        ({"type": "array", "minItems": 10**9}, ["example"] * MAX_ITEMS),
        ({"type": "string", "minLength": 10**9}, None),
        ({"type": "object", "minProperties": 10**9}, None),
        ({"type": "integer", "multipleOf": 0}, 1),
        ({"type": "number", "minimum": 1e308, "multipleOf": 1e-308}, None),
        ({"type": "number", "minimum": float("inf")}, None),
        ({"type": "string", "pattern": "^(a+)+$"}, "example"),
        ({"type": "string", "pattern": "["}, "example"),
        ({"type": "string", "pattern": "[[a]]"}, "example"),
        ({"type": "string", "pattern": 1}, "example"),
        ({"type": "nonsense"}, None),
        ({"type": []}, "example"),
        ({"type": 3}, None),
        ({"type": 3, "allOf": [{"type": "integer"}]}, None),
        ({"anyOf": 1, "allOf": 2, "enum": 3, "required": 4, "properties": 5, "items": 6}, {}),
        ({"type": "object", "properties": 5, "required": [1, "a"]}, {"a": "example"}),
    ],
)
def test_the_impossible_and_the_malformed_get_a_plain_value_soon(schema: Any, value: Any) -> None:
    made = schema_value(schema)
    json.dumps(made)
    if value is not None:
        assert made == value
    assert len(json.dumps(made)) < 10 * MAX_LENGTH


@pytest.mark.slow
def test_the_work_is_bounded() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(50)}}
    wide["required"] = list(wide["properties"])  # type: ignore[call-overload]  # a dict, as written above
    started = time.process_time()
    schema_value(wide)
    assert time.process_time() - started < 2


JSON_LEAVES = st.none() | st.booleans() | st.integers(-100, 100) | st.text(max_size=5)


def small(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


strings = st.builds(
    lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, small(0, 20), small(0, 9)
)
integers = st.builds(
    lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, small(-50, 50), small(0, 9)
)
numbers = st.builds(
    lambda low, more: {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + more},
    st.floats(-50, 50),
    st.floats(0.1, 9),
)
formats = st.sampled_from(["date", "date-time", "email", "uri", "uuid", "ipv4", "ipv6"]).map(
    lambda name: {"type": "string", "format": name}
)
patterns = st.sampled_from(
    [
        "^[a-z]+$",
        r"^\d{3}-\d{4}$",
        "^(yes|no)$",
        "x$",
        "^[A-Z][a-z]*[0-9]?$",
        r"^\w+@\w+\.org$",
        "^#[0-9a-fA-F]{6}$",
        "é+",
    ]
).map(lambda pattern: {"type": "string", "pattern": pattern})
enums = st.lists(JSON_LEAVES, min_size=1, max_size=4).map(lambda values: {"enum": values})
consts = JSON_LEAVES.map(lambda value: {"const": value})
leaves = st.one_of(
    strings, integers, numbers, formats, patterns, enums, consts, st.just({"type": "boolean"}), st.just({})
)


def larger(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.dictionaries(st.sampled_from("abcd"), inner, min_size=1)
    objects = names.map(lambda known: {"type": "object", "properties": known, "required": sorted(known)})
    closed = objects.map(lambda schema: {**schema, "additionalProperties": False})
    arrays = st.builds(lambda items, low: {"type": "array", "items": items, "minItems": low}, inner, small(0, 3))
    choices = st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts})
    nullable = inner.map(lambda schema: {"anyOf": [schema, {"type": "null"}]})
    exclusive = inner.map(lambda schema: {"oneOf": [{"type": "object", "required": ["zz"]}, {"allOf": [schema]}]})
    return st.one_of(objects, closed, arrays, choices, nullable, exclusive)


@pytest.mark.slow
@given(st.recursive(leaves, larger, max_leaves=8), st.booleans())
def test_a_value_is_made_for_every_satisfiable_schema(schema: dict[str, Any], sparse: bool) -> None:
    made = schema_value(schema, sparse=sparse)
    assert valid(made, schema), made
    assert schema_value(schema, sparse=sparse) == made


@pytest.mark.slow
@given(st.recursive(leaves, larger, max_leaves=4), st.recursive(JSON_LEAVES, lambda inner: st.lists(inner, max_size=3)))
def test_the_own_validator_judges_like_the_independent_one(schema: dict[str, Any], value: Any) -> None:
    # Formats are annotations for it: it only judges candidates, and those are right by construction.
    assert Validator(schema).accepts(value, schema) == jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("pattern", "extra", "found"),
    [
        (r"^\+?[0-9]{10}$", 0, "0000000000"),
        ("^[a-z0-9-]+$", 7, "aaaaaaa"),
        ("a*b", 0, "b"),
        ("a*b", 2, "aab"),
        ("a{2,}", 3, "aaa"),
        ("a{2,5}", 9, "aa"),
        ("(?:ab|c)d", 0, "abd"),
        (r"[^a0A]\.\{", 0, "-.{"),
        ("日本", 0, "日本"),
        ("a+?b", 1, "ab"),
        ("(a+)+", 0, None),
        ("(a|a)*", 0, None),
        ("(?=a)a", 0, None),
        (r"(a)\1", 0, None),
        (r"\bword\b", 0, None),
        ("a*a*a*a*a*b", 0, None),
        ("a{999999999}", 0, None),
        ("(", 0, None),
    ],
)
def test_patterns_are_followed_or_left_alone(pattern: str, extra: int, found: str | None) -> None:
    assert sample(pattern, extra) == found


def test_a_pattern_that_is_left_alone_holds() -> None:
    assert matches("(a+)+$", "b")
    assert matches(None, "b")
    assert not matches("^a+$", "b")
    assert matches("^a+$", "aaa")
