"""Pages that are made from the code: each is as its program writes it, and says all that the code says."""

from __future__ import annotations

import json
import re
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from respserver.errors import ApiError
from respserver.protocol import states
from respserver.protocol.read_steer import read_steer
from respserver.protocol.validate import read_create
from respserver.schema.codec import read_object
from tests.support.pages import DOCS, maker, text_of

MAKERS = sorted(path.stem for path in DOCS.glob("make_*.py"))
PROTOCOL = DOCS / "protocol.md"


@cache
def load(name: str) -> ModuleType:
    return maker(name)


def test_there_are_programs_for_these_pages() -> None:
    assert [load(name).PAGE.name for name in MAKERS] == ["cli.md", "errors.md", "states.md"]


@pytest.mark.slow  # the whole package is read for the errors, once
@pytest.mark.parametrize("name", MAKERS)
def test_the_page_is_as_its_program_writes_it(name: str) -> None:
    made = load(name)
    assert made.PAGE.read_text("utf-8") == made.page(), f"run python docs/{name}.py"


# --------------------------------------------------------------------------------------------------- states.md


def tables() -> dict[str, states.Table]:
    return dict(load("make_state_diagrams").tables())


def test_every_table_of_the_module_is_drawn() -> None:
    found = tables()
    assert {"SHIPPED", "PROTOTYPE"} <= set(found)
    assert all(any(table is found[name] for name in found) for table in states.TABLES.values())
    page = text_of(DOCS / "states.md")
    assert page.count("```mermaid\nstateDiagram-v2\n") == len(found)


def test_a_drawing_has_every_move_of_its_table_and_no_other() -> None:
    drawings = re.findall(r"```mermaid\n(.*?)```", text_of(DOCS / "states.md"), re.DOTALL)
    for table, drawing in zip(tables().values(), drawings, strict=True):
        arrows = re.findall(r"^ +(\w+) --> (\w+): (.+)$", drawing, re.MULTILINE)
        drawn = {(before, move, after) for before, after, moves in arrows for move in moves.split(", ")}
        assert drawn == {(before.name, move.value, after.name) for (before, move), after in table.items()}


def test_what_every_state_and_move_is_stands_below_it_with_its_rule() -> None:
    made = load("make_state_diagrams")
    for kind in {type(part) for table in tables().values() for row, after in table.items() for part in (*row, after)}:
        sayings = made.sayings(kind)
        for member in kind:
            assert re.search(r"\w+\.md section \d", sayings.get(member.name, "")), f"{member} has no text with a rule"


def test_the_drawing_in_the_module_shows_the_same_states_and_moves() -> None:
    drawing = "\n".join(line for line in (states.__doc__ or "").splitlines() if line.startswith("    "))
    every = {
        (before.name, move.value, after.name)
        for table in states.TABLES.values()
        for (before, move), after in table.items()
    }
    rightwards = re.findall(r"(\w+) ── (\w+) ──▶ (\w+)", drawing)
    leftwards = [(start, move, end) for end, move, start in re.findall(r"(\w+) ◀── (\w+) ── (\w+)", drawing)]
    assert rightwards
    assert leftwards
    assert {*rightwards, *leftwards} <= every
    words = set(re.findall(r"\w+", drawing))
    assert {word for row in every for word in row} <= words
    assert {word for word in words if word.isupper()} <= {state.name for state in states.LaneState}


# --------------------------------------------------------------------------------------------------- errors.md


def sources_by_code() -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for source in load("make_errors_page").sources():
        found.setdefault(source.code, set()).add(source.status)
    return found


def rules() -> dict[str, list[tuple[int, str]]]:
    """The rows of protocol.md's table by code, as status and words."""
    table = text_of(PROTOCOL).partition("### 4.2 ")[2].partition("### 4.3 ")[0]
    found: dict[str, list[tuple[int, str]]] = {}
    for status, codes, when in re.findall(r"^\| (\d{3}) \| ([^|]+) \| (.+) \|$", table, re.MULTILINE):
        for code in re.findall(r"`(\w+)`", codes):
            found.setdefault(code, []).append((int(status), when))
    return found


def test_the_list_of_errors_and_the_rules_of_the_protocol_name_the_same_codes() -> None:
    assert set(sources_by_code()) == set(rules())


def test_the_list_of_errors_and_the_rules_of_the_protocol_agree_on_statuses() -> None:
    listed = sources_by_code()
    for code, rows in rules().items():
        told = {status for status, _ in rows}
        told |= {int(status) for _, when in rows for status in re.findall(r"\b([45]\d\d) when\b", when)}
        assert told == listed[code], code


def test_the_list_of_errors_and_the_rules_of_the_protocol_agree_on_where_they_show() -> None:
    made = load("make_errors_page")
    for code, rows in rules().items():
        place = made.place_of(code)
        for _, when in rows:
            assert "`response.failed`" not in when or "`response.failed`" in place, code
            assert not when.startswith("HTTP:") or "HTTP" in place, code
            assert "retry-after" not in when or "`retry-after`" in sections().get(code, ""), code


def test_every_code_has_a_section_that_says_what_it_means() -> None:
    assert set(sections()) == set(sources_by_code())
    for code, text in sections().items():
        assert re.match(r"\n[^`\n].{8}|\n`(?!``).{8}", text), code


def test_nothing_is_said_about_codes_that_are_not_there() -> None:
    made = load("make_errors_page")
    assert set(made.SAID) <= set(sources_by_code())
    assert all({"shows", "means", "says", "do"} >= set(said) != set() for said in made.SAID.values())


STRICT = {"type": "object", "additionalProperties": False}
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "invalid_function_parameters": [
        {"tools": [{"type": "function", "name": "get_tide", "strict": True, "parameters": {
            **STRICT, "properties": {"harbour": {"type": "string", "minLength": 1}}, "required": ["harbour"]}}]},
    ],
    "invalid_json_schema": [
        {"text": {"format": {"type": "json_schema", "name": "tide", "strict": True, "schema": {
            **STRICT, "properties": {"level": {"type": "string", "minLength": 1}}, "required": ["level"]}}}},
    ],
    "invalid_input": [{}, {"input": [{"type": "function_call_output", "call_id": "call_8cfe", "output": "12:04"}]}],
}  # fmt: skip
"""Fields of creates, or of a ``response.steer``, by the code with which they are refused."""


def test_examples_that_no_class_has_are_what_the_server_says() -> None:
    made = load("make_errors_page")
    assert {code for code, said in made.SAID.items() if "says" in said} == set(EXAMPLES)
    for code, cases in EXAMPLES.items():
        errors = [refused(code, fields) for fields in cases]
        assert [error.code for error in errors] == [code] * len(cases)
        assert [error.message for error in errors] == made.SAID[code]["says"]


def refused(code: str, fields: dict[str, Any]) -> ApiError:
    usual = {} if code == "invalid_input" else {"model": "m", "input": "x"}
    sent = read_object(json.dumps({**usual, **fields}))
    try:
        read_create(sent, "websocket") if usual else read_steer(sent, 1000)
    except ApiError as error:
        return error
    raise AssertionError(f"{code} is not told")


def sections() -> dict[str, str]:
    """What errors.md has below the heading of each code."""
    found = re.split(r"^### `(\w+)`\n", text_of(DOCS / "errors.md"), flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))
