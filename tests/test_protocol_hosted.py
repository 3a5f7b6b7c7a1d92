"""Items of calls that the server runs itself, from deltas and outcomes to events, without anything that runs them."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.errors import ServerError
from respserver.protocol.citations import cite
from respserver.protocol.emitter import Emitter
from respserver.protocol.open_hosted import Hosted, Outcome, Searching
from respserver.schema.items import ListedTool, McpCall, SealedSearch, WebSearchCall
from respserver.tokens.parse import Delta
from tests.support.pure import USAGE, calling, emitter, feed, message, types_of

LOOK = Hosted(kind="mcp", name="look", qualified_name="srv.look", label="srv")
ASK = Hosted(kind="mcp", name="ask", qualified_name="srv.ask", label="srv", needs_approval=True)
SEARCH = Hosted(kind="web_search", name="web_search", qualified_name="web_search")
TOOLS = {tool.qualified_name: tool for tool in (LOOK, ASK, SEARCH)}


def hosting(*, sources: bool = False, padded: bool = False) -> Emitter:
    made = emitter(
        padding=(lambda length: "." * length) if padded else None,
        searching=Searching(seal=lambda search: f"sealed {search.output}", sources=sources),
    )
    made.find_hosted = TOOLS.get
    return made


def fed(one: Emitter, *deltas: list[Delta]) -> list[str]:
    return types_of(feed(one, *deltas))


def test_a_call_is_done_only_when_it_has_come_to_something() -> None:
    one = hosting()
    assert fed(one, calling("srv.look", "{}")) == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
    ]
    (call,) = one.hosted_calls
    assert call.begun() == []
    assert (one.open_calls, one.call_ids) == ({}, [])
    assert types_of(one.settle(call, Outcome(output="high"))) == ["mcp_call.completed", "output_item.done"]
    assert one.hosted_calls == []
    (item,) = one.output
    assert isinstance(item, McpCall)
    assert (item.output, item.error, item.status) == ("high", None, "completed")


def test_a_call_without_arguments_has_an_empty_object() -> None:
    one = hosting(padded=True)
    events = feed(one, calling("srv.look"))
    assert [getattr(event, "delta", None) for event in events] == [None, None, "{}", None]
    assert getattr(events[2], "obfuscation", "") == "." * 14
    assert one.hosted_calls[0].arguments == "{}"


def test_a_call_that_failed_says_why() -> None:
    one = hosting()
    fed(one, calling("srv.look"))
    assert types_of(one.settle(one.hosted_calls[0], Outcome(error="no"))) == ["mcp_call.failed", "output_item.done"]
    (item,) = one.output
    assert isinstance(item, McpCall)
    assert item.error is not None
    assert ([part.text for part in item.error.content], item.status, item.output) == (["no"], "failed", None)


@pytest.mark.parametrize("name", ["srv.look", "srv.ask", "web_search"])
def test_a_call_that_breaks_off_is_incomplete_and_waits_for_nobody(name: str) -> None:
    one = hosting()
    assert fed(one, calling(name, '{"a', complete=False))[-1] == "output_item.done"
    assert (one.hosted_calls, one.open_calls) == ([], {})
    (item,) = one.output
    assert isinstance(item, McpCall | WebSearchCall)
    assert item.status == "incomplete"
    if isinstance(item, McpCall):
        assert item.arguments == '{"a'


@pytest.mark.parametrize("end", ["cut", "fail"])
def test_what_was_never_run_is_incomplete_when_the_response_ends(end: str) -> None:
    one = hosting()
    one.list_tools("srv")
    fed(one, calling("srv.look", "{}"), calling("web_search", '{"query":"x"}'))
    events = one.cut("max_output_tokens", USAGE) if end == "cut" else one.fail(ServerError())
    assert types_of(events)[:-1] == ["mcp_list_tools.failed", *["output_item.done"] * 3]
    assert [getattr(item, "status", None) for item in one.output] == [None, "incomplete", "incomplete"]
    assert one.hosted_calls == []


def test_an_approval_is_shown_whole_and_owed() -> None:
    one = hosting()
    *said, end = calling("srv.ask", '{"n":1}')
    assert fed(one, said) == []
    assert fed(one, [end]) == ["output_item.added", "output_item.done"]
    (item,) = one.output
    assert list(one.open_calls) == [item.id]
    assert item.id.startswith("mcpr_")
    assert one.item_ids == [item.id]
    opened = one.open_calls[item.id]
    assert (opened.kind, opened.name, opened.arguments) == ("mcp_approval_request", "srv.ask", '{"n":1}')
    (stub,) = one.required_input
    assert (stub.type, stub.approval_request_id) == ("mcp_approval_response", item.id)
    assert types_of(one.call_approved(ASK, opened.arguments, item.id)) == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
    ]
    made = one.output[-1]
    assert isinstance(made, McpCall)
    assert (made.approval_request_id, made.arguments) == (item.id, '{"n":1}')
    assert [call.item for call in one.hosted_calls] == [made]


@pytest.mark.parametrize("sources", [False, True])
def test_a_search_keeps_what_it_found(sources: bool) -> None:
    one = hosting(sources=sources)
    assert fed(one, calling("web_search", '{"query":"tides"}')) == ["output_item.added", "web_search_call.in_progress"]
    (call,) = one.hosted_calls
    assert types_of(call.begun()) == ["web_search_call.searching"]
    found = [("file:///a", "A")]
    assert types_of(one.settle(call, Outcome(output="[1] A", sources=found))) == [
        "web_search_call.completed",
        "output_item.done",
    ]
    (item,) = one.output
    assert isinstance(item, WebSearchCall)
    assert (item.status, item.action.query, item.encrypted_content) == ("completed", "tides", "sealed [1] A")
    assert bool(item.action.sources) is sources
    assert one.sources == found
    assert one.searches[item.id].sealed == SealedSearch("web_search", '{"query":"tides"}', "[1] A", found)
    assert fed(one, message("see [1], not [2]"))[-4:] == [
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]


def test_a_search_that_failed_is_not_completed() -> None:
    one = hosting()
    fed(one, calling("web_search", "{"))
    assert types_of(one.settle(one.hosted_calls[0], Outcome(output="Error: no", error="no"))) == ["output_item.done"]
    (item,) = one.output
    assert isinstance(item, WebSearchCall)
    assert (item.status, item.action.query) == ("failed", "")


def test_lists_are_items_too() -> None:
    one = hosting()
    listing = one.list_tools("srv")
    assert types_of(listing.added()) == ["output_item.added", "mcp_list_tools.in_progress"]
    assert types_of(one.listed(listing, [ListedTool(name="look")], None)) == [
        "mcp_list_tools.completed",
        "output_item.done",
    ]
    other = one.list_tools("down")
    assert types_of(one.listed(other, [], "gone")) == ["mcp_list_tools.failed", "output_item.done"]
    assert [getattr(item, "error", None) for item in one.output] == [None, "gone"]


def test_other_calls_stay_the_clients() -> None:
    one = hosting()
    fed(one, calling("mine", "{}"), calling("srv.look", custom=True))
    assert [call.name for call in one.open_calls.values()] == ["mine", "srv.look"]
    assert one.hosted_calls == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", []),
        ("as [1] says", [(3, 6, "A")]),
        ("[2][1]", [(0, 3, "B"), (3, 6, "A")]),
        ("☂ [2]", [(2, 5, "B")]),
        ("[0] [3] [01] [x] [ 1 ] [1", []),
    ],
)
def test_marks_of_sources_are_citations(text: str, places: list[Any]) -> None:
    found = cite(text, [("file:///a", "A"), ("file:///b", "B")])
    assert [(one.start_index, one.end_index, one.title) for one in found] == places
    assert cite(text, []) == []
