"""Definitions of MCP servers: what is taken, what is refused and where, which tools are offered and asked about."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import tool_param

from respserver.errors import InvalidRequest
from respserver.schema.mcp import McpDefinition, parse_mcp

URL = "https://mcp.example.com/mcp"
# Any in this file: JSON.


def parse(**fields: Any) -> McpDefinition:
    return parse_mcp(
        json.dumps({"type": "mcp", "server_label": "wiki", "server_url": URL, **fields}).encode(), "tools[2]"
    )


def test_every_field_that_the_sdk_has_is_known() -> None:
    ours = set(McpDefinition.__struct_fields__)
    assert set(tool_param.Mcp.__annotations__) - ours == {"allowed_callers"}  # of programmatic calls, which are none


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"server_description": "Boats.", "defer_loading": True, "headers": None, "authorization": None},
        {"headers": {"X-Key": "a b", "x-empty": ""}, "authorization": "t0ken"},
        {"allowed_tools": [], "require_approval": "never"},
        {"allowed_tools": {"tool_names": ["a"], "read_only": True}},
        {"require_approval": {"always": {"tool_names": ["a"]}, "never": {"read_only": True}}},
        {"server_url": "http://localhost:8080"},
        {"server_url": "HTTPS://[::1]:1/x?y=z"},
        {"not_known_yet": 1},
    ],
)
def test_definitions_that_are_taken(fields: dict[str, Any]) -> None:
    assert parse(**fields).server_label == "wiki"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"server_label": 5}, "server_label", "invalid_type"),
        ({"server_label": ""}, "server_label", "invalid_value"),
        ({"server_label": "a.b"}, "server_label", "invalid_value"),
        ({"server_label": "1a"}, "server_label", "invalid_value"),
        ({"server_label": "x" * 65}, "server_label", "invalid_value"),
        ({"server_url": None}, "server_url", "missing_required_parameter"),
        ({"server_url": ""}, "server_url", "missing_required_parameter"),
        ({"server_url": "ftp://a.test"}, "server_url", "invalid_value"),
        ({"server_url": "https://"}, "server_url", "invalid_value"),
        ({"server_url": "https://a.test:70000"}, "server_url", "invalid_value"),
        ({"server_url": "https://a.test:0"}, "server_url", "invalid_value"),
        ({"server_url": "https://[::1"}, "server_url", "invalid_value"),
        ({"server_url": "https://a.test/\r\nx: y"}, "server_url", "invalid_value"),
        ({"server_url": "https://user:secret@a.test"}, "server_url", "invalid_value"),
        ({"connector_id": "connector_gmail"}, "connector_id", "unsupported_parameter"),
        ({"server_url": None, "tunnel_id": "t"}, "tunnel_id", "unsupported_parameter"),
        ({"headers": {"a": 1}}, "headers", "invalid_type"),
        ({"headers": {"a b": "x"}}, "headers", "invalid_value"),
        ({"headers": {"a": "x\r\nb: c"}}, "headers", "invalid_value"),
        ({"headers": {"Host": "x"}}, "headers", "invalid_value"),
        ({"headers": {"MCP-Session-Id": "x"}}, "headers", "invalid_value"),
        ({"headers": {"Authorization": "x"}, "authorization": "y"}, "headers", "invalid_value"),
        ({"authorization": "a\nb"}, "authorization", "invalid_value"),
        ({"allowed_tools": "add"}, "allowed_tools", "invalid_type"),
        ({"allowed_tools": {"tool_names": "add"}}, "allowed_tools.tool_names", "invalid_type"),
        ({"require_approval": "sometimes"}, "require_approval", "invalid_value"),
        ({"require_approval": {"never": "all"}}, "require_approval.never", "invalid_type"),
        ({"defer_loading": "yes"}, "defer_loading", "invalid_type"),
    ],
)
def test_what_is_wrong_is_refused_where_it_stands(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    assert caught.value.param is not None
    assert caught.value.param.startswith(f"tools[2].{param}")
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


def test_a_label_must_be_there() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_mcp(b'{"type":"mcp","server_url":"https://a.test"}', "tools[0]")
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "tools[0].server_label")


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({}, {}),
        ({"headers": {"X-Key": "k"}}, {"x-key": "k"}),
        ({"authorization": "t"}, {"authorization": "Bearer t"}),
        ({"authorization": "Bearer t"}, {"authorization": "Bearer t"}),
        ({"headers": {"Authorization": "Basic x"}}, {"authorization": "Basic x"}),
    ],
)
def test_headers_and_the_authorization_are_sent(fields: dict[str, Any], headers: dict[str, str]) -> None:
    assert parse(**fields).sent_headers == headers


def test_no_secret_is_shown() -> None:
    shown = repr(parse(authorization="t0psecret", headers={"x-key": "hush"}, server_url=URL + "?key=quiet"))
    assert not any(secret in shown for secret in ("t0psecret", "hush", "quiet"))


@pytest.mark.parametrize(
    ("allowed", "look", "write"),
    [
        (None, True, True),
        ([], False, False),
        (["look"], True, False),
        ({"tool_names": ["write"]}, False, True),
        ({"read_only": True}, True, False),
        ({"read_only": False}, False, True),
        ({"tool_names": ["look", "write"], "read_only": True}, True, False),
        ({}, True, True),
    ],
)
def test_allowed_tools_are_offered(allowed: Any, look: bool, write: bool) -> None:
    definition = parse(allowed_tools=allowed)
    assert definition.offers("look", is_read_only=True) is look
    assert definition.offers("write", is_read_only=False) is write


@pytest.mark.parametrize(
    ("rule", "look", "write"),
    [
        (None, True, True),
        ("always", True, True),
        ("never", False, False),
        ({}, True, True),
        ({"never": {}}, True, True),
        ({"never": {"tool_names": ["look"]}}, False, True),
        ({"never": {"read_only": True}}, False, True),
        ({"always": {"tool_names": ["write"]}}, True, True),
        ({"always": {"tool_names": ["look"]}, "never": {"tool_names": ["look", "write"]}}, True, False),
    ],
)
def test_a_call_needs_approval_unless_the_client_waives_it(rule: Any, look: bool, write: bool) -> None:
    definition = parse(require_approval=rule)
    assert definition.needs_approval("look", is_read_only=True) is look
    assert definition.needs_approval("write", is_read_only=False) is write
