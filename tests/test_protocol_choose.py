"""``tool_choice`` in all its forms: how it is read, echoed, and held against the tools on offer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.errors import InvalidRequest, UnsupportedParameter
from respserver.protocol.choose import BY_TYPE, choose_tools
from respserver.schema.tools import NO_TOOLS, ToolChoice, ToolSet, parse_tools
from tests.support.hosts import FakeHost
from tests.support.live import Wire, calls_of, post
from tests.support.pure import read

Json = dict[str, Any]
LOOK: Json = {"type": "function", "name": "look"}
EXEC: Json = {"type": "custom", "name": "exec"}
WIKI: Json = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.test"}
SEARCH: Json = {"type": "web_search"}
SPACE: Json = {
    "type": "namespace",
    "name": "fs",
    "description": "Files.",
    "tools": [{"type": "function", "name": "ls"}],
}
F, V, M = "invalid_type", "invalid_value", "missing_required_parameter"


def allowed(*tools: Json, **fields: Any) -> Json:
    return {"type": "allowed_tools", "mode": "auto", "tools": list(tools), **fields}


def choice_of(value: Any) -> ToolChoice:
    return read(tool_choice=value).tool_choice


def chosen(value: Any, *tools: Json) -> ToolChoice:
    offer = parse_tools(json.dumps(list(tools)).encode())
    return choose_tools(choice_of(value), offer, offer.by_name)


def refusal(value: Any, *tools: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        chosen(value, *tools)
    return caught.value


FORMS: list[Any] = [
    "none",
    "auto",
    "required",
    LOOK,
    EXEC,
    {"type": "mcp", "server_label": "wiki"},
    {"type": "mcp", "server_label": "wiki", "name": "ask"},
    allowed(LOOK, EXEC, {"type": "mcp", "server_label": "wiki"}, {"type": "image_generation"}),
    allowed(LOOK, mode="required"),
    *({"type": kind} for kind in BY_TYPE),
]


@pytest.mark.parametrize("form", FORMS, ids=json.dumps)
def test_every_form_is_read_and_echoed_as_it_was_said(form: Any) -> None:
    assert json.loads(bytes(choice_of(form).echo)) == form


def test_the_echo_says_what_was_left_out_and_leaves_out_what_means_nothing() -> None:
    said = {"type": "allowed_tools", "tools": [{**LOOK, "description": None, "zzz": 1}], "zzz": 1}
    assert json.loads(bytes(choice_of(said).echo)) == allowed(LOOK)
    assert json.loads(bytes(choice_of({**LOOK, "zzz": 1, "server_label": None}).echo)) == LOOK
    assert bytes(read().tool_choice.echo) == bytes(choice_of(None).echo) == b'"auto"'


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ("maybe", V, "tool_choice"),
        ("", V, "tool_choice"),
        (5, F, "tool_choice"),
        ([], F, "tool_choice"),
        ({}, M, "tool_choice.type"),
        ({"type": 5}, F, "tool_choice.type"),
        ({"type": "zzz"}, V, "tool_choice.type"),
        ({"type": "function"}, M, "tool_choice.name"),
        ({"type": "function", "function": {"name": "look"}}, M, "tool_choice.name"),
        ({"type": "custom", "name": ""}, M, "tool_choice.name"),
        ({"type": "function", "name": 5}, F, "tool_choice.name"),
        ({"type": "mcp"}, M, "tool_choice.server_label"),
        ({"type": "mcp", "server_label": ""}, M, "tool_choice.server_label"),
        ({"type": "allowed_tools"}, M, "tool_choice.tools"),
        (allowed(), "empty_array", "tool_choice.tools"),
        (allowed(LOOK, mode="none"), V, "tool_choice.mode"),
        (allowed(LOOK, {"type": "function"}), M, "tool_choice.tools[1].name"),
        (allowed({"type": "mcp", "name": "x"}), M, "tool_choice.tools[0].server_label"),
        (allowed(LOOK, {"type": "zzz"}), V, "tool_choice.tools[1].type"),
        (allowed(allowed(LOOK)), V, "tool_choice.tools[0].type"),
        (allowed({}), M, "tool_choice.tools[0].type"),
    ],
    ids=json.dumps,
)
def test_anything_else_is_refused_by_its_place(value: Any, code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(tool_choice=value)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_a_word_that_is_none_tells_the_words_that_are() -> None:
    with pytest.raises(
        InvalidRequest, match=r"Invalid value: 'any'\. Supported values are: 'none', 'auto', 'required'"
    ):
        read(tool_choice="any")


@pytest.mark.parametrize(
    ("form", "mode", "names"),
    [
        ("auto", "auto", ()),
        ("none", "none", ()),
        ("required", "required", ()),
        (LOOK, "required", ("look",)),
        (EXEC, "required", ("exec",)),
        ({"type": "function", "name": "ls"}, "required", ("fs.ls",)),
        ({"type": "function", "name": "fs.ls"}, "required", ("fs.ls",)),
        (allowed(EXEC, LOOK), "auto", ("exec", "look")),
        (allowed(EXEC, EXEC), "auto", ("exec",)),
        (allowed(LOOK, SEARCH), "auto", ("look",)),
        (allowed(LOOK, SEARCH, mode="required"), "required", ("look",)),
        (allowed(SEARCH), "none", ()),
        (allowed({"type": "mcp", "server_label": "wiki"}), "none", ()),
    ],
    ids=json.dumps,
)
def test_a_choice_leaves_the_tools_that_can_be_called(form: Any, mode: str, names: tuple[str, ...]) -> None:
    made = chosen(form, LOOK, EXEC, SPACE, WIKI, SEARCH)
    assert (made.mode, made.names) == (mode, names)


@pytest.mark.parametrize(
    ("form", "named"),
    [
        ({"type": "function", "name": "nobody"}, "nobody"),
        ({"type": "function", "name": "exec"}, "exec"),
        ({"type": "custom", "name": "look"}, "look"),
        ({"type": "mcp", "server_label": "other"}, "other"),
        ({"type": "file_search"}, "file_search"),
        (allowed(LOOK, {"type": "function", "name": "nobody"}), "nobody"),
        (allowed(LOOK, {"type": "image_generation"}), "image_generation"),
        (allowed({"type": "mcp", "server_label": "other"}), "other"),
    ],
    ids=json.dumps,
)
def test_a_tool_that_is_not_on_offer_is_refused_by_name(form: Any, named: str) -> None:
    error = refusal(form, LOOK, EXEC, WIKI, SEARCH)
    assert (error.code, error.param) == (V, "tool_choice")
    assert error.message == f"Tool choice '{named}' not found in 'tools' parameter."


@pytest.mark.parametrize(
    ("form", "tools", "named"),
    [
        ("required", [SEARCH, WIKI], "'wiki', 'web_search'"),
        (SEARCH, [SEARCH, LOOK], "'web_search'"),
        ({"type": "mcp", "server_label": "wiki"}, [WIKI, LOOK], "'wiki'"),
        (allowed(SEARCH, mode="required"), [SEARCH, LOOK], "'web_search'"),
        ({"type": "computer"}, [{"type": "computer_use_preview"}], "'computer'"),
    ],
    ids=json.dumps,
)
def test_a_call_that_nothing_here_makes_may_not_be_demanded(form: Any, tools: list[Json], named: str) -> None:
    error = refusal(form, *tools)
    assert isinstance(error, UnsupportedParameter)
    assert error.param == "tool_choice"
    assert error.message.endswith(f" demands a call of {named}, and this server calls functions only.")


@pytest.mark.parametrize("form", ["required", LOOK, allowed(LOOK)], ids=json.dumps)
def test_without_tools_nothing_can_be_chosen(form: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        choose_tools(choice_of(form), NO_TOOLS, {})
    assert (caught.value.code, caught.value.param) == (V, "tool_choice")


@pytest.mark.parametrize(
    ("named", "offered"),
    [
        ("web_search", "web_search_2025_08_26"),
        ("web_search_preview", "web_search_preview_2025_03_11"),
        ("computer", "computer_use_preview"),
        ("computer_use_preview", "computer"),
    ],
)
def test_the_versions_of_a_tool_are_one_tool(named: str, offered: str) -> None:
    assert chosen(allowed({"type": named}), {"type": offered}).mode == "none"


def test_tools_that_earlier_turns_added_may_be_chosen() -> None:
    offered = parse_tools(json.dumps([LOOK]).encode()).by_name
    assert choose_tools(choice_of(LOOK), ToolSet(), offered).names == ("look",)


async def test_the_choice_is_echoed_and_obeyed_on_both_transports(serve: Any, connect: Any) -> None:
    server = await serve(hosts=[FakeHost()])
    wire: Wire = await connect(server)
    tools = [SEARCH, WIKI, {"type": "function", "name": "order"}, {"type": "function", "name": "buy"}]
    form = allowed(SEARCH, {"type": "function", "name": "buy"}, mode="required")
    over_socket = await wire.completed(input="hi", tools=tools, tool_choice=form)
    over_http = (await post(server, input="hi", tools=tools, tool_choice=form)).json()
    for response in (over_socket, over_http):
        assert response["tool_choice"] == form
        assert [call["name"] for call in calls_of(response)] == ["buy"]
    silent = await wire.completed(
        input="hi", tools=[SEARCH, {"type": "function", "name": "get_it"}], tool_choice=allowed(SEARCH)
    )
    assert calls_of(silent) == []
    error = await wire.refused(input="hi", tools=tools, tool_choice=SEARCH)
    assert (error["status"], error["error"]["code"]) == (400, "unsupported_parameter")
