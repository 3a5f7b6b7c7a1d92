"""What a request's ``text.format`` constrains, the embedded model keeps, whether it plays a script or rehearses."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.engines.base import SamplingParams
from respserver.engines.sim import Script, call, fault, reasoning, refusal, step
from respserver.engines.sim.promised import check_made, check_said
from respserver.engines.sim.schema_value import schema_value
from respserver.engines.sim.script import Text
from respserver.errors import ModelFault
from respserver.schema.json_schema import check_strict
from tests.support.live import Wire, post, text_of, tool

Json = dict[str, Any]
TIDE: Json = {
    "type": "object",
    "properties": {"tide": {"type": "string"}, "metres": {"type": "number", "minimum": 1}},
    "required": ["tide", "metres"],
    "additionalProperties": False,
}
GOOD = '{"tide": "high", "metres": 4.2}'
STRICT = SamplingParams(model="sim", text_schema=TIDE, text_strict=True)
LOOSE = SamplingParams(model="sim", text_schema=TIDE)
JSON_MODE = SamplingParams(model="sim", json_object=True)


def said(params: SamplingParams, *outputs: Any) -> None:
    check_said(step(*outputs).output, params, "mine")


def text_format(strict: bool | None = True) -> Json:
    return {"format": {"type": "json_schema", "name": "tide", "schema": TIDE, "strict": strict}}


NOT_TIDE = ["High.", "", "[]", "{}", "4", '{"tide": "high"}', '{"tide": "high", "metres": 0}', GOOD + "x", GOOD[:-1]]
NO_OBJECT = ["High.", "", "[]", "4", '{"a": 1}}', "[" * 5000]


@pytest.mark.parametrize("text", [*NOT_TIDE, '{"tide": "high", "metres": 4, "more": 1}'])
def test_a_text_that_a_strict_schema_does_not_accept_is_a_fault(text: str) -> None:
    with pytest.raises(ModelFault, match=r"^Script 'mine' answers with a text that no constrained model could say"):
        said(STRICT, text)
    said(LOOSE, text)


@pytest.mark.parametrize("text", NO_OBJECT)
def test_json_mode_takes_json_objects_only(text: str) -> None:
    with pytest.raises(ModelFault, match="that is a JSON object"):
        said(JSON_MODE, text)


@pytest.mark.parametrize(
    "outputs",
    [
        (GOOD,),
        (Text((GOOD[:9], GOOD[9:])),),
        (reasoning("Let me think."), GOOD),
        (refusal("No."),),
        ("I look.", call("look")),
        ("It beg", fault("broke")),
        (Text(("I think aloud.",), "commentary"), GOOD),
    ],
    ids=["whole", "in parts", "behind reasoning", "refusal", "before a call", "before a fault", "commentary"],
)
def test_what_a_constrained_model_may_say_besides(outputs: Any) -> None:
    said(STRICT, *outputs)
    said(JSON_MODE, *outputs)


def test_a_schema_that_is_too_much_to_judge_is_not_held_against_the_text() -> None:
    wide: Json = {"anyOf": [{"type": "integer"}] * 20_000}
    schema = {**TIDE, "properties": {"tide": wide}, "required": ["tide"]}
    said(SamplingParams(model="sim", text_schema=schema, text_strict=True), '{"tide": "high"}')


def test_an_answer_of_its_own_that_does_not_satisfy_the_schema_is_a_fault() -> None:
    with pytest.raises(ModelFault, match="finds no JSON"):
        check_made({}, STRICT)
    check_made({}, LOOSE)
    check_made({"tide": "high", "metres": 1}, STRICT)


# A string pattern is never run here, so that none stands among these.
leaves = st.sampled_from(
    [
        {"type": "string"}, {"type": "string", "format": "date"}, {"type": "integer", "minimum": 3, "maximum": 9},
        {"type": "number", "exclusiveMinimum": 0}, {"type": ["string", "null"]}, {"type": "boolean"},
        {"type": "string", "enum": ["a", "b"]}, {"const": 5}, {"type": "null"}, {"type": "integer", "multipleOf": 7},
    ]
)  # fmt: skip


def an_object(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def bigger(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return (
        st.dictionaries(st.text(max_size=4), inner, max_size=4).map(an_object)
        | st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts})
    )


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.recursive(leaves, bigger, max_leaves=12), max_size=4).map(an_object))
def test_the_rehearsal_satisfies_every_strict_schema(schema: Json) -> None:
    check_strict(schema, "response_format 'x'", "text.format.schema", "invalid_json_schema")
    value = schema_value(schema)
    jsonschema.validate(value, schema)
    check_made(value, SamplingParams(model="sim", text_schema=schema, text_strict=True))


async def test_a_script_that_breaks_the_promise_fails_its_turn_in_plain_words(serve: Any, connect: Any) -> None:
    server = await serve(Script.of("High.", GOOD, "High.", on_end="repeat"))
    wire: Wire = await connect(server)
    begun = await wire.turn(input="hi", text=text_format())
    assert [frame["type"] for frame in begun] == ["response.created", "response.in_progress", "response.failed"]
    error = begun[-1]["response"]["error"]
    assert error["code"] == "invalid_prompt"
    assert "strict JSON schema" in error["message"]
    assert text_of(await wire.completed(input="hi", text=text_format(strict=False))) == "High."
    answer = await post(server, input="hi", text=text_format())
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_prompt")


async def test_each_request_is_held_to_its_own_format_though_the_step_is_played_from_memory(
    serve: Any, connect: Any
) -> None:
    server = await serve(Script.of("High.", on_end="repeat"))
    for text, status in (({}, 200), (text_format(), 400), ({}, 200), ({"format": {"type": "json_object"}}, 400)):
        assert (await post(server, input="hi", text=text)).status_code == status


async def test_a_call_may_come_before_the_constrained_answer(serve: Any, connect: Any) -> None:
    server = await serve(Script.of(["I look.", call("look")], GOOD))
    wire: Wire = await connect(server)
    fields: Json = {"tools": [tool("look")], "text": text_format()}
    first = await wire.completed(input="tide?", **fields)
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "ok"}
    second = await wire.completed(input=[result], previous_response_id=first["id"], **fields)
    assert json.loads(text_of(second)) == json.loads(GOOD)
