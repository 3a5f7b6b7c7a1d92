"""Tool definitions: what is read, what is echoed, what passes through, and which one is at fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from respserver.errors import InvalidField, InvalidJson, InvalidRequest
from respserver.schema.tools import NO_TOOLS, ToolSet, parse_tools, qualified_name

LOOK = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": False}
EXEC = {"type": "custom", "name": "exec", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}


def parse(*tools: Any) -> ToolSet:
    return parse_tools(json.dumps(list(tools)).encode())


def namespace(name: str, *tools: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools)}


def test_functions_and_custom_tools_are_found_by_name() -> None:
    tools = parse(LOOK, EXEC)
    assert list(tools.by_name) == ["look", "exec"]
    look, execute = tools.by_name.values()
    assert (look.type, look.description, look.parameters) == ("function", "Looks.", {"type": "object"})
    assert (execute.type, execute.format) == ("custom", EXEC["format"])
    assert (look.namespace, look.qualified_name) == (None, "look")


def test_a_namespace_stands_before_the_names_of_its_tools() -> None:
    tools = parse(namespace("fs", {"type": "function", "name": "ls"}, EXEC), LOOK)
    assert list(tools.by_name) == ["fs.ls", "fs.exec", "look"]
    inner = tools.by_name["fs.ls"]
    assert (inner.name, inner.namespace, inner.qualified_name) == ("ls", "fs", "fs.ls")


def test_the_default_namespace_is_where_plain_tools_live() -> None:
    tools = parse(namespace("functions", LOOK))
    assert list(tools.by_name) == ["look"]
    assert tools.by_name["look"].namespace is None


@pytest.mark.parametrize(
    ("namespace", "name"), [(None, "ls"), (UNSET, "ls"), ("", "ls"), ("functions", "ls"), ("fs", "fs.ls")], ids=str
)
def test_a_name_is_qualified_unless_its_tool_is_plain(namespace: str | UnsetType | None, name: str) -> None:
    assert qualified_name(namespace, "ls") == name


def test_a_namespace_may_be_empty_or_inside_another() -> None:
    assert parse({"type": "namespace", "name": "fs"}).by_name == {}
    assert list(parse(namespace("a", namespace("b", LOOK))).by_name) == ["b.look"]


def test_kinds_that_this_server_does_not_know_pass_through_unread() -> None:
    unknown = {"type": "image_generation", "name": 5, "parameters": "none", "tools": {"a": 1}}
    tools = parse(unknown, LOOK)
    assert list(tools.by_name) == ["look"]
    assert json.loads(bytes(tools.echo))[0] == unknown


def test_what_opens_an_mcp_server_is_neither_echoed_nor_told_to_the_model() -> None:
    wiki = {"type": "mcp", "server_label": "wiki", "allowed_tools": ["ask"], "require_approval": None, "x": 1}
    secrets = {"authorization": "t0ken", "headers": {"x-key": "hush"}, "server_url": "https://wiki.test:1/secret?key=x"}
    tools = parse({**wiki, **secrets}, LOOK)
    assert json.loads(bytes(tools.echo))[0] == {
        **wiki,
        "server_url": "https://wiki.test:1/<redacted>",
        "headers": None,
        "server_description": None,
        "require_approval": "always",
    }
    assert json.loads(tools.told) == [LOOK]


@pytest.mark.parametrize("written", [rb"https:\/\/wiki.test\/secret", rb"\u0068ttps://wiki.test/secret"])
def test_what_opens_an_mcp_server_is_not_echoed_however_json_writes_it(written: bytes) -> None:
    raw = b'[{"type":"mcp","server_label":"wiki","server_url":"%s"}]' % written
    (echoed,) = json.loads(bytes(parse_tools(raw).echo))
    assert echoed["server_url"] == "https://wiki.test/<redacted>"


@pytest.mark.parametrize("url", ["https://wiki.test", "", 5, 'no "URL"/'])
def test_an_address_that_says_no_more_than_a_host_is_echoed(url: Any) -> None:
    (echoed,) = json.loads(bytes(parse({"type": "mcp", "server_label": "wiki", "server_url": url}).echo))
    assert echoed["server_url"] == url


def test_two_mcp_servers_have_two_labels() -> None:
    wiki = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.test"}
    assert len(parse(wiki, {**wiki, "server_label": "other"}).hosted) == 2
    with pytest.raises(InvalidRequest) as caught:
        parse(wiki, LOOK, {**wiki, "server_url": "https://other.test"})
    assert (caught.value.code, caught.value.param) == ("invalid_value", "tools[2].server_label")


def test_functions_are_echoed_with_their_defaults() -> None:
    (echoed,) = json.loads(bytes(parse({"type": "function", "name": "look"}).echo))
    assert echoed == {"type": "function", "name": "look", "description": None, "parameters": None, "strict": True}


def test_what_a_client_said_is_echoed_over_the_defaults() -> None:
    tools = [{**LOOK, "async": True}, EXEC, namespace("fs", {"type": "function", "name": "ls"})]
    assert json.loads(bytes(parse(*tools).echo)) == tools


def test_an_echo_keeps_numbers_as_they_were_written() -> None:
    raw = b'[{"type":"function","name":"n","parameters":{"maximum":1000000000000000000000000000000,"step":0.10}}]'
    assert b'{"maximum":1000000000000000000000000000000,"step":0.10}' in bytes(parse_tools(raw).echo)


@pytest.mark.parametrize("schema", [None, True, {}, {"type": "object", "properties": {}}])
def test_any_json_schema_is_taken_as_parameters(schema: Any) -> None:
    assert parse({**LOOK, "parameters": schema}).by_name["look"].parameters == schema


def test_a_set_is_known_by_its_bytes() -> None:
    compact, spaced = parse_tools(b"[]"), parse_tools(b"[ ]")
    assert (compact.raw, spaced.raw) == (b"[]", b"[ ]")
    assert compact.digest != spaced.digest
    assert compact.digest == parse_tools(b"[]").digest
    assert parse(LOOK).digest != parse(EXEC).digest


def test_no_tools_looks_like_an_empty_array() -> None:
    assert (NO_TOOLS.raw, bytes(NO_TOOLS.echo), NO_TOOLS.by_name) == (b"[]", b"[]", {})
    assert bytes(parse_tools(b"[ ]").echo) == b"[]"


F, M = "invalid_type", "missing_required_parameter"


@pytest.mark.parametrize(
    ("tool", "code", "param"),
    [
        (5, F, "tools[1]"),
        (None, F, "tools[1]"),
        ({}, M, "tools[1].type"),
        ({"type": 5}, F, "tools[1].type"),
        ({"type": "function"}, M, "tools[1].name"),
        ({"type": "function", "name": ""}, M, "tools[1].name"),
        ({"type": "function", "name": None}, M, "tools[1].name"),
        ({"type": "function", "name": 5}, F, "tools[1].name"),
        ({**LOOK, "description": 5}, F, "tools[1].description"),
        ({**LOOK, "parameters": "none"}, F, "tools[1].parameters"),
        ({**LOOK, "strict": "yes"}, F, "tools[1].strict"),
        ({"type": "custom"}, M, "tools[1].name"),
        ({"type": "namespace", "tools": []}, M, "tools[1].name"),
        ({"type": "namespace", "name": "fs", "tools": {}}, F, "tools[1].tools"),
        (namespace("fs", LOOK, {"type": "function"}), M, "tools[1].tools[1].name"),
        (namespace("fs", 5), F, "tools[1].tools[0]"),
    ],
    ids=str,
)
def test_a_faulty_definition_is_named_by_its_place(tool: Any, code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(LOOK, tool)
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize("raw", [b"{}", b"5", b'"x"', b"null"])
def test_tools_are_an_array(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_tools(raw, "input[3].tools")
    assert (caught.value.code, caught.value.param) == (F, "input[3].tools")


@pytest.mark.parametrize(
    "raw",
    [
        b"[",
        b'[{"type":"function","name":"\xff"}]',
        b'[{"type":"function","name":"\\ud800"}]',
        b'[{"type":"function","name":"n","parameters":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}]",
    ],
    ids=["cut", "no utf-8", "surrogate", "deep"],
)
def test_broken_text_is_refused_without_a_fault_of_ours(raw: bytes) -> None:
    with pytest.raises(InvalidJson):
        parse_tools(raw)


def test_nesting_is_read_or_refused_at_every_depth() -> None:
    for depth in range(900, 1000, 3):
        raw = b'[{"type":"function","name":"n","parameters":{"a":' + b"[" * depth + b"]" * depth + b"}}]"
        try:
            assert parse_tools(raw).by_name["n"].parameters is not None
        except InvalidRequest:
            continue


def test_a_schema_is_refused_at_the_same_depth_wherever_it_is_read() -> None:
    for depth, refused in ((99, False), (100, True)):
        raw = b'[{"type":"function","name":"n","parameters":{"a":' + b"[" * depth + b"]" * depth + b"}}]"
        if not refused:
            parse_tools(raw)
            continue
        with pytest.raises(InvalidField) as caught:
            parse_tools(raw)
        assert (caught.value.param, caught.value.code) == ("tools[0].parameters", "nested_too_deeply")
