"""Items of calls that a server ran itself, as clients send them back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.errors import InvalidRequest
from respserver.protocol.chain import Pause, is_echo, name_outputs, pair
from respserver.schema.items import (
    ApprovalRequestItem,
    ApprovalResponseItem,
    InputItem,
    ListedTool,
    McpApprovalRequest,
    McpCall,
    McpCallItem,
    McpListTools,
    McpToolsItem,
    OpaqueItem,
    SearchAction,
    SearchItem,
    WebSearchCall,
)
from respserver.services import bundled_template
from respserver.state import OpenCall
from tests.support.pure import call, context, items, output

CALL: dict[str, Any] = {"type": "mcp_call", "id": "mcp_1", "name": "look", "server_label": "srv", "arguments": "{}"}
ASKED: dict[str, Any] = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "look",
    "server_label": "srv",
    "arguments": '{"n":1}',
}
GIVEN: dict[str, Any] = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
TOOLS: dict[str, Any] = {
    "type": "mcp_list_tools",
    "server_label": "srv",
    "tools": [{"name": "look", "input_schema": {}}],
}
SEARCH: dict[str, Any] = {"type": "web_search_call", "id": "ws_1", "status": "completed", "encrypted_content": "x"}


def one(entry: dict[str, Any]) -> InputItem:
    (item,) = items(entry)
    return item


def words(item: InputItem) -> str:
    template = bundled_template()
    return template.tokenizer.decode(template.tokenise(template.item(item)))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, None),
        ("no", "no"),
        (
            {
                "type": "mcp_tool_execution_error",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            "a\nb",
        ),
        ({"type": "mcp_tool_execution_error", "content": "plain"}, "plain"),
        ({"type": "http_error", "code": 500, "message": "m"}, '{"type":"http_error","code":500,"message":"m"}'),
        ([1], "[1]"),
    ],
)
def test_errors_in_every_form(error: Any, said: str | None) -> None:
    item = one({**CALL, "error": error})
    assert isinstance(item, McpCallItem)
    assert (item.name, item.error) == ("srv.look", said)
    assert ("Error: " in words(item)) is (said is not None)


@pytest.mark.parametrize(
    ("entry", "missing"),
    [(CALL, "arguments"), (ASKED, "server_label"), (TOOLS, "tools"), (SEARCH, "encrypted_content")],
)
def test_an_item_that_lacks_what_is_needed_passes_through(entry: dict[str, Any], missing: str) -> None:
    item = one({name: value for name, value in entry.items() if name != missing})
    assert type(item) is OpaqueItem
    assert item.kind == entry["type"]
    assert json.loads(words(item).partition("item")[2]) == json.loads(item.raw)


@pytest.mark.parametrize(
    ("approve", "code"), [({}, "missing_required_parameter"), ({"approve": "yes"}, "invalid_type")]
)
def test_an_answer_to_an_approval_is_yes_or_no(approve: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        one({**{name: value for name, value in GIVEN.items() if name != "approve"}, **approve})
    assert (caught.value.code, caught.value.param) == (code, "input[0].approve")


def test_each_kind_is_read() -> None:
    kinds = [McpCallItem, ApprovalRequestItem, ApprovalResponseItem, McpToolsItem, SearchItem]
    assert [type(item) for item in items(CALL, ASKED, GIVEN, TOOLS, SEARCH)] == kinds
    assert type(one({**TOOLS, "server_label": ""})) is OpaqueItem


def test_an_approval_knows_what_it_approves_once_it_is_paired() -> None:
    asked, given = pair(context(), items(ASKED, GIVEN))
    assert isinstance(given, ApprovalResponseItem)
    assert (given.name, given.arguments) == ("srv.look", '{"n":1}')
    assert words(given) == ""
    _, refused = pair(context(), items(ASKED, {**GIVEN, "approve": False, "reason": "no"}))
    assert "The user has refused this call. no" in words(refused)
    assert name_outputs(items(ASKED, GIVEN)) == [asked, given]
    assert name_outputs(items(GIVEN)) == items(GIVEN)


def test_outputs_and_approvals_stand_in_call_order() -> None:
    mixed = pair(context(), items(call("c1"), ASKED, call("c2"), output("c2"), GIVEN, output("c1")))
    assert [getattr(item, "call_id", None) for item in mixed[3:]] == ["c1", "mcpr_1", "c2"]


def test_a_call_that_was_approved_stands_for_itself_if_the_request_is_gone() -> None:
    approved = {**CALL, "approval_request_id": "mcpr_1", "output": "high"}
    *_, beside = pair(context(), items(ASKED, GIVEN, approved))
    (alone,) = pair(context(), items(approved))
    assert "look{}" not in words(beside)
    assert words(alone).startswith("assistant")
    assert words(alone).endswith(words(beside))


def test_an_append_may_bring_an_approval() -> None:
    calls = {"mcpr_1": OpenCall("mcpr_1", "mcp_approval_request", "srv.look", True, '{"n":1}')}
    pause = Pause(response_id="resp_1", open_calls=calls, emitted=[])
    taken = pause.take(items(GIVEN))
    assert taken is not None
    assert [getattr(item, "arguments", None) for item in taken] == ['{"n":1}']


def test_echoes_of_the_servers_own_calls_are_known() -> None:
    made = McpCall(id="mcp_1", status="completed", name="look", server_label="srv", arguments="{}")
    listing = McpListTools(id="mcpl_1", server_label="srv", tools=[ListedTool(name="look")])
    request = McpApprovalRequest(id="mcpr_1", name="look", server_label="srv", arguments='{"n":1}')
    search = WebSearchCall(id="ws_1", status="completed", action=SearchAction(), encrypted_content="x")
    emitted = [made, listing, request, search]
    sent = items(CALL, TOOLS, ASKED, SEARCH)
    for place, item in enumerate(sent):
        assert [is_echo(other, item) for other in emitted] == [at == place for at in range(len(emitted))]
    assert is_echo(made, one({name: value for name, value in CALL.items() if name != "id"}))
    assert not is_echo(made, one({**CALL, "id": "mcp_2", "name": "other"}))
