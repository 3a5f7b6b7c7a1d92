"""Values for JSON schemas, judged by an independent validator."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.engines.sim.schema_check import MAX_BITS, MAX_REFERENCE, Validator
from respserver.engines.sim.schema_text import MAX_LENGTH
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
        ({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}, "0000-00-00"),
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
        ({"anyOf": [{"enum": [None]}, {"type": "string", "format": "date"}]}, "2025-01-01"),
        ({"anyOf": [{"const": None}, {"type": "string", "pattern": "^x$"}]}, "x"),
        ({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}, "a"),
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
        ({"type": "string", "pattern": "^(a+)+$"}, "a"),
        ({"type": "string", "pattern": "["}, "example"),
        ({"type": "string", "pattern": "[[a]]"}, "a]"),
        ({"type": "string", "pattern": 1}, "example"),
        ({"type": "nonsense"}, None),
        ({"type": []}, "example"),
        ({"type": 3}, None),
        ({"type": 3, "allOf": [{"type": "integer"}]}, None),
        ({"anyOf": 1, "allOf": 2, "enum": 3, "required": 4, "properties": 5, "items": 6}, {}),
        ({"type": "object", "properties": 5, "required": [1, "a"]}, {"a": "example"}),
        ({"properties": {"a": 5}, "allOf": [{"properties": {"a": {"const": 1}}}], "required": ["a"]}, {"a": 1}),
        ({"allOf": [False, {"type": "integer"}]}, None),
        ({"$ref": {}, "type": "integer"}, 1),
    ],
)
def test_the_impossible_and_the_malformed_get_a_plain_value_soon(schema: Any, value: Any) -> None:
    made = schema_value(schema)
    json.dumps(made)
    if value is not None:
        assert made == value
    assert len(json.dumps(made)) < 10 * MAX_LENGTH


def an_object_of(count: int, schema: Any) -> dict[str, Any]:
    names = [f"p{number}" for number in range(count)]
    return {"type": "object", "properties": dict.fromkeys(names, schema), "required": names}


def branches(count: int, schema: Any) -> dict[str, Any]:
    """A schema that is visited again and again."""
    return {"anyOf": [{"$ref": "#/$defs/it"}] * count, "$defs": {"it": schema}}


MANY = list(range(50_000))
OVERLONG = {
    "itself": an_object_of(50, {"$ref": "#"}),
    "pattern of a long enum": an_object_of(1, {"type": "string", "pattern": "x*x*x*!", "enum": ["x" * 500]}),
    "pattern of a long text": an_object_of(1, {"minLength": 4096, "pattern": "[a-z]*[a-z]*[a-z]*[a-z]*!"}),
    "many patterns": an_object_of(20, {"type": "string", "pattern": ".*.*.*.*!$"}),
    "many long patterns": an_object_of(2000, {"type": "string", "minLength": 9, "pattern": "a|" * 250}),
    "nested patterns": an_object_of(20, {"type": "string", "pattern": "(((a+)+)+)+$", "default": "a" * 100 + "b"}),
    "a long unique const": {"uniqueItems": True, "const": MANY},
    "a long enum at every branch": branches(5000, {"enum": MANY}),
    "a long type at every branch": branches(5000, {"type": ["string"] * 50_000, "not": {}}),
    "many keywords at every branch": branches(5000, {f"k{number}": 1 for number in MANY}),
    "enums of which none fits": {"enum": [f"s{number}" for number in MANY], "not": {}},
    "examples of which none fits": {"examples": [[[1] * 60]] * 50_000, "not": {}},
    "enums that are joined": {"allOf": [{"enum": MANY}, {"enum": MANY[::-1]}]},
    "properties that are joined": {
        "anyOf": [{"properties": {}}] * 5000,
        "properties": dict.fromkeys(map(str, MANY), True),
    },
    "lists that double": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "lists that are nearly alike": {"anyOf": [{"const": [*range(60), at]} for at in range(5000)], "not": {}},
    "texts that are nearly alike": {**branches(5000, {"const": "d" * 4_000_000}), "default": "d" * 3_999_999 + "e"},
    "types that are nearly alike": {"type": ["q" * 999_999 + "a"], "anyOf": [{"type": ["q" * 999_999 + "b"]}] * 2000},
    "long references": {"anyOf": [{"$ref": "#/" + "a/" * 500_000}] * 5000, "not": {}},
    "required without end": {"required": [f"p{number}" for number in MANY]},
    "text without end": {"minItems": 30, "items": {"minItems": 30, "items": {"type": "string", "minLength": 4096}}},
    "names without end": {"minItems": 20, "items": {"minItems": 20, "items": {"required": ["n" * 4000]}}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLONG)
@pytest.mark.parametrize("sparse", [True, False])
def test_the_work_and_the_value_are_bounded(name: str, sparse: bool) -> None:
    started = time.process_time()
    made = schema_value(OVERLONG[name], sparse=sparse)
    # A tenth of a second on the slowest of them; without its bound, each takes seconds or never ends.
    assert time.process_time() - started < 1
    assert len(json.dumps(made)) < 1_000_000


def test_a_pattern_is_never_judged_so_that_what_the_schema_names_is_taken() -> None:
    assert schema_value({"enum": ["b", "a"], "pattern": "^a$"}) == "b"
    assert schema_value({"type": "string", "format": "date", "pattern": "^x"}) == "2025-01-01"


def test_named_values_that_are_overlong_are_not_taken() -> None:
    assert schema_value({"default": list(range(MAX_ITEMS)), "type": "array"}) == list(range(MAX_ITEMS))
    assert schema_value({"default": list(range(MAX_ITEMS + 1)), "type": "array"}) == []
    assert schema_value({"default": {"a": {"b": "x" * MAX_LENGTH}}})["a"]["b"] == "x" * MAX_LENGTH
    assert schema_value({"type": "string", "default": "x" * (MAX_LENGTH + 1)}) == "example"
    assert schema_value({"type": "integer", "default": 2**MAX_BITS - 1}) == 2**MAX_BITS - 1
    assert schema_value({"type": "integer", "default": 2**MAX_BITS, "minimum": -(2**MAX_BITS)}) == 1


def test_names_that_are_overlong_are_left_out() -> None:
    schema = {"properties": {"a" * (MAX_LENGTH + 1): {}, "b": {}}, "required": ["a" * (MAX_LENGTH + 1)]}
    assert schema_value({**schema, "type": "object", "minProperties": 2}) == {"b": "example", "key0": "example"}


def test_a_reference_is_followed_up_to_a_length() -> None:
    name = "n" * (MAX_REFERENCE - len("#/$defs/"))
    schema = {"$defs": {name: {"const": 1}, name + "n": {"const": 2}}}
    assert schema_value({"$ref": f"#/$defs/{name}", **schema}) == 1
    assert schema_value({"$ref": f"#/$defs/{name}n", **schema}) == "example"


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
judged = st.one_of(strings, integers, numbers, formats, enums, consts, st.just({"type": "boolean"}), st.just({}))
leaves = judged | patterns


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
@given(st.recursive(judged, larger, max_leaves=4), st.recursive(JSON_LEAVES, lambda inner: st.lists(inner, max_size=3)))
def test_the_own_validator_judges_like_the_independent_one(schema: dict[str, Any], value: Any) -> None:
    # Formats and patterns are annotations for it: it only judges candidates, and those are made for them.
    assert Validator(schema).accepts(value, schema) == jsonschema.Draft202012Validator(schema).is_valid(value)


KEYWORDS = (
    *("type", "const", "enum", "default", "examples", "format", "pattern", "minLength", "maxLength", "minimum"),
    *("maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "minItems", "maxItems"),
    *("uniqueItems", "properties", "required", "additionalProperties", "minProperties", "maxProperties", "$ref"),
    *("$defs", "anyOf", "oneOf", "allOf", "not"),
)


def objects_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=4)


anything = st.recursive(JSON_LEAVES, lambda inner: st.lists(inner, max_size=3) | objects_of(inner), max_leaves=6)


@pytest.mark.slow
@given(objects_of(anything), st.booleans())
def test_any_json_at_any_place_of_a_schema_gets_a_value(schema: dict[str, Any], sparse: bool) -> None:
    json.dumps(schema_value(schema, sparse=sparse), allow_nan=False)
    json.dumps(schema_value({"type": "object", "allOf": [schema, {"properties": schema}]}, sparse=sparse))
