"""Kinds that pass through: who owes an output, what puts tools on offer, where images hide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.errors import InvalidRequest
from respserver.schema.input import read_input
from respserver.schema.items import CALL_KIND_OF_OUTPUT, OUTPUT_KIND_OF_CALL, OpaqueItem, tools_of
from respserver.schema.parts import IMAGE_TOKENS

IMAGE = "data:image/png;base64,QUJD"
OPAQUE_CALLS = [kind for kind in OUTPUT_KIND_OF_CALL if kind not in ("function_call", "custom_tool_call")]


def one(kind: str, **fields: Any) -> OpaqueItem:
    (item,) = read_input(json.dumps([{"type": kind, **fields}]).encode())
    assert isinstance(item, OpaqueItem)
    return item


def faults(kind: str, **fields: Any) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        one(kind, **fields)
    return caught.value.code, caught.value.param


@pytest.mark.parametrize(
    ("kind", "fields", "owed"),
    [
        ("shell_call", {}, True),
        ("shell_call", {"environment": None}, True),
        ("shell_call", {"environment": {"type": "local", "skills": []}}, True),
        ("shell_call", {"environment": {"type": "container_reference", "container_id": "c"}}, False),
        ("local_shell_call", {}, True),
        ("apply_patch_call", {"status": "completed"}, True),
        ("apply_patch_call", {"status": "incomplete"}, False),
        ("computer_call", {"actions": []}, True),
        ("tool_search_call", {"execution": "client", "arguments": {"query": "x"}}, True),
        ("tool_search_call", {"execution": "server"}, False),
        ("tool_search_call", {}, False),
    ],
)
def test_a_call_is_owed_an_output_if_the_client_carries_it_out(kind: str, fields: dict[str, Any], owed: bool) -> None:
    item = one(kind, id="x_1", call_id="c1", **fields)
    assert (item.id, item.call_id, item.owed) == ("x_1", "c1", owed)
    assert one(kind, **fields).owed is False  # nothing could name it


def test_an_approval_is_asked_for_and_given_by_the_requests_id() -> None:
    asked = one("mcp_approval_request", id="mcpr_1", name="n", arguments="{}", server_label="s")
    given = one("mcp_approval_response", id="x", approval_request_id="mcpr_1", approve=True)
    assert (asked.call_id, asked.owed, given.call_id, given.id) == ("mcpr_1", True, "mcpr_1", "x")
    assert one("mcp_approval_request", name="n").owed is False


def test_an_output_of_a_local_shell_call_may_name_the_call_by_its_own_id() -> None:
    assert (
        one("local_shell_call_output", id="c1", output="x").call_id,
        one("local_shell_call_output", id="c1").id,
    ) == (
        "c1",
        None,
    )
    item = one("local_shell_call_output", id="lsho_1", call_id="c1")
    assert (item.call_id, item.id) == ("c1", "lsho_1")


@pytest.mark.parametrize("kind", OPAQUE_CALLS)
def test_an_output_names_its_call(kind: str) -> None:
    output = OUTPUT_KIND_OF_CALL[kind]
    field = "approval_request_id" if kind == "mcp_approval_request" else "call_id"
    if kind == "tool_search_call":
        assert one(output, call_id=None, execution="server", tools=[]).call_id is None
        assert one(output, call_id="c1", execution="server", tools=[]).call_id is None
        assert one(output, call_id="c1", execution="client", tools=[]).call_id == "c1"
        return
    assert faults(output) == ("missing_required_parameter", f"input[0].{field}")
    assert faults(output, **{field: ""}) == ("empty_string", f"input[0].{field}")
    assert faults(output, **{field: 5}) == ("invalid_type", f"input[0].{field}")


def test_found_tools_are_on_offer() -> None:
    tools = [{"type": "function", "name": "n"}]
    assert json.loads(tools_of(one("tool_search_output", tools=tools)) or b"") == tools
    assert tools_of(one("tool_search_output")) is None
    assert tools_of(one("mcp_list_tools", tools=tools)) is None


@pytest.mark.parametrize("detail", [None, "low"])
def test_a_screenshots_data_is_no_text_of_the_context(detail: str | None) -> None:
    output = {"type": "computer_screenshot", "image_url": IMAGE, "detail": detail}
    item = one("computer_call_output", call_id="c1", output=output)
    assert json.loads(item.raw)["output"]["image_url"] == IMAGE
    assert json.loads(item.shown or b"") == {
        "type": "computer_call_output",
        "call_id": "c1",
        "output": {"type": "computer_screenshot", "detail": detail},
    }
    assert (item.pads, item.size) == (IMAGE_TOKENS[detail or "auto"], 3)


@pytest.mark.parametrize("source", [{"image_url": "https://host.example/a.png"}, {"file_id": "file_1"}])
def test_a_screenshot_that_is_only_named_stays_as_it_is(source: dict[str, str]) -> None:
    item = one("computer_call_output", call_id="c1", output={"type": "computer_screenshot", **source})
    assert (item.shown, item.pads, item.size) == (None, IMAGE_TOKENS["auto"], 0)


def test_an_image_that_was_made_is_no_text_either() -> None:
    item = one("image_generation_call", id="ig_1", status="completed", result="QUJD")
    assert json.loads(item.shown or b"") == {"type": "image_generation_call", "id": "ig_1", "status": "completed"}
    assert (item.id, item.pads, item.size) == ("ig_1", IMAGE_TOKENS["auto"], 3)
    empty = one("image_generation_call", id="ig_1", status="failed", result=None)
    assert (empty.shown, empty.pads) == (None, 0)


@pytest.mark.parametrize(
    ("kind", "fields", "code", "param"),
    [
        ("computer_call_output", {"call_id": "c"}, "missing_required_parameter", "input[0].output"),
        (
            "computer_call_output",
            {"call_id": "c", "output": {}},
            "missing_required_parameter",
            "input[0].output.image_url",
        ),
        ("computer_call_output", {"call_id": "c", "output": 5}, "invalid_type", "input[0].output"),
        (
            "computer_call_output",
            {"call_id": "c", "output": {"image_url": "x"}},
            "invalid_image_url",
            "input[0].output.image_url",
        ),
        ("image_generation_call", {"result": "!"}, "invalid_base64_image", "input[0].result"),
        ("shell_call", {"environment": 5}, "invalid_type", "input[0].environment"),
        ("zzz", {"call_id": 5}, "invalid_type", "input[0].call_id"),
    ],
)
def test_a_faulty_item_is_named_by_its_place(kind: str, fields: dict[str, Any], code: str, param: str) -> None:
    assert faults(kind, **fields) == (code, param)


def test_kinds_with_their_results_inside_owe_nothing() -> None:
    kinds = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools", "program")
    for kind in kinds:
        assert kind not in OUTPUT_KIND_OF_CALL
        assert f"{kind}_output" not in CALL_KIND_OF_OUTPUT
        assert one(kind, id="x", call_id="c", status="completed").owed is False
